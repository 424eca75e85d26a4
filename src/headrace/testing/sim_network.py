"""Adapter: hosts, links and connections of a simulated network, behind loop.create_server and create_connection.

Faults are changes to links (one way each) or to connections: cut and heal, slow, delay one segment, refuse, reset,
half open. Every draw comes from the network's own dice.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headrace.testing.dice import Dice
from headrace.testing.sim_pipe import Link, Pipe
from headrace.testing.sim_transport import SimSocket, SimTransport
from headrace.testing.virtual_loop import EscapedSimulation, Process, VirtualTimeLoop, current_process

OUTSIDE = "outside"
"""The host of code that runs in no simulated process: a test."""

_EPHEMERAL_PORT = 40_000
_LOOPBACK_LATENCY_S = (0.00001, 0.00005)
_LAN_LATENCY_S = (0.0001, 0.002)
_ANY_ADDRESS = ("", "0.0.0.0", "::", None)
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


class SimHost:
    """A machine: its address, its listening ports, and whether it has power."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.is_up = True
        self.listeners: dict[int, SimServer] = {}
        self._next_port = _EPHEMERAL_PORT

    def free_port(self) -> int:
        while self._next_port in self.listeners:
            self._next_port += 1
        self._next_port += 1
        return self._next_port - 1


class SimServer(asyncio.AbstractServer):
    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        process: Process | None,
        port: int,
        factory: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._network = network
        self._host = host
        self.process = process
        self.port = port
        self.factory = factory
        self.context = contextvars.copy_context()
        self._closed = False

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        """Bound from the start, also while nobody is let in yet (start_serving=False)."""
        return () if self._closed else (SimSocket((self._host.address, self.port)),)

    def is_serving(self) -> bool:
        return self._host.listeners.get(self.port) is self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    async def start_serving(self) -> None:
        self._host.listeners[self.port] = self

    async def serve_forever(self) -> None:
        await self.start_serving()
        try:
            await self._network.loop.create_future()
        finally:
            self.close()

    def close(self) -> None:
        self._closed = True
        if self.is_serving():
            del self._host.listeners[self.port]

    async def wait_closed(self) -> None:
        """asyncio's waits for the listening socket, which is closed at once here."""

    async def __aenter__(self) -> SimServer:
        return self

    async def __aexit__(self, *_problem: object) -> None:
        self.close()


