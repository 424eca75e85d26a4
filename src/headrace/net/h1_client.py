"""Driver: a small HTTP/1.1 client with a keep-alive pool, for etcd, webhooks and the CLI.

Every call has a deadline, every response a size limit, and every failure says whether the request may have reached the
server (`HttpFailure.sent`): that is the difference between "did not happen" and "unknown" (R5). It follows no redirects,
reads no proxy settings, and can connect to a given address under the name's Host and SNI (X22).
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

from headrace.core.limits import MIB
from headrace.net.h1_connection import (
    ClientResponse,
    H1Connection,
    HttpFailure,
    HttpTimeout,
    ResponseTooLarge,
)

__all__ = [
    "ClientResponse",
    "ClientSettings",
    "H1Client",
    "HttpFailure",
    "HttpTimeout",
    "Origin",
    "ResponseStream",
    "ResponseTooLarge",
]

_MAX_POOLS = 1000
"""Origins remembered at once; webhooks can have many."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]++")
_LINE_TEXT = re.compile(r"[\t\x20-\x7e\x80-\xff]*+")
_PATH = re.compile(r"/[\x21-\x7e]*+")


class Origin(NamedTuple):
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    address: str | None = None
    """Connect to this instead of resolving `host`, which stays the name in Host and SNI."""

    @property
    def authority(self) -> str:
        """As in the Host header: the default port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    max_connections_per_origin: int = 32
    """Calls above it wait for a connection, within their deadline. Streams are not counted."""
    idle_s: float = 30.0
    connect_timeout_s: float = 2.0
    max_body_bytes: int = 16 * MIB


class ResponseStream:
    """A response read as it arrives. It owns its connection; close it, or use it as a context."""

    def __init__(self, connection: H1Connection) -> None:
        self._connection = connection
        self.status = connection.status
        self.headers = connection.headers

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises HttpFailure when the connection breaks. No deadline of its own."""
        return await self._connection.next_chunk()

    def close(self) -> None:
        self._connection.abort()

    def __enter__(self) -> ResponseStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Pool:
    """The connections to one origin."""

    __slots__ = ("busy", "idle", "slots")

    def __init__(self, limit: int) -> None:
        self.slots = asyncio.Semaphore(limit)
        self.busy = 0
        self.idle: list[H1Connection] = []


class H1Client:
    def __init__(self, settings: ClientSettings | None = None) -> None:
        self._settings = settings or ClientSettings()
        self._pools: dict[Origin, _Pool] = {}
        self._open: set[H1Connection] = set()
        self._closed = False

    async def request(
        self,
        origin: Origin,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout_s: float,
        max_body_bytes: int | None = None,
    ) -> ClientResponse:
        message = encode_request(origin, method, path, headers or {}, body)
        limit = self._settings.max_body_bytes if max_body_bytes is None else max_body_bytes
        pool = self._pool(origin)
        pool.busy += 1
        sent = False
        connection: H1Connection | None = None
        try:
            async with asyncio.timeout(timeout_s), pool.slots:
                connection = self._take_idle(pool) or await self._connect(origin)
                sent = True
                connection.send(message, max_body_bytes=limit)
                content = await connection.wait_body()
                response = ClientResponse(connection.status, connection.headers, content)
                if connection.reusable and not self._closed:
                    connection.release(asyncio.get_running_loop().time())
                    pool.idle.append(connection)
                    connection = None
                return response
        except TimeoutError as error:
            raise HttpTimeout(f"{origin.authority} did not answer in {timeout_s:g} s", sent=sent) from error
        finally:
            pool.busy -= 1
            if connection is not None:
                self._discard(connection)

    async def open_stream(
        self,
        origin: Origin,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout_s: float,
    ) -> ResponseStream:
        """Returns when the headers are there; the deadline is theirs. A stream has a connection to itself."""
        message = encode_request(origin, method, path, headers or {}, body)
        connection: H1Connection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connect(origin)
                connection.send(message, max_body_bytes=None)
                await connection.wait_headers()
        except TimeoutError as error:
            if connection is not None:
                self._discard(connection)
            raise HttpTimeout(
                f"{origin.authority} did not answer in {timeout_s:g} s", sent=connection is not None
            ) from error
        except BaseException:
            if connection is not None:
                self._discard(connection)
            raise
        self._open = {other for other in self._open if other.is_open}
        return ResponseStream(connection)

    async def close(self) -> None:
        """Abort everything; calls under way fail."""
        self._closed = True
        for connection in self._open:
            connection.abort()
        self._open.clear()
        self._pools.clear()
        await asyncio.sleep(0)  # let the transports deliver connection_lost

    def _pool(self, origin: Origin) -> _Pool:
        pool = self._pools.get(origin)
        if pool is None:
            if len(self._pools) >= _MAX_POOLS:
                self._drop_unused_pools()
            pool = self._pools[origin] = _Pool(self._settings.max_connections_per_origin)
        return pool

    def _drop_unused_pools(self) -> None:
        for origin, pool in list(self._pools.items()):
            if not pool.busy:
                for connection in pool.idle:
                    self._discard(connection)
                del self._pools[origin]

    def _take_idle(self, pool: _Pool) -> H1Connection | None:
        oldest = asyncio.get_running_loop().time() - self._settings.idle_s
        while pool.idle:
            connection = pool.idle.pop()
            if connection.is_open and connection.idle_since >= oldest:
                return connection
            self._discard(connection)
        return None

    async def _connect(self, origin: Origin) -> H1Connection:
        if self._closed:
            raise HttpFailure("the client is closed", sent=False)
        loop = asyncio.get_running_loop()
        limit = self._settings.connect_timeout_s
        try:
            async with asyncio.timeout(limit):
                _, connection = await loop.create_connection(
                    H1Connection,
                    origin.address or origin.host,
                    origin.port,
                    ssl=origin.tls,
                    server_hostname=origin.host if origin.tls is not None else None,
                )
        except TimeoutError as error:
            raise HttpTimeout(f"no connection to {origin.authority} in {limit:g} s", sent=False) from error
        except (OSError, ssl.CertificateError) as error:
            raise HttpFailure(f"no connection to {origin.authority}: {error}", sent=False) from error
        self._open.add(connection)
        return connection

    def _discard(self, connection: H1Connection) -> None:
        self._open.discard(connection)
        connection.abort()


def encode_request(origin: Origin, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Raises ValueError for anything that could smuggle a second header or request."""
    if not _TOKEN.fullmatch(method) or method in ("HEAD", "CONNECT"):
        raise ValueError(f"bad method {method!r}")
    if not _PATH.fullmatch(path):
        raise ValueError(f"bad path {path[:80]!r}")
    lines = [f"{method} {path} HTTP/1.1", f"Host: {origin.authority}", f"Content-Length: {len(body)}"]
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or not _LINE_TEXT.fullmatch(value):
            raise ValueError(f"bad header {name[:80]!r}")
        if name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
            raise ValueError(f"{name} is not the caller's to set")
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
