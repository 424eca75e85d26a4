"""Driver: a port that takes TLS and plain connections alike; the first byte tells which it is (A53, A60).

0x16 begins a TLS handshake and nothing else here: as the length of a Kafka frame it would claim 369 MB, and methods of HTTP are
letters. The byte is looked at and left in the socket; then the connection is handed to asyncio with or without TLS. Who connects and says
nothing costs a socket and no task, and is closed after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

from headrace.net.tls import HANDSHAKE_S

log = logging.getLogger(__name__)

_TLS_HANDSHAKE = 0x16
MOST_SILENT = 1_000
MOST_HANDSHAKES = 100
_ACCEPTED_AT_ONCE = 100

Factory = Callable[[], asyncio.BaseProtocol]
Spawn = Callable[..., object]


class Doorway:
    def __init__(
        self,
        factory: Factory,
        tls: Callable[[], ssl.SSLContext],
        takes_plain: Callable[[str], bool],
        spawn: Spawn,
    ) -> None:
        """`takes_plain`: from this address. `spawn` starts a task that ends by itself."""
        self._factory = factory
        self._tls = tls
        self._takes_plain = takes_plain
        self._spawn = spawn
        self._listeners: list[socket.socket] = []
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        self._handshakes = asyncio.Semaphore(MOST_HANDSHAKES)
        self.plain = 0
        self.secure = 0
        self.failed = 0

    async def bind(self, host: str, port: int, backlog: int = 1024) -> tuple[str, int]:
        """The address that was bound; connections wait until `start`."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                listener = socket.socket(family, kind, protocol)
                self._listeners.append(listener)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                # All of a host's addresses under one port, whichever the system chose for the first.
                listener.bind((address[0], port, *address[2:]))
                port = listener.getsockname()[1]
                listener.setblocking(False)
                listener.listen(backlog)
        except OSError:
            self.close()
            raise
        bound = self._listeners[0].getsockname()
        return str(bound[0]), int(bound[1])

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        self._listeners.clear()
        for connection in list(self._silent):
            self._forget(connection)
            connection.close()

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:  # no file descriptor is left: others must go first
                log.warning("a connection could not be accepted: %s", problem)
                return
            connection.setblocking(False)
            if len(self._silent) >= MOST_SILENT:
                self._close_silent(next(iter(self._silent)))
            self._silent[connection] = loop.call_later(HANDSHAKE_S, self._close_silent, connection)
            loop.add_reader(connection, self._first_byte, connection)

    def _close_silent(self, connection: socket.socket) -> None:
        if connection in self._silent:
            self._forget(connection)
            connection.close()

    def _forget(self, connection: socket.socket) -> None:
        timer = self._silent.pop(connection, None)
        if timer is not None:
            timer.cancel()
        asyncio.get_running_loop().remove_reader(connection)

    def _first_byte(self, connection: socket.socket) -> None:
        try:
            first = connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        self._forget(connection)
        if not first:
            connection.close()
            return
        self._spawn(self._begin(connection, first[0] == _TLS_HANDSHAKE), "accept a connection")

    async def _begin(self, connection: socket.socket, secure: bool) -> None:
        loop = asyncio.get_running_loop()
        host = ""
        try:
            host = str(connection.getpeername()[0])
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not secure:
                if not self._takes_plain(host):
                    log.info("closing %s: it does not speak TLS", host)
                    connection.close()
                    return
                self.plain += 1
                await loop.connect_accepted_socket(self._factory, connection)
                return
            async with self._handshakes:
                await loop.connect_accepted_socket(
                    self._factory, connection, ssl=self._tls(), ssl_handshake_timeout=HANDSHAKE_S
                )
            self.secure += 1
        except (OSError, ssl.SSLError, TimeoutError) as problem:
            self.failed += 1
            log.info("a connection from %s did not come about: %s", host or "nowhere", problem)
            connection.close()
