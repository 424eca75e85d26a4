"""Driver: the records of any partition, wherever it is led (C6).

A partition of this broker is read from its log; another one's is asked for at its leader with the Kafka protocol that every
consumer uses, so there is one way to read and it is the one that is tested with clients. What is read is committed and below
the last stable offset: aborted records are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.peers import Peers
from headrace.broker.services import Failures
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.ids import ZERO_UUID, TopicPartition
from headrace.core.limits import KIB, MIB
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer, Clock
from headrace.http.messages import Request
from headrace.http.rest.masking import MaskOf, masks_for
from headrace.log.aborted import AbortedTxn
from headrace.records.batch import BatchHeader, CorruptBatch, scan
from headrace.records.build import Record
from headrace.records.read import iter_records
from headrace.wire.api import ApiKey
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

READ_BYTES = MIB
SMALLEST_READ_BYTES = 64 * KIB
USUAL_RECORD_BYTES = 2 * KIB
REMOTE_POLL_S = 0.2
"""How often a leader elsewhere is asked for news while somebody waits."""
FETCH_VERSION, LIST_VERSION = 12, 7
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
PATIENCE_MS = 3_000
AGAIN_S = 0.05
_PASSING = (ErrorKind.NOT_LEADER_OR_FOLLOWER, ErrorKind.LEADER_NOT_AVAILABLE, ErrorKind.NETWORK_EXCEPTION)
EARLIEST, LATEST = -2, -1


class OffsetBounds(NamedTuple):
    start: int
    end: int
    """The last stable offset: where the next record that can be read will be, or is about to be decided."""


def _end(partition: Partition, isolation: int) -> int:
    return partition.last_stable_offset if isolation == READ_COMMITTED else partition.high_watermark


StepOver = Callable[[int, CorruptBatch], None]
"""Told of a batch whose records can't be read: where it begins, and why (A5)."""


class Chunk(NamedTuple):
    records: list[Record]
    next_offset: int
    """Where to go on; above the last record when batches without one were passed."""