class SimNetwork:
    def __init__(
        self,
        loop: VirtualTimeLoop,
        dice: Dice,
        *,
        latency_s: tuple[float, float] = _LAN_LATENCY_S,
        connect_timeout_s: float = 20.0,
        give_up_s: float = 60.0,
    ) -> None:
        self.loop = loop
        self.dice = dice
        self.give_up_s = give_up_s
        """How long a kernel retransmits into a cut link before the connection is lost."""
        self._connect_timeout_s = connect_timeout_s
        self._latency_s = latency_s
        self._hosts: dict[str, SimHost] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._transports: dict[SimTransport, None] = {}
        self._pipes: dict[Pipe, tuple[str, str]] = {}
        self._kernel_context = contextvars.Context()
        loop.network = self

    # --- sim_pipe.Kernel ---

    def now_s(self) -> float:
        return self.loop.time()

    def at(self, when_s: float, callback: Callable[[], None]) -> None:
        self.loop.call_at(when_s, callback, context=self._kernel_context)

    # --- hosts and links ---

    def host(self, name: str) -> SimHost:
        if name not in self._hosts:
            self._hosts[name] = SimHost(name, f"10.0.{len(self._hosts) // 250}.{len(self._hosts) % 250 + 1}")
        return self._hosts[name]

    def link(self, source: str, target: str) -> Link:
        key = (source, target)
        if key not in self._links:
            self._links[key] = Link(_LOOPBACK_LATENCY_S if source == target else self._latency_s)
        return self._links[key]

    def _resolve(self, address: str | None, origin: SimHost) -> SimHost | None:
        if address in _LOOPBACK_NAMES or address in _ANY_ADDRESS:
            return origin
        for host in self._hosts.values():
            if address in (host.name, host.address):
                return host
        return None

    def _here(self) -> tuple[SimHost, Process | None]:
        process = current_process()
        if process is not None:
            process.check_alive()
        return self.host(OUTSIDE if process is None else process.host), process

    # --- loop.create_server ---

    async def create_server(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | Iterable[str] | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        start_serving: bool = True,
        **_ignored: Any,
    ) -> SimServer:
        if ssl is not None or sock is not None:
            raise EscapedSimulation("TLS and real sockets are not simulated")
        here, process = self._here()
        address = host if isinstance(host, str) or host is None else next(iter(host))
        if self._resolve(address, here) is not here:
            raise OSError(errno.EADDRNOTAVAIL, f"{address} is not an address of {here.name}")
        number = port or here.free_port()
        if number in here.listeners:
            raise OSError(errno.EADDRINUSE, f"port {number} of {here.name} is taken")
        server = SimServer(self, here, process, number, protocol_factory)
        if start_serving:
            await server.start_serving()
        return server

    # --- loop.create_connection ---

    async def create_connection(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **_ignored: Any,
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        if ssl is not None or sock is not None:
            raise EscapedSimulation("TLS and real sockets are not simulated")
        here, process = self._here()
        target = self._resolve(host, here)
        if target is None or port is None:
            raise OSError(errno.ENOENT, f"Name or service not known: {host}")
        attempt = _Attempt(self, here, process, target, port)
        transport = await attempt.wait(self._connect_timeout_s)
        protocol = protocol_factory()
        transport.open(protocol)
        return transport, protocol

    def connect(
        self, here: SimHost, process: Process | None, server: SimServer, target: SimHost
    ) -> SimTransport:
        """Both sockets, as the kernels make them at the handshake; the server's program accepts in its own time."""
        client_name = (here.address, here.free_port())
        server_name = (target.address, server.port)
        forward, backward = self.link(here.name, target.name), self.link(target.name, here.name)
        to_server = Pipe(self, forward, backward)
        to_client = Pipe(self, backward, forward)
        client = SimTransport(self, here, process, client_name, server_name, to_server, to_client)
        accepted = SimTransport(self, target, server.process, server_name, client_name, to_client, to_server)
        self._prune_pipes()
        self._pipes[to_server] = (here.name, target.name)
        self._pipes[to_client] = (target.name, here.name)
        context = server.context.copy()
        self.loop.call_soon(_accept, server, accepted, context=context)
        return client

    def register(self, transport: SimTransport) -> None:
        self._transports[transport] = None

    def unregister(self, transport: SimTransport) -> None:
        self._transports.pop(transport, None)

    def _prune_pipes(self) -> None:
        if len(self._pipes) > 64 and len(self._pipes) > 4 * len(self._transports):
            self._pipes = {pipe: ends for pipe, ends in self._pipes.items() if not pipe.is_over}

    # --- faults on links ---

    def cut(self, source: str, target: str, *, both_ways: bool = True) -> None:
        """Nothing passes: bytes wait in the sender's kernel until it heals or gives up."""
        self.loop.trace(f"cut {source} {target} {both_ways}")
        self.link(source, target).is_cut = True
        if both_ways:
            self.link(target, source).is_cut = True
        for pipe in self._pipes_between(source, target):
            pipe.pump()

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """One link in both directions, or every link: no cut, no refusal, no limit, the usual latency."""
        self.loop.trace(f"heal {source} {target}")
        for (one, other), link in self._links.items():
            if source is None or {one, other} == {source, target}:
                link.is_cut = False
                link.refuses = False
                link.bytes_per_s = None
                link.latency_s = _LOOPBACK_LATENCY_S if one == other else self._latency_s
        for pipe, ends in list(self._pipes.items()):
            if source is None or set(ends) == {source, target}:
                pipe.healed()

    def partition(self, *groups: Iterable[str]) -> None:
        """Hosts hear only their own group. A host in no group hears everyone."""
        sides = [list(group) for group in groups]
        for index, side in enumerate(sides):
            for other in sides[index + 1 :]:
                for one in side:
                    for two in other:
                        self.cut(one, two)

    def slow(self, source: str, target: str, *, latency_s: tuple[float, float] | None = None,
             bytes_per_s: float | None = None) -> None:  # fmt: skip
        self.loop.trace(f"slow {source} {target} {latency_s} {bytes_per_s}")
        link = self.link(source, target)
        if latency_s is not None:
            link.latency_s = latency_s
        link.bytes_per_s = bytes_per_s

    def delay_next(self, source: str, target: str, seconds: float) -> None:
        """The next segment arrives that much later, and what is behind it on the same connection with it."""
        self.loop.trace(f"delay {source} {target} {seconds}")
        self.link(source, target).next_delay_s = seconds

    def refuse(self, source: str, target: str) -> None:
        """New connections are refused; those there are go on."""
        self.loop.trace(f"refuse {source} {target}")
        self.link(source, target).refuses = True

    # --- faults on connections ---

    def reset(self, one: str, other: str) -> int:
        """RST to both ends of every connection between two hosts; the number of connections."""
        return sum(
            self._reset_pair(transport)
            for transport in list(self._transports)
            if (transport.host.name, self._host_name(transport.peer)) == (one, other)
        )

    def _reset_pair(self, transport: SimTransport) -> int:
        self.loop.trace(f"reset {transport!r}")
        for end in list(self._transports):
            if (end.name, end.peer) in ((transport.name, transport.peer), (transport.peer, transport.name)):
                end.reset_by_network()
        return 1

    def half_open(self, forgetting: str, other: str) -> int:
        """`forgetting` loses its ends without a word; `other` finds out when it next sends."""
        ends = [
            transport
            for transport in list(self._transports)
            if (transport.host.name, self._host_name(transport.peer)) == (forgetting, other)
        ]
        for transport in ends:
            self.loop.trace(f"half open {transport!r}")
            transport.forget_silently()
        return len(ends)

    def connections(self, host: str) -> list[SimTransport]:
        return [transport for transport in self._transports if transport.host.name == host]

    # --- faults on hosts and processes ---

    def process_died(self, process: Process) -> None:
        host = self.host(process.host)
        for server in list(host.listeners.values()):
            if server.process is process:
                server.close()
        for transport in list(self._transports):
            if transport.process is process:
                transport.process_died(politely=self.dice.chance(0.5))

    def host_lost_power(self, name: str) -> None:
        host = self.host(name)
        host.is_up = False
        host.listeners.clear()
        for transport in self.connections(name):
            transport.host_lost_power()

    def host_has_power(self, name: str) -> None:
        self.host(name).is_up = True
        for pipe, ends in list(self._pipes.items()):
            if name in ends:
                pipe.healed()

    def _host_name(self, address: tuple[str, int]) -> str:
        return next(host.name for host in self._hosts.values() if host.address == address[0])

    def _pipes_between(self, one: str, other: str) -> Iterator[Pipe]:
        return iter([pipe for pipe, ends in self._pipes.items() if set(ends) == {one, other}])


def _accept(server: SimServer, transport: SimTransport) -> None:
    transport.open(server.factory())


class _Attempt:
    """One connect(): a SYN on its way, then a socket or an error."""

    def __init__(
        self, network: SimNetwork, here: SimHost, process: Process | None, target: SimHost, port: int
    ) -> None:
        self._network = network
        self._here = here
        self._process = process
        self._target = target
        self._port = port
        self._outcome: asyncio.Future[SimTransport] = network.loop.create_future()

    async def wait(self, timeout_s: float) -> SimTransport:
        network = self._network
        deadline = network.loop.call_later(timeout_s, self._time_out)
        self._send()
        try:
            return await self._outcome
        except asyncio.CancelledError:
            if self._outcome.done() and not self._outcome.cancelled() and self._outcome.exception() is None:
                self._outcome.result().abort()
            raise
        finally:
            deadline.cancel()

    def _send(self) -> None:
        link = self._network.link(self._here.name, self._target.name)
        self._network.at(self._network.now_s() + link.draw_delay_s(self._network.dice, 0), self._arrived)

    def _arrived(self) -> None:
        network = self._network
        if self._outcome.done():
            return
        forward = network.link(self._here.name, self._target.name)
        if forward.is_cut or not self._target.is_up:
            # The SYN is sent again every second until the connect times out.
            network.at(network.now_s() + 1.0, self._arrived)
            return
        server = self._target.listeners.get(self._port)
        if server is None or forward.refuses:
            problem = ConnectionRefusedError(
                errno.ECONNREFUSED, f"Connect call failed ({self._target.name}, {self._port})"
            )
            self._answer(problem)
        else:
            self._answer(network.connect(self._here, self._process, server, self._target))

    def _answer(self, answer: SimTransport | Exception) -> None:
        network = self._network
        backward = network.link(self._target.name, self._here.name)

        def deliver() -> None:
            if self._outcome.done():
                # Nobody waits any more: the socket that was made is closed again, and the server hears it.
                if isinstance(answer, SimTransport):
                    answer.abort()
            elif backward.is_cut:
                network.at(network.now_s() + 1.0, deliver)
            elif isinstance(answer, SimTransport):
                self._outcome.set_result(answer)
            else:
                self._outcome.set_exception(answer)

        network.at(network.now_s() + backward.draw_delay_s(network.dice, 0), deliver)

    def _time_out(self) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(
                TimeoutError(errno.ETIMEDOUT, f"Connect call to {self._target.name} timed out")
            )
