"""Driver: the HTTP listener: its limits, its connections and how it stops.

One sweep a second looks at every connection's clock, so the hot path sets no timer. Stopping is graceful: no new
connections, idle ones close, streams end, running requests get `grace_ms` to be answered.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from email.utils import formatdate

from headrace.core.measures import Family, Histogram, Sample, counter, gauge
from headrace.core.ports import Clock
from headrace.http.admission import BodyBudget, ConnectionGate
from headrace.http.browsers import BrowserPolicy
from headrace.http.connection import HttpConnection
from headrace.http.listening import HttpSettings, Recognize
from headrace.http.messages import Peer, Request, Response
from headrace.http.reader import ReadLimits
from headrace.http.router import Router
from headrace.net.doorway import Doorway, Factory

_log = logging.getLogger("headrace.http")

_SWEEP_MS = 1_000
_MAX_LOG_LINES_PER_SWEEP = 10
_UNEMBEDDED = b"x-content-type-options: nosniff\r\ncross-origin-resource-policy: same-origin\r\n"


class HttpServer:
    def __init__(
        self,
        router: Router,
        clock: Clock,
        settings: HttpSettings | None = None,
        *,
        browsers: BrowserPolicy | None = None,
        request_id_prefix: str = "",
        recognize: Recognize = lambda shown, host: None,
    ) -> None:
        """`request_id_prefix` comes from the runtime's dice, so ids of two brokers differ. Without a policy of its own about
        `browsers`, it answers to loopback names and addresses, and to no page of anybody else."""
        self.router = router
        self.recognize = recognize
        """Who shows this certificate. Raises LoginFailed: nobody does."""
        self.clock = clock
        self.settings = settings or HttpSettings()
        self.read_limits = ReadLimits(
            self.settings.max_header_bytes,
            self.settings.max_header_count,
            self.settings.max_target_bytes,
            self.settings.max_body_bytes,
        )
        self.browsers = browsers or BrowserPolicy()
        self.judge_peer: Callable[[Request], Response | None] = lambda request: None
        """Asked once about each request before its handler: who passes it on, or why it is refused (A1)."""
        self.body_budget = BodyBudget(self.settings.max_inflight_body_bytes)
        self.is_draining = False
        self.received_bytes = 0
        self.fixed_lines = b""
        self.read_lines = b""
        """The same, for answers to GET: no page of another origin may embed them, and nobody guesses at their type."""
        self._gate = ConnectionGate(
            self.settings.max_connections,
            self.settings.max_connections_per_host,
            self.settings.connections_reserved_for_loopback,
        )
        self.request_id_prefix = request_id_prefix
        self.request_count = 0
        self._connections: dict[HttpConnection, None] = {}  # a dict keeps order, so a sweep is deterministic
        self._listeners: list[asyncio.Server] = []
        self._doorway: Doorway | None = None
        self._sweep_handle: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event | None = None
        self._log_room = _MAX_LOG_LINES_PER_SWEEP
        self._unlogged = 0
        self._refused_connections = 0
        self._accepted_connections = 0
        self._by_status: dict[int, int] = {}
        self._timeouts: dict[str, int] = {}
        self._latency: dict[str, Histogram] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "the server is not started"
        return self._loop

    async def start(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, backlog: int = 1024
    ) -> tuple[str, int]:
        """Listen; the answer is the address that was bound (port 0 picks one). May be called for several addresses."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._all_closed = asyncio.Event()
            self._sweep()
        listener = await self._loop.create_server(
            lambda: HttpConnection(self),
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=self.settings.tls_handshake_s if tls is not None else None,
            backlog=backlog,
        )
        self._listeners.append(listener)
        address = listener.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def start_at(self, make: Callable[[Factory], Doorway], host: str, port: int) -> tuple[str, int]:
        """Listen where TLS and plain connections come in alike."""
        self._loop = asyncio.get_running_loop()
        self._all_closed = asyncio.Event()
        self._sweep()
        self._doorway = make(lambda: HttpConnection(self))
        bound = await self._doorway.bind(host, port)
        self._doorway.start()
        return bound

    async def stop(self, grace_ms: int = 5_000) -> None:
        self.is_draining = True
        if self._doorway is not None:
            self._doorway.close()
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections):
            connection.drain()
        if self._connections and self._all_closed is not None:
            try:
                async with asyncio.timeout(grace_ms / 1000):
                    await self._all_closed.wait()
            except TimeoutError:
                for connection in list(self._connections):
                    connection.abort()
                await self._all_closed.wait()
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
        for listener in self._listeners:
            await listener.wait_closed()

    def close_user(self, name: str, credential: str = "") -> None:
        """Whatever is being answered to a user that is no longer one, streams above all (A9)."""
        for connection in list(self._connections):
            if connection.is_of_user(name, credential):
                connection.abort()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # --- called by connections ---

    def opened(self, connection: HttpConnection) -> bool:
        host = connection.peer.host
        admitted = not self.is_draining and (self._gate.admit(host) or self._make_room_for(host))
        if admitted:
            self._connections[connection] = None
            self._accepted_connections += 1
        else:
            self._refused_connections += 1
        return admitted

    def _make_room_for(self, host: str) -> bool:
        """A4: connections that nobody uses do not keep out one that somebody wants. The longest idle one goes, of the same
        address when that has too many; what has a request to be answered, or sends one, stays."""
        own_only = not self._gate.has_room_for_one_more_of(host)
        longest: tuple[int, HttpConnection] | None = None
        for other in self._connections:
            since_ms = other.idle_since_ms
            if since_ms is None or (own_only and other.peer.host != host):
                continue
            if longest is None or since_ms < longest[0]:
                longest = since_ms, other
        if longest is None:
            return False
        idle = longest[1]
        self.note_timeout("evicted", idle.peer)
        # Not counted from now on: its end comes later.
        del self._connections[idle]
        self._gate.release(idle.peer.host)
        idle.abort()
        return self._gate.admit(host)

    def closed(self, connection: HttpConnection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._gate.release(connection.peer.host)
        if self.is_draining and not self._connections and self._all_closed is not None:
            self._all_closed.set()

    def note_answer(self, route: str, status: int, seconds: float) -> None:
        self._by_status[status] = self._by_status.get(status, 0) + 1
        latency = self._latency.get(route)
        if latency is None:
            latency = self._latency[route] = Histogram()
        latency.observe(seconds)

    def note_refusal(self, peer: Peer, response: Response) -> None:
        """One line per malformed request, and few lines in total (X16). The body is our own text, not the client's."""
        if self._log_room > 0:
            self._log_room -= 1
            _log.info(
                "http: refused a request of %s: %s", peer.host, response.body.decode("utf-8", "replace")
            )
        else:
            self._unlogged += 1

    def note_timeout(self, what: str, peer: Peer) -> None:
        self._timeouts[what] = self._timeouts.get(what, 0) + 1
        if what != "idle" and self._log_room > 0:
            self._log_room -= 1
            _log.info("http: %s limit reached by %s", what, peer.host)

    def _sweep(self) -> None:
        # The next one first: nothing that raises below may end the limits of all connections (F16).
        self._sweep_handle = self.loop.call_later(self._sweep_s(), self._sweep)
        now_ms = self.clock.now_ms()
        date = formatdate(self.clock.wall_ms() / 1000, usegmt=True)
        self.fixed_lines = f"date: {date}\r\nserver: headrace\r\n".encode()
        self.read_lines = self.fixed_lines + _UNEMBEDDED
        for connection in list(self._connections):
            try:
                connection.sweep(now_ms)
            except Exception:
                _log.exception("http: %s could not be held to its limits and is closed", connection.peer.host)
                connection.abort()
        if self._unlogged:
            _log.warning("http: %d more requests were refused", self._unlogged)
            self._unlogged = 0
        self._log_room = _MAX_LOG_LINES_PER_SWEEP

    def _sweep_s(self) -> float:
        settings = self.settings
        smallest_ms = min(
            settings.idle_connection_ms,
            settings.partial_request_ms,
            settings.write_stall_ms,
            settings.request_timeout_ms,
            settings.linger_ms,
        )
        return max(1, min(_SWEEP_MS, smallest_ms // 4)) / 1000

    def collect(self) -> Iterable[Family]:
        yield gauge("mq_http_connections", "Open HTTP connections", self.connection_count)
        yield gauge("mq_http_inflight_body_bytes", "Request body bytes held", self.body_budget.used_bytes)
        yield counter(
            "mq_http_accepted_connections_total", "Connections accepted", self._accepted_connections
        )
        yield counter(
            "mq_http_refused_connections_total", "Connections over a cap", self._refused_connections
        )
        yield counter("mq_http_received_bytes_total", "Bytes read from HTTP clients", self.received_bytes)
        yield Family(
            "mq_http_responses_total",
            "counter",
            "Responses by status",
            [Sample((("status", str(status)),), count) for status, count in sorted(self._by_status.items())],
        )
        yield Family(
            "mq_http_timeouts_total",
            "counter",
            "Connections and requests ended by a time limit",
            [Sample((("limit", name),), count) for name, count in sorted(self._timeouts.items())],
        )
        yield Family(
            "mq_request_duration_seconds",
            "histogram",
            "Time from the last byte of a request to its answer",
            [
                sample
                for route, latency in sorted(self._latency.items())
                for sample in latency.samples((("protocol", "http"), ("api", route or "none")))
            ],
        )
