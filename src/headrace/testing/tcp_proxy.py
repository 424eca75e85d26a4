"""Driver: a TCP proxy on loopback that misbehaves on command: cut, black hole, refuse, cut after n bytes.

For tests of reconnection against real servers, where the simulated network does not reach.
"""

from __future__ import annotations

import asyncio
import contextlib

CHUNK_BYTES = 16 * 1024


class TcpProxy:
    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.port = 0
        self.connections = 0
        """Taken since the start."""
        self.refusing = False
        self.cut_after_bytes: int | None = None
        """Reset a connection once this many bytes have come from the server; each connection counts its own."""
        self.cuts = 0
        self.linger_s = 0.0
        """How long the server is not told that a client has left: its last request still gets done."""

    async def start(self) -> TcpProxy:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self.cut()
            await self._server.wait_closed()

    async def cut(self) -> None:
        """Reset every connection."""
        handlers = list(self._handlers)
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    def black_hole(self) -> None:
        """Keep all connections open, also new ones, and carry nothing until `flow`."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    def hang_existing(self) -> None:
        """The connections there are go half open for good; new ones work."""
        self._flowing.clear()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            if not self.refusing:
                self.connections += 1
                await self._carry(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # both ends are reset below; the server's own handler must not log it
        finally:
            self._handlers.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
        flowing = self._flowing
        ways = [
            asyncio.ensure_future(self._pump(reader, upstream_writer, flowing, None)),
            asyncio.ensure_future(self._pump(upstream_reader, writer, flowing, self.cut_after_bytes)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if not ways[1].done():
                await asyncio.wait(ways[1:], timeout=self.linger_s)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            upstream_writer.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        flowing: asyncio.Event,
        limit: int | None,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await flowing.wait()
                if limit is not None:
                    data = data[:limit]
                    limit -= len(data)
                writer.write(data)
                await writer.drain()
                if limit == 0:
                    self.cuts += 1
                    return
