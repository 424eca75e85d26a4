"""Driver: `Idempotency-Key` on publishing to a topic: the same key within the window is the same record.

The key travels with the record as a header, so the log itself is what is remembered: a broker that begins to lead a
partition reads back what was published there within the window, once, when the first key arrives. In between it keeps the
keys in memory, a bounded number per partition. Whether an attempt that failed was written after all is also for the log to
say: after one of those it is read back again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.placement.placement import Placement
from headrace.broker.queueing.routing.peer_calls import Sent
from headrace.broker.queueing.routing.wrong_broker import WrongBroker
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition, java_string_hash
from headrace.core.limits import MIB
from headrace.core.ports import Buffer, Clock
from headrace.records.batch import BatchHeader, CorruptBatch, scan
from headrace.records.build import Record
from headrace.records.compression import Codec
from headrace.records.read import iter_records

WINDOW_MS = 10 * 60 * 1000
MAX_KEYS = 100_000
MAX_KEY_CHARS = 256
CHUNK_BYTES = MIB
COMMIT_MS = 30_000
_MARK = names.DEDUP_ID.encode()


class _Memory:
    """Of one partition under one leadership. A topic made again under the same name begins with the same epoch."""

    __slots__ = ("keys", "loading", "term")

    def __init__(self, term: tuple[bytes, int]) -> None:
        self.term = term
        """Topic id and leader epoch."""
        self.keys: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        """Key -> offset and when it was published."""
        self.loading: asyncio.Future[None] | None = None

    def remember(self, key: bytes, offset: int, wall_ms: int) -> None:
        self.keys[key] = (offset, wall_ms)
        self.keys.move_to_end(key)
        if len(self.keys) > MAX_KEYS:
            self.keys.popitem(last=False)

    def find(self, key: bytes, wall_ms: int) -> int | None:
        offset, published_ms = self.keys.get(key, (-1, 0))
        return offset if offset >= 0 and wall_ms - published_ms <= WINDOW_MS else None


class Once:
    def __init__(
        self,
        clock: Clock,
        image: ClusterImage,
        partitions: dict[tuple[str, int], Partition],
        placement: Placement,
    ) -> None:
        self._clock = clock
        self._image = image
        self._partitions = partitions
        self._placement = placement
        self._memories: dict[TopicPartition, _Memory] = {}
        self._running: dict[tuple[TopicPartition, bytes], asyncio.Future[Sent]] = {}

    def partition(self, topic: str, key: str) -> int:
        """Whoever repeats a record without a key of its own has to find the one it repeats."""
        known = self._image.topic(topic)
        count = len(known.partitions) if known is not None else 1
        return (java_string_hash(key) & 0x7FFFFFFF) % count

    async def send(self, tp: TopicPartition, record: Record, key: str) -> Sent:
        """Raises WrongBroker, and has done nothing, when another broker leads the partition."""
        if not key.isprintable() or len(key) > MAX_KEY_CHARS:
            raise HeadraceError(
                ErrorKind.INVALID_REQUEST,
                f"an Idempotency-Key has up to {MAX_KEY_CHARS} printable characters",
            )
        partition = self._leading(tp)
        id_ = key.encode("latin-1", "replace")
        while (running := self._running.get((tp, id_))) is not None:
            await asyncio.wait((running,))
        # A client that gives up in the middle is the one that comes back with the same key: this goes on without it.
        mine = self._running[tp, id_] = asyncio.ensure_future(self._send(tp, partition, record, id_))
        mine.add_done_callback(lambda _: self._running.pop((tp, id_), None))
        return await asyncio.shield(mine)

    async def _send(self, tp: TopicPartition, partition: Partition, record: Record, id_: bytes) -> Sent:
        memory = await self._memory(tp, partition)
        wall_ms = self._clock.wall_ms()
        found = memory.find(id_, wall_ms)
        if found is not None:
            await self._committed(partition, found + 1)
            message_id = names.encode_message_id(partition.topic_id, tp.partition, found)
            return Sent(message_id, tp.partition, found, True)
        try:
            marked = record._replace(headers=(*record.headers, (names.DEDUP_ID, id_)))
            sent = await self._placement.write_here(tp.topic, tp.partition, marked)
            memory.remember(id_, sent.offset, wall_ms)
            return sent
        except HeadraceError:
            self._memories.pop(tp, None)  # it may be in the log nevertheless
            raise

    def _leading(self, tp: TopicPartition) -> Partition:
        partition = self._partitions.get(tp)
        if partition is not None and partition.is_leader:
            return partition
        leader = self._image.leader(*tp)
        if leader is None or leader.id == self._image.broker_id:
            raise HeadraceError(ErrorKind.LEADER_NOT_AVAILABLE, f"{tp} has no leader right now")
        raise WrongBroker(leader.id, str(tp))

    async def _memory(self, tp: TopicPartition, partition: Partition) -> _Memory:
        memory, term = self._memories.get(tp), (partition.topic_id, partition.leader_epoch)
        if memory is None or memory.term != term:
            memory = self._memories[tp] = _Memory(term)
            memory.loading = asyncio.ensure_future(self._load(memory, partition))
        if memory.loading is not None:
            try:
                await asyncio.shield(memory.loading)
            except HeadraceError:
                self._memories.pop(tp, None)
                raise
            memory.loading = None
        return memory

    async def _load(self, memory: _Memory, partition: Partition) -> None:
        await partition.wait_leader_ready()
        since_ms = self._clock.wall_ms() - WINDOW_MS
        end = partition.log.end_offset
        first = partition.log.offset_for_time(since_ms, end)
        position = end if first is None else first.offset
        await self._committed(partition, end)
        while position < end and partition.is_leader:
            data = partition.read_all(position, CHUNK_BYTES)
            if not data:
                break
            for at, header in scan(data):
                if self._may_have_keys(partition, data, at, header):
                    try:
                        for record in iter_records(data, at):
                            key = names.header(record.headers, names.DEDUP_ID)
                            if key is not None:
                                memory.remember(key, record.offset, record.timestamp)
                    except CorruptBatch as problem:
                        partition.step_over(header.base_offset, problem)
                position = header.next_offset
            await asyncio.sleep(0)

    def _may_have_keys(self, partition: Partition, data: Buffer, at: int, header: BatchHeader) -> bool:
        """What REST publishes is compressed only where the topic asks for it, and then has to be opened to be seen."""
        if header.is_control:
            return False
        if header.codec != Codec.NONE:
            return partition.config.compression_type != "producer"
        return _MARK in bytes(memoryview(data)[at : at + header.size])

    async def _committed(self, partition: Partition, end: int) -> None:
        """An answer means what it meant the first time: the record is committed."""
        if partition.high_watermark >= end:
            return
        settled: asyncio.Future[ErrorKind] = asyncio.get_running_loop().create_future()
        deadline_ms = self._clock.now_ms() + COMMIT_MS
        partition.when_committed(end, deadline_ms, settled.set_result)
        kind = await settled
        if kind is not ErrorKind.NONE:
            raise HeadraceError(kind, "the record was not committed in time")
