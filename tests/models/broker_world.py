"""A whole broker inside the test process, its door without sockets: frames go straight to a connection, answers are counted."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from raw_client import encode_request, produce_request

from headrace.broker.runtime import SystemRuntime
from headrace.kafka.connection import Connection
from headrace.log.memory_fs import MemoryFileSystem
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.records.build import Record, build_batch
from headrace.wire.api import ApiKey
from headrace.wire.codec import encode
from headrace.wire.framing import RequestHeader
from headrace.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest


class Complaints(logging.Handler):
    """What a broker must never log, whatever it is sent."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))

    def __enter__(self) -> Complaints:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)


class Sink(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.answers = 0
        self.last = b""
        self.answered = asyncio.Event()
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        self.answers += 1
        self.last = bytes(data)
        self.answered.set()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


class World:
    async def start(self) -> World:
        self._runtime = SystemRuntime(MemoryFileSystem())
        # Group session timers and the like fire on their own; a short delay keeps rebalances short.
        settings = Settings(kafka_port=0, http_port=0, ephemeral=True, data_dir="/fuzz", offsets_partitions=2)
        self._waiting: list[Connection] = []
        self.node = Node(settings, self._runtime)
        await self.node.start()
        self.connection, self.sink = self.connect()
        await self._create_topics()
        return self

    def connect(self) -> tuple[Connection, Sink]:
        sink = Sink()
        connection = Connection(self.node.doors.kafka, 10**6)
        connection.connection_made(sink)
        return connection, sink

    async def _create_topics(self) -> None:
        compact = [CreatableTopicConfig("cleanup.policy", "compact")]
        zstd = [CreatableTopicConfig("compression.type", "zstd")]
        topics = [
            CreatableTopic("fuzz-plain", 2, 1),
            CreatableTopic("fuzz-compact", 1, 1, configs=compact),
            CreatableTopic("fuzz-zstd", 1, 1, configs=zstd),
        ]
        self.feed(encode_request(RequestHeader(19, 5, 1, None), encode(CreateTopicsRequest(topics), 5)))
        await self.sink.answered.wait()

    def feed(self, data: bytes) -> None:
        """Bytes arrive. A connection that the broker closed is replaced, as a client would."""
        if self.sink.aborted:
            self.connection.connection_lost(None)
            self.connection, self.sink = self.connect()
        elif self.connection._busy or len(self.connection.slots) > 20:
            # A group join or a long poll may take its time; others do not wait for it, and neither does the fuzz.
            self._waiting.append(self.connection)
            if len(self._waiting) > 30:
                self._waiting.pop(0).connection_lost(None)
            self.connection, self.sink = self.connect()
        self.feed_to(self.connection, self.sink, data)

    @staticmethod
    def feed_to(connection: Connection, sink: Sink, data: bytes) -> None:
        while data and not sink.aborted:
            room = connection.get_buffer(-1)
            count = min(len(room), len(data))
            if count == 0:
                return
            room[:count] = data[:count]
            connection.buffer_updated(count)
            data = data[count:]

    @property
    def executed(self) -> int:
        """Requests that got as far as a handler."""
        return sum(self.node.doors.kafka.dispatcher.requests.values())

    async def is_healthy(self) -> bool:
        """A well-behaved client gets through, right now."""
        connection, sink = self.connect()
        self.connection, kept = connection, (self.connection, self.sink)
        self.sink = sink
        batch = bytearray(build_batch([Record(b"k", b"healthy")], wall_ms=self._runtime.clock.wall_ms()))
        body = encode(produce_request("fuzz-plain", batch, acks=-1), 9)
        self.feed(encode_request(RequestHeader(ApiKey.PRODUCE, 9, 5, "healthy"), body))
        async with asyncio.timeout(120):
            await sink.answered.wait()
        connection.connection_lost(None)
        self.connection, self.sink = kept
        return b"fuzz-plain" in sink.last

    async def stop(self) -> None:
        await self.node.stop()
        await self._runtime.close()
