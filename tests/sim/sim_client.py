"""A small Kafka client for simulations: what it was told is what the checker holds the broker to."""

from __future__ import annotations

import asyncio

from headrace.broker.peer import PeerConnection, PeerLost
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.core.limits import MIB
from headrace.records.batch import scan
from headrace.records.build import Record, build_batch
from headrace.records.read import read_records
from headrace.wire.api import ApiKey
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from headrace.wire.fetch_response import decode_fetch_response
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)

RETRY_S = 0.05


class SimClient:
    """Retries until it is answered, like a real idempotent producer: same sequence, same batch."""

    def __init__(self, address: str, port: int, *, idempotent: bool = True) -> None:
        self._idempotent = idempotent
        self._address = address
        self._port = port
        self._connection: PeerConnection | None = None
        self._producer_id = -1
        self._sequence = 0
        self.acked: dict[int, bytes] = {}

    async def _connected(self) -> PeerConnection:
        while self._connection is None or self._connection.closed.done():
            try:
                self._connection = await PeerConnection.open(self._address, self._port, "sim")
            except PeerLost:
                await asyncio.sleep(RETRY_S)
        return self._connection

    async def call(self, key: int, version: int, request: object) -> object:
        while True:
            try:
                return await (await self._connected()).call(key, version, request, 5.0)
            except PeerLost:
                self._connection = None

    async def create_topic(self, name: str) -> None:
        topic = CreatableTopic(name, 1, 1)
        while True:
            response = await self.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest([topic]))
            error = response.topics[0].error_code  # type: ignore[attr-defined]
            if error in (ErrorKind.NONE, ErrorKind.TOPIC_ALREADY_EXISTS):
                return
            await asyncio.sleep(RETRY_S)

    async def send(self, topic: str, value: bytes) -> int:
        """The offset the broker acknowledged with acks=all."""
        if self._idempotent and self._producer_id < 0:
            response = await self.call(ApiKey.INIT_PRODUCER_ID, 1, InitProducerIdRequest(None, 60_000))
            self._producer_id = response.producer_id  # type: ignore[attr-defined]
        batch = build_batch(
            [Record(None, value)],
            wall_ms=1_750_000_000_000,
            producer_id=self._producer_id,
            producer_epoch=0 if self._idempotent else -1,
            base_sequence=self._sequence if self._idempotent else -1,
        )
        request = ProduceRequest(
            None, -1, 3_000, [ProduceTopic(topic, ZERO_UUID, [ProducePartition(0, bytearray(batch))])]
        )
        while True:
            try:
                connection = await self._connected()
                frame, at = await connection.exchange(
                    ApiKey.PRODUCE, 9, encode_produce_request(request, 9), 5.0
                )
            except PeerLost:
                self._connection = None
                continue
            row = decode_produce_response(frame, at, 9).topics[0].partitions[0]
            if row.error_code == 0:
                self._sequence += 1
                self.acked[row.base_offset] = value
                return row.base_offset
            await asyncio.sleep(RETRY_S)

    async def read_all(self, topic: str) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset = 0
        while True:
            partition = FetchPartition(0, -1, offset, -1, -1, MIB)
            request = FetchRequest(-1, -1, 100, 1, MIB, 0, 0, -1, [FetchTopic(topic, ZERO_UUID, [partition])])
            try:
                connection = await self._connected()
                frame, at = await connection.exchange(
                    ApiKey.FETCH, 11, [encode_fetch_request(request, 11)], 5.0
                )
            except PeerLost:
                self._connection = None
                continue
            row = decode_fetch_response(frame, at, 11).topics[0].partitions[0]
            if row.error_code:
                assert ErrorKind(row.error_code).info.retriable, ErrorKind(row.error_code)
                await asyncio.sleep(RETRY_S)
                continue
            data = bytes(row.records or b"")  # type: ignore[arg-type]
            if not data:
                return found
            for position, header in scan(data):
                for record in read_records(data, position, max_bytes=MIB):
                    assert record.offset not in found or found[record.offset] == record.value
                    found[record.offset] = record.value or b""
                offset = header.next_offset