class RecordReader:
    def __init__(
        self,
        clock: Clock,
        image: ClusterImage,
        partitions: dict[tuple[str, int], Partition],
        peers: Peers,
        failures: Failures,
    ) -> None:
        self._clock = clock
        self._image = image
        self._partitions = partitions
        self._peers = peers
        self._failures = failures
        self._masks: MaskOf | None = None

    def seen_by(self, request: Request) -> RecordReader:
        """The same, with what the caller does not see hidden in every record (W19): before any filter looks at it."""
        reader = copy(self)
        reader._masks = masks_for(request, self._image)
        return reader

    def partitions(self, topic: str, chosen: int = -1) -> list[int]:
        known = self._image.topic(topic)
        if known is None:
            raise Unknown(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic called "{topic}"')
        count = len(known.partitions)
        if chosen >= count:
            raise Unknown(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has {count} partitions")
        return list(range(count)) if chosen < 0 else [chosen]

    def _here(self, tp: TopicPartition) -> Partition | None:
        partition = self._partitions.get(tp)
        return partition if partition is not None and partition.is_leader else None

    def _leader(self, tp: TopicPartition) -> int:
        leader = self._image.leader(*tp)
        if leader is None:
            raise HeadraceError(ErrorKind.LEADER_NOT_AVAILABLE, f"{tp} has no leader right now")
        return leader.id

    # -- where records are ---------------------------------------------------------------------------------------------

    async def bounds(self, tp: TopicPartition, isolation: int = READ_COMMITTED) -> OffsetBounds:
        """Uncommitted: up to the high watermark, from where Kafka's tools count the lag of groups."""
        partition = self._here(tp)
        if partition is not None:
            return OffsetBounds(partition.log.start_offset, _end(partition, isolation))
        start, end = await asyncio.gather(
            self._listed(tp, EARLIEST, isolation), self._listed(tp, LATEST, isolation)
        )
        return OffsetBounds(start, end)

    async def offset_for_time(
        self, tp: TopicPartition, wall_ms: int, isolation: int = READ_COMMITTED
    ) -> int | None:
        """The first record at or after that time; None when there is none."""
        partition = self._here(tp)
        if partition is not None:
            found = partition.log.offset_for_time(wall_ms, _end(partition, isolation))
            return None if found is None else found.offset
        offset = await self._listed(tp, wall_ms, isolation)
        return None if offset < 0 else offset

    async def _listed(self, tp: TopicPartition, timestamp: int, isolation: int) -> int:
        wanted = ListOffsetsTopic(tp.topic, [ListOffsetsPartition(tp.partition, -1, timestamp)])
        request = ListOffsetsRequest(-1, isolation, [wanted])
        row = await self._ask(tp, ApiKey.LIST_OFFSETS, LIST_VERSION, request)
        offset: int = row.offset
        return offset

    async def _ask(self, tp: TopicPartition, key: ApiKey, version: int, request: object) -> Any:
        """The row of a partition, from its leader. Reading may be repeated: a leader that has not heard yet that it is one (F34),
        or a connection that broke on a busy machine, is no answer to a reader."""
        clock = self._clock
        deadline_ms = clock.now_ms() + PATIENCE_MS
        while True:
            try:
                response = await self._peers.call(self._leader(tp), key, version, request)
                row = response.topics[0].partitions[0]
                if not row.error_code:
                    return row
                problem = HeadraceError(ErrorKind(row.error_code), f"{tp} can't be read right now")
            except HeadraceError as trouble:
                problem = trouble
            if problem.kind not in _PASSING or clock.now_ms() >= deadline_ms:
                raise problem
            await asyncio.sleep(AGAIN_S)

    # -- records -------------------------------------------------------------------------------------------------------

    async def read(self, tp: TopicPartition, offset: int, limit: int) -> Chunk:
        """Some of what is there from `offset` on, perhaps none."""
        partition = self._here(tp)
        if partition is None:
            data, aborted, end = await self._fetched(tp, offset)
        else:
            end = partition.last_stable_offset
            position = max(offset, partition.log.start_offset)
            found = partition.read(position, _read_bytes(limit), end)
            if isinstance(found, Rejected):
                raise HeadraceError(found.kind, found.detail)
            data = found
            aborted = partition.log.aborted_transactions(position, end)
        chunk = _chunk(data, offset, end, limit, aborted, lambda at, why: self._step_over(tp, at, why))
        mask = None if self._masks is None else self._masks(tp.topic)
        if mask is None:
            return chunk
        return chunk._replace(records=[mask.apply(record) for record in chunk.records])

    def _step_over(self, tp: TopicPartition, offset: int, problem: CorruptBatch) -> None:
        partition = self._here(tp)
        if partition is not None:
            partition.step_over(offset, problem)
        else:
            self._failures.unreadable_elsewhere += 1

    async def _fetched(self, tp: TopicPartition, offset: int) -> tuple[Buffer, list[AbortedTxn], int]:
        wanted = FetchTopic(
            tp.topic, ZERO_UUID, [FetchPartition(tp.partition, -1, offset, -1, -1, READ_BYTES)]
        )
        request = FetchRequest(-1, -1, 0, 1, READ_BYTES, READ_COMMITTED, 0, -1, [wanted])
        row = await self._ask(tp, ApiKey.FETCH, FETCH_VERSION, request)
        data = row.records if isinstance(row.records, memoryview) else b""
        aborted = [
            AbortedTxn(entry.producer_id, entry.first_offset, -1, -1)
            for entry in row.aborted_transactions or ()
        ]
        return data, aborted, row.last_stable_offset

    async def inspect(self, tp: TopicPartition, offset: int) -> tuple[Record, BatchHeader] | None:
        """One record and the batch it lies in; None when nobody can read such a record."""
        bounds = await self.bounds(tp)
        if not bounds.start <= offset < bounds.end:
            return None
        chunk = await self.read(tp, offset, 1)
        if not chunk.records or chunk.records[0].offset != offset:
            return None
        partition = self._here(tp)
        data = (await self._fetched(tp, offset))[0] if partition is None else None
        if partition is not None:
            found = partition.read(offset, SMALLEST_READ_BYTES, partition.last_stable_offset)
            data = b"" if isinstance(found, Rejected) else found
        for _, header in scan(data or b""):
            if header.base_offset <= offset <= header.last_offset:
                return chunk.records[0], header
        return None

    async def wait(self, positions: dict[TopicPartition, int]) -> None:
        """Until there may be something new behind one of these positions."""
        woken = asyncio.Event()
        waiter = _Waiter(woken)
        here = [partition for tp in positions if (partition := self._here(tp)) is not None]
        for partition in here:
            partition.fetch_waiters[waiter] = None
        try:
            if any(positions[partition.tp] < partition.last_stable_offset for partition in here):
                return
            if len(here) == len(positions):
                await woken.wait()
                return
            try:
                async with asyncio.timeout(REMOTE_POLL_S):
                    await woken.wait()
            except TimeoutError:
                pass
        finally:
            for partition in here:
                partition.fetch_waiters.pop(waiter, None)


class _Waiter:
    def __init__(self, woken: asyncio.Event) -> None:
        self._woken = woken

    def wake(self) -> None:
        self._woken.set()


def _read_bytes(limit: int) -> int:
    """Enough for so many records of the usual size; there may be more to come."""
    return min(READ_BYTES, max(SMALLEST_READ_BYTES, limit * USUAL_RECORD_BYTES))


def _chunk(
    data: Buffer,
    offset: int,
    end: int,
    limit: int,
    aborted: Sequence[AbortedTxn],
    step_over: StepOver,
) -> Chunk:
    found: list[Record] = []
    for record, next_offset in _records(data, aborted, step_over):
        if record is None:
            offset = max(offset, next_offset)
            continue
        if record.offset < offset:
            continue
        if record.offset >= end or len(found) >= limit:
            break
        found.append(record)
        offset = next_offset
    return Chunk(found, offset)


def _records(
    data: Buffer, aborted: Sequence[AbortedTxn], step_over: StepOver
) -> Iterator[tuple[Record | None, int]]:
    """Each record that counts and the offset after it; at the end of each batch None and where the next one begins.

    As consumers do it: a producer's records are aborted from the first offset of an aborted transaction to its marker.
    """
    waiting = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
    aborting: set[int] = set()
    for at, header in scan(data):
        while waiting and waiting[-1].first_offset <= header.last_offset:
            aborting.add(waiting.pop().producer_id)
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            try:
                for record in iter_records(data, at):
                    yield record, record.offset + 1
            except CorruptBatch as problem:
                step_over(header.base_offset, problem)
        yield None, header.next_offset
