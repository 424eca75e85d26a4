"""Driver: share groups (KIP-932) on the queue engine: a group is a queue named `share/<group>` over the partitions its
members read, and a member is the owner of what it acquired.

The state of a share partition lives beside its data, so whoever leads the data answers for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.queueing.delayed import without_waiting
from headrace.broker.queueing.hosting import SHARE_PREFIX, Hosted
from headrace.broker.share_sessions import Owner, ShareSessions
from headrace.cluster.group_configs import ShareConfig, share_config
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer
from headrace.queues import commands as engine
from headrace.queues.commands import Delivered, Source
from headrace.queues.config import QueueConfig, share_group
from headrace.records.batch import scan

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

READ_AT_ONCE = 1024 * 1024
_WAIT_READY_S = 5.0
_POLL_S = 0.02

AckBatch = tuple[int, int, tuple[int, ...]]


class Acquired(NamedTuple):
    """What one partition gave to one member: batches that hold the acquired records, and perhaps others."""

    data: Buffer = b""
    runs: tuple[Delivered, ...] = ()


class ShareGroups:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.sessions = ShareSessions()
        self._configured: dict[tuple[Hosted, str], tuple[object, QueueConfig]] = {}

    def config(self, group: str) -> ShareConfig:
        return share_config(self._broker.image.group_configs(group))

    # -- sources -------------------------------------------------------------------------------------------------------

    async def source(self, group: str, tp: TopicPartition) -> Source:
        """The group's state of a partition that this broker leads; made on first use. Raises HeadraceError."""
        partition, missing = self._broker.find_partition(*tp)
        if partition is None or not partition.is_leader:
            raise HeadraceError(
                ErrorKind.NOT_LEADER_OR_FOLLOWER if missing is ErrorKind.NONE else missing,
                f"{tp} is not led here",
            )
        desk = self._broker.queues
        source = Source(SHARE_PREFIX + group, *tp)
        if tp not in desk.shards.hosted:
            await desk.ensure_journal(tp.topic)
            await self._broker.replicas.caught_up()
        hosted = await self._ready(source)
        self._configure(hosted, group, source)
        return source

    async def _ready(self, source: Source) -> Hosted:
        try:
            async with asyncio.timeout(_WAIT_READY_S):
                while True:
                    hosted = self._broker.queues.shards.hosted.get(
                        TopicPartition(source.topic, source.partition)
                    )
                    if hosted is not None and hosted.ready:
                        return hosted
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise HeadraceError(
                ErrorKind.NOT_LEADER_OR_FOLLOWER, f"the state of {source} is not here yet"
            ) from None

    def _configure(self, hosted: Hosted, group: str, source: Source) -> None:
        """Once for each life of the shard, and whenever the group's configs changed."""
        config = self.config(group)
        wanted = share_group(
            visibility_ms=config.lock_ms,
            max_deliveries=config.max_deliveries,
            max_in_flight=config.max_locks,
        )
        if self._configured.get((hosted, source.queue)) == (hosted.machine, wanted):
            return
        if len(self._configured) > 10_000:
            self._configured.clear()
        self._configured[hosted, source.queue] = (hosted.machine, wanted)
        hosted.tell(engine.Configure(source.queue, wanted))
        log = hosted.data.log
        start = log.start_offset if config.starts_earliest else hosted.data.high_watermark
        hosted.tell(engine.Open(source, start))
        self._broker.queues.shards.feed_source(hosted, source)

    def forget(self, source: Source) -> None:
        """Its state was dropped: whoever reads the partition again begins anew."""
        for key in [key for key in self._configured if key[1] == source.queue]:
            del self._configured[key]

    # -- what members do -------------------------------------------------------------------------------------------------

    async def acknowledge(
        self, group: str, member: str, tp: TopicPartition, batches: Sequence[AckBatch]
    ) -> None:
        """All or nothing. Raises HeadraceError."""
        source = await self.source(group, tp)
        given = tuple(batches)
        await self._broker.queues.submit(
            source, lambda waiter: engine.Acknowledge(source, member, given, waiter=waiter)
        )

    async def acquire(
        self, group: str, member: str, tp: TopicPartition, max_records: int, max_bytes: int
    ) -> Acquired:
        """What there is now; may be nothing. Raises HeadraceError."""
        source = await self.source(group, tp)
        desk = self._broker.queues
        hosted = desk.hosted(source)
        first = await desk.submit(source, lambda waiter: engine.Peek(source, 1, waiter=waiter))
        if not first:
            return Acquired()
        # Read first, acquire second: a record that would not fit into the answer is left for somebody else.
        data = self._read(hosted, first[0], max_bytes)
        limit = max_records
        for _, header in scan(data):
            limit = min(max_records, header.next_offset - first[0])
        received = await desk.submit(
            source, lambda waiter: engine.Receive(source, max(1, limit), None, member, waiter=waiter)
        )
        return Acquired(self._covering(hosted, data, received.runs), received.runs)

    def _read(self, hosted: Hosted, offset: int, max_bytes: int) -> Buffer:
        data = hosted.data.read(offset, max(1, min(max_bytes, READ_AT_ONCE)), hosted.data.last_stable_offset)
        if isinstance(data, Rejected):
            raise HeadraceError(data.kind, data.detail)
        return without_waiting(data) if hosted.data.config.delay_enabled else data

    def _covering(self, hosted: Hosted, first_read: Buffer, runs: Sequence[Delivered]) -> Buffer:
        """The batches that hold these records, in order and each once."""
        if not runs:
            return b""
        pieces: list[Buffer] = []
        covered = -1
        data = first_read
        for run in runs:
            position = max(run.first, covered)
            while position < run.end:
                found = False
                for at, header in scan(data):
                    if header.next_offset > position and header.base_offset < run.end:
                        pieces.append(memoryview(data)[at : at + header.size])
                        position = covered = header.next_offset
                        found = True
                if position >= run.end:
                    break
                if found or data is first_read:
                    data = self._read(hosted, position, READ_AT_ONCE)
                    first_read = b""
                    if data:
                        continue
                break  # retention has taken it meanwhile: the client finds a gap and says so
        return b"".join(pieces)

    def leave(self, owner: Owner) -> None:
        """A member's session is over: what it holds here goes to others at once."""
        group, member = owner
        queue = SHARE_PREFIX + group
        for hosted in self._broker.queues.shards.hosted.values():
            hosted.shard.tell(engine.ReleaseOwner(queue, member))

    def connection_closed(self, connection_id: int) -> None:
        for owner in self.sessions.connection_closed(connection_id):
            self.leave(owner)

    def arrival(self, group: str) -> asyncio.Event:
        return self._broker.queues.shards.arrival(SHARE_PREFIX + group)
