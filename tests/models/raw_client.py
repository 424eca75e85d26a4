"""A Kafka client on one bare socket, for what no real client would send: it says exactly what it is told to."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from headrace.core.ids import ZERO_UUID
from headrace.core.ports import Buffer
from headrace.wire.api import API, ApiKey
from headrace.wire.codec import decode, encode
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.framing import RequestHeader, decode_response_header, encode_request_frame
from headrace.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.produce import ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceTopic


def encode_request(header: RequestHeader, body: Buffer) -> bytes:
    return b"".join(encode_request_frame(header, [body]))


class RawClient:
    def __init__(
        self, port: int, timeout_s: float = 240.0, client_id: str = "raw", host: str = "127.0.0.1"
    ) -> None:
        """`host`: from which address of this machine it calls."""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s, (host, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._client_id = client_id

    def call(self, key: int, version: int, request: object) -> Any:
        self.send(key, version, request)
        return self.answer(key, version)

    def send(self, key: int, version: int, request: object) -> None:
        self.socket.sendall(self.frame(key, version, encode(request, version)))

    def frame(self, key: int, version: int, body: Buffer) -> bytes:
        self._correlation_id += 1
        return encode_request(RequestHeader(key, version, self._correlation_id, self._client_id), body)

    def answer(self, key: int, version: int) -> Any:
        frame = self.read_frame()
        _, position = decode_response_header(frame, key, version)
        return decode(API[key].response, version, frame, position)

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.read(4))
        return self.read(size)

    def read(self, size: int) -> bytes:
        """Raises ConnectionError when the broker has closed the connection."""
        parts = []
        while size:
            piece = self.socket.recv(min(size, 1 << 20))
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            parts.append(piece)
            size -= len(piece)
        return b"".join(parts)

    def is_closed_without_a_word(self, timeout_s: float = 240.0) -> bool:
        """The broker closes, and has answered nothing: a connection that proves nothing is closed some time, answered or not."""
        self.socket.settimeout(timeout_s)
        try:
            return not self.socket.recv(65536)
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    def is_closed_by_broker(self, timeout_s: float = 240.0) -> bool:
        self.socket.settimeout(timeout_s)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        rows = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        topic = CreatableTopic(name, partitions, 1, configs=rows)
        response = self.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest([topic]))
        assert response.topics[0].error_code == 0, response

    def produce(
        self, topic: str, batch: Buffer, *, partition: int = 0, acks: int = -1, version: int = 9
    ) -> ProducePartitionResponse:
        """Answered when it can be read: with acks=1 the high watermark comes when it comes, and a test that means that says so."""
        response = self.call(ApiKey.PRODUCE, version, produce_request(topic, batch, partition, acks))
        row: ProducePartitionResponse = response.topics[0].partitions[0]
        return row

    def fetch(
        self, topic: str, offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 0, version: int = 11
    ) -> Any:
        request = fetch_request([(topic, 0, offset)], max_bytes=max_bytes, max_wait_ms=max_wait_ms)
        return self.call(ApiKey.FETCH, version, request).topics[0].partitions[0]

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def produce_request(topic: str, batch: Buffer, partition: int = 0, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        None, acks, 10_000, [ProduceTopic(topic, ZERO_UUID, [ProducePartition(partition, batch)])]
    )


def fetch_request(
    wanted: Sequence[tuple[str, int, int]], *, max_bytes: int = 1 << 20, max_wait_ms: int = 0
) -> FetchRequest:
    topics = [
        FetchTopic(topic, ZERO_UUID, [FetchPartition(partition, -1, offset, -1, -1, max_bytes)])
        for topic, partition, offset in wanted
    ]
    return FetchRequest(-1, -1, max_wait_ms, 1, max_bytes, 0, 0, -1, topics)
