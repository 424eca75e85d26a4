"""Load generators that cost much less than the broker they load, and what the broker itself used meanwhile."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka as ck

from headrace.core.ids import ZERO_UUID
from headrace.core.ports import Buffer
from headrace.records.batch import scan
from headrace.records.build import Record, build_batch
from headrace.wire.api import ApiKey
from headrace.wire.codec import encode
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.fetch_response import decode_fetch_response
from headrace.wire.framing import RequestHeader, encode_request_frame
from headrace.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Used:
    """What one process has used so far."""

    cpu_s: float
    rss_bytes: int

    @classmethod
    def by(cls, pid: int) -> Used:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls((int(fields[11]) + int(fields[12])) / TICKS, pages * os.sysconf("SC_PAGE_SIZE"))


@dataclass(frozen=True)
class Measured:
    count: int
    size: int
    wall_s: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        return self.count / self.wall_s

    @property
    def mb_per_s(self) -> float:
        return self.size / self.wall_s / 1e6

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / (self.size / 1e9)

    @property
    def us_per_request(self) -> float:
        return self.cpu_s / self.count * 1e6


def measure(pid: int, work: Callable[[], tuple[int, int]]) -> Measured:
    """Run `work`, which says how many things of how many bytes it did."""
    before, started = Used.by(pid).cpu_s, time.perf_counter()
    count, size = work()
    wall_s = time.perf_counter() - started
    return Measured(count, size, wall_s, Used.by(pid).cpu_s - before)


def produce(bootstrap: str, topic: str, count: int, size: int, **config: object) -> tuple[int, int]:
    """`count` messages of `size` bytes through librdkafka, in batches of up to 1 MB."""
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1_000_000, "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 400_000, "acks": 1, **config,
        }
    )  # fmt: skip
    value = os.urandom(size)
    failed = 0

    def delivered(error: object, _: object) -> None:
        nonlocal failed
        failed += error is not None

    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(120) or failed:
        raise RuntimeError(f"{failed} messages were not delivered")
    return count, count * size


def consume(bootstrap: str, topic: str, count: int) -> tuple[int, int]:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": f"bench-{time.time_ns()}", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "queued.max.messages.kbytes": 200_000, "fetch.max.bytes": 50_000_000,
            "max.partition.fetch.bytes": 10_000_000,
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    got = size = 0
    while got < count:
        for message in consumer.consume(10_000, 5.0):
            if message.error() is None:
                got += 1
                size += len(message)
    consumer.close()
    return got, size


def produce_frame(topic: str, acks: int, size: int = 100, version: int = 9) -> bytes:
    batch = build_batch([Record(b"key", b"x" * size)], wall_ms=int(time.time() * 1000))
    request = ProduceRequest(
        None, acks, 30_000, [ProduceTopic(topic, ZERO_UUID, [ProducePartition(0, batch)])]
    )
    header = RequestHeader(ApiKey.PRODUCE, version, 7, "bench")
    return b"".join(encode_request_frame(header, [encode(request, version)]))


def fetch_frame(topic: str, offset: int, max_bytes: int, version: int = 11) -> bytes:
    part = FetchPartition(0, -1, offset, -1, -1, max_bytes)
    request = FetchRequest(-1, -1, 500, 1, max_bytes, 0, 0, -1, [FetchTopic(topic, ZERO_UUID, [part])])
    header = RequestHeader(ApiKey.FETCH, version, 7, "bench")
    return b"".join(encode_request_frame(header, [encode(request, version)]))


class Pipeline:
    """One socket with many requests in flight. All frames are the same, and so are the sizes of the answers."""

    def __init__(self, port: int, frame: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frame = frame
        self.socket.sendall(frame)
        self.answer = self._read_one()

    def _read_one(self) -> bytes:
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            piece = self.socket.recv(1 << 20)
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            data += piece
        return data

    def run(self, count: int, in_flight: int) -> tuple[int, int]:
        answer_size = len(self.answer)
        burst = self._frame * (in_flight // 2)
        sent = received = 0
        buffer = bytearray(1 << 20)
        while received < count * answer_size:
            answered = received // answer_size
            if sent < count and sent - answered <= in_flight // 2:
                self.socket.sendall(burst)
                sent += in_flight // 2
            received += self.socket.recv_into(buffer)
        return count, count * len(self._frame)

    def latencies(self, count: int) -> list[float]:
        """Seconds per request, one at a time."""
        found = []
        answer_size = len(self.answer)
        for _ in range(count):
            started = time.perf_counter()
            self.socket.sendall(self._frame)
            got = 0
            while got < answer_size:
                select.select([self.socket], [], [])
                got += len(self.socket.recv(65536))
            found.append(time.perf_counter() - started)
        return sorted(found)

    def close(self) -> None:
        self.socket.close()


class Crowd:
    """Many sockets with one request in flight on each, as many clients that wait for each answer."""

    def __init__(self, lines: Sequence[tuple[socket.socket, bytes]], noise: bytes = b"") -> None:
        """Connections and what is sent on each. `noise` is what the server says unasked: it answers nothing."""
        self._poll = select.epoll()
        self._noise = noise
        self._lines = {}
        for each, frame in lines:
            self._lines[each.fileno()] = each, frame
            self._poll.register(each, select.EPOLLIN)

    @classmethod
    def of(cls, port: int, frame: bytes, count: int) -> Crowd:
        """So many that all send the same to a broker, after one request each that must be answered."""
        return cls([(Pipeline(port, frame).socket, frame) for _ in range(count)])

    def run(self, count: int) -> tuple[int, int]:
        """Answers are small enough to arrive in one piece."""
        lines, noise = self._lines, self._noise
        sent = done = size = 0
        for each, frame in lines.values():
            each.send(frame)
            sent += 1
        while done < sent:
            for number, _ in self._poll.poll():
                each, frame = lines[number]
                answer = each.recv(65536)
                if answer == noise:
                    if not answer:
                        raise ConnectionResetError("the broker closed the connection")
                    continue
                done += 1
                size += len(frame)
                if sent < count:
                    each.send(frame)
                    sent += 1
        return done, size

    def close(self) -> None:
        self._poll.close()
        for each, _ in self._lines.values():
            each.close()


class Drain:
    """One socket that fetches a partition from its first offset on, and looks only at where each answer ends."""

    def __init__(self, port: int, topic: str, max_bytes: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._topic = topic
        self._max_bytes = max_bytes
        self._buffer = bytearray(max_bytes + (2 << 20))

    def run(self, size: int) -> tuple[int, int]:
        """At least so many bytes; from the beginning again when there are no more."""
        got = requests = offset = 0
        view = memoryview(self._buffer)
        while got < size:
            self._socket.sendall(fetch_frame(self._topic, offset, self._max_bytes))
            self._fill(view[:4])
            (length,) = struct.unpack_from(">i", view)
            self._fill(view[:length])
            response = decode_fetch_response(view[4:length], 0, 11)
            records = response.topics[0].partitions[0].records or b""
            requests += 1
            got += len(records)
            offset = _next_offset(records) if len(records) else 0
        return requests, got

    def _fill(self, view: memoryview) -> None:
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            view = view[count:]

    def close(self) -> None:
        self._socket.close()


def _next_offset(records: Buffer) -> int:
    following = 0
    for _, header in scan(records):
        following = header.next_offset
    return following


def percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
