"""Driver: the listening socket of the Kafka door, its connections, and the limits they share (X8, X9, X13, X14)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from headrace.broker.connections import Connections
from headrace.broker.runtime import Runtime
from headrace.cluster.image import ClusterImage
from headrace.core import limits
from headrace.kafka.admission import Admission
from headrace.kafka.connection import Connection
from headrace.net.doorway import Doorway, Factory
from headrace.net.tls import shown_certificate
from headrace.security.logins import LoginFailed, Logins

log = logging.getLogger(__name__)

SWEEP_S = 5.0
WARNINGS_PER_SWEEP = 20


class Dispatches(Protocol):
    @property
    def requests(self) -> Mapping[int, int]:
        """How many of each API."""
        ...

    def handle(self, connection: Connection, frame: memoryview) -> bool: ...

    def connection_closed(self, connection: Connection) -> None: ...


class KafkaServer:
    def __init__(
        self,
        runtime: Runtime,
        image: ClusterImage,
        known: Connections,
        dispatcher: Dispatches,
        logins: Logins,
    ) -> None:
        self.clock = runtime.clock
        self._runtime = runtime
        self._known = known
        self.max_frame_bytes = limits.MAX_FRAME_BYTES
        self.connections: set[Connection] = set()
        self.dispatcher = dispatcher
        self.handle = dispatcher.handle
        self.admission = Admission(image.layers)
        self._logins = logins
        self._held_bytes = 0
        self._starved: dict[Connection, None] = {}
        self._server: asyncio.AbstractServer | None = None
        self._doorway: Doorway | None = None
        self._warnings = 0

    async def bind(self, host: str, port: int, make: Callable[[Factory], Doorway] | None = None) -> int:
        """Reserve the port (the system chooses one when 0 is asked for); connections wait until `serve`.
        `make`: the way in for TLS and plain connections alike; without it there are only plain ones."""
        if make is not None:
            self._doorway = make(self._connect)
            return (await self._doorway.bind(host, port))[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connect, host, port, backlog=1024, start_serving=False)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def serve(self) -> None:
        if self._doorway is not None:
            self._doorway.start()
        else:
            assert self._server is not None
            await self._server.start_serving()
        self._runtime.supervise("close stale connections", self._sweep)

    def _connect(self) -> Connection:
        return Connection(self, self._known.next_id())

    def admit(self, connection: Connection) -> bool:
        now_ms = self.clock.now_ms()
        if self._logins.is_shut_out(connection.host):
            self.warn(f"refusing a connection from {connection.host}: too many wrong passwords")
            return False
        try:
            self._recognize(connection)
        except LoginFailed as problem:
            self.warn(f"refusing a connection from {connection.host}: {problem}")
            return False
        evicted = self.admission.evicted
        if not self.admission.admit(connection, now_ms):
            self.warn(f"refusing a connection from {connection.host}: too many are open")
            return False
        if self.admission.evicted != evicted:
            self.warn(f"too many connections from {connection.host}, or altogether: an idle one was closed")
        self.connections.add(connection)
        self._known.opened(connection)
        if connection.session.is_named and not self._known.proved(
            connection.id, self.admission.limits.per_user
        ):
            self.warn(f"{connection.principal} has as many connections as one user may have")
            return False
        delay_ms = self.admission.delay_ms(now_ms)
        if delay_ms:
            connection.mute(delay_ms)
        return True

    def _recognize(self, connection: Connection) -> None:
        """By a certificate of a user (A11). Raises LoginFailed."""
        session = connection.session
        if session.is_tls and session.certified_broker < 0 and connection.transport is not None:
            shown = shown_certificate(connection.transport)
            session.principal = self._logins.by_certificate(shown, connection.host) or session.principal

    def needs_login(self, connection: Connection) -> bool:
        """Whether nothing is heard from it until it has said who it is."""
        return self._logins.image.enforces and not connection.session.is_named

    def forget(self, connection: Connection, held_bytes: int) -> None:
        self._starved.pop(connection, None)
        self.hold(-held_bytes)
        self.admission.forget(connection)
        if connection in self.connections:
            self.connections.discard(connection)
            self._known.closed(connection.id)
            self.dispatcher.connection_closed(connection)

    def hold(self, size: int) -> None:
        """Bytes of requests that arrive or wait their turn, over all connections (X9)."""
        self._held_bytes += size

        if size < 0 and self._starved and self.has_room(limits.MIB):
            starved, self._starved = self._starved, {}
            for connection in starved:
                connection.feed()

    def has_room(self, size: int) -> bool:
        return self._held_bytes + size <= limits.MAX_INFLIGHT_REQUEST_BYTES

    def starve(self, connection: Connection) -> None:
        """It waits for memory. Whoever holds an empty buffer gives it back first."""
        self._starved[connection] = None
        asyncio.get_running_loop().call_soon(self._reclaim)

    def _reclaim(self) -> None:
        for connection in list(self.connections):
            connection.shrink()

    @property
    def idle_ms(self) -> int:
        """How long a connection may be silent."""
        return self.admission.limits.idle_ms

    @property
    def over_budget(self) -> bool:
        return self._held_bytes > limits.MAX_INFLIGHT_REQUEST_BYTES

    def warn(self, message: str) -> None:
        self._warnings += 1
        if self._warnings <= WARNINGS_PER_SWEEP:
            # Client-made text goes through repr so that it can't forge log lines (X28).
            log.warning("%s", message.encode("unicode_escape").decode("ascii"))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            if self._warnings > WARNINGS_PER_SWEEP:
                log.warning(
                    "%d more warnings about connections were left out", self._warnings - WARNINGS_PER_SWEEP
                )
            self._warnings = 0
            now_ms = self.clock.now_ms()
            for connection in self.admission.overdue(now_ms):
                self.warn(
                    f"closing {connection.host}: too many connections are open, and this is no broker's"
                )
                connection.close()
            for connection in list(self.connections):
                if (reason := connection.stale(now_ms)) is not None:
                    log.info("closing %s: %s", connection.host, reason)
                    connection.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._doorway is not None:
            self._doorway.close()
        for connection in list(self.connections):
            connection.close()

    def stats(self) -> dict[str, int]:
        return {"connections": len(self.connections), "held_bytes": self._held_bytes}
