"""Driver: share groups (KIP-932) on the queue engine: a group is a queue named `share/<group>` over the partitions its
members read, and a member is the owner of what it acquired.

The state of a share partition lives beside its data, so whoever leads the data answers for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from headrace.broker.groups import CONFIGS
from headrace.broker.hosts import ShardHost
from headrace.broker.queueing.local.delayed import without_waiting
from headrace.broker.queueing.local.hosted import Hosted
from headrace.broker.queueing.local.payloads import is_aborted
from headrace.broker.queueing.local.shards import SHARE_PREFIX
from headrace.broker.queueing.rooms import QueueRooms
from headrace.broker.share_sessions import Owner, ShareSessions
from headrace.cluster.deltas import BrokerConfigChanged, Delta, OpaqueChanged
from headrace.cluster.group_configs import RENEW_ENABLE, ShareConfig, share_config
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer
from headrace.queues import commands as engine
from headrace.queues.commands import AckType, Delivered, Source
from headrace.queues.config import QueueConfig, share_group
from headrace.queues.ranges import Range
from headrace.records.batch import scan

READ_AT_ONCE = 1024 * 1024
MAX_REMEMBERED = 10_000
_WAIT_READY_S = 5.0

AckBatch = tuple[int, int, tuple[int, ...]]


class Acquired(NamedTuple):
    """What one partition gave to one member: batches that hold the acquired records, and perhaps others."""

    data: Buffer = b""
    runs: tuple[Delivered, ...] = ()


class ShareGroups:
    def __init__(self, host: ShardHost, rooms: QueueRooms, caught_up: Callable[[], Awaitable[None]]) -> None:
        self._host = host
        self._rooms = rooms
        self._caught_up = caught_up
        self.sessions = ShareSessions()
        self._configs: dict[str, ShareConfig] = {}
        self._configured: dict[tuple[Hosted, str], tuple[object, QueueConfig]] = {}

    def config(self, group: str) -> ShareConfig:
        found = self._configs.get(group)
        if found is None:
            if len(self._configs) >= MAX_REMEMBERED:
                self._configs.clear()
            image = self._host.image
            found = self._configs[group] = share_config(image.group_configs(group), image.layers())
        return found

    def heard(self, deltas: list[Delta]) -> None:
        """Configs of one group or of all: each is read anew when it is asked for."""
        if any(
            isinstance(delta, BrokerConfigChanged)
            or (isinstance(delta, OpaqueChanged) and delta.key.startswith(CONFIGS))
            for delta in deltas
        ):
            self._configs.clear()

    # -- sources -------------------------------------------------------------------------------------------------------

    async def source(self, group: str, tp: TopicPartition) -> Source:
        """The group's state of a partition that this broker leads; made on first use. Raises HeadraceError."""
        partition, missing = self._host.find_partition(*tp)
        if partition is None or not partition.is_leader:
            raise HeadraceError(
                ErrorKind.NOT_LEADER_OR_FOLLOWER if missing is ErrorKind.NONE else missing,
                f"{tp} is not led here",
            )
        rooms = self._rooms
        source = Source(SHARE_PREFIX + group, *tp)
        if tp not in rooms.shards.hosted:
            await rooms.catalog.ensure_journal(tp.topic)
            await self._caught_up()
        hosted = await self._ready(source)
        self._configure(hosted, group, source)
        return source

    async def _ready(self, source: Source) -> Hosted:
        try:
            async with asyncio.timeout(_WAIT_READY_S):
                return await self._rooms.shards.wait_for(TopicPartition(source.topic, source.partition))
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
            uncommitted=config.is_uncommitted,
        )
        if self._configured.get((hosted, source.queue)) == (hosted.machine, wanted):
            return
        if len(self._configured) > MAX_REMEMBERED:
            self._configured.clear()
        self._configured[hosted, source.queue] = (hosted.machine, wanted)
        hosted.tell(engine.Configure(source.queue, wanted))
        log = hosted.data.log
        start = log.start_offset if config.starts_earliest else hosted.data.high_watermark
        hosted.tell(engine.Open(source, start))
        self._rooms.shards.feed_source(hosted, source)

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
        if not self.config(group).may_renew and any(AckType.RENEW in types for _, _, types in given):
            raise HeadraceError(
                ErrorKind.INVALID_RECORD_STATE, f"{RENEW_ENABLE.name} is false: group {group} may not renew"
            )
        await self._rooms.local.submit(source, engine.Acknowledge(source, member, given))

    async def acquire(
        self, group: str, member: str, tp: TopicPartition, max_records: int, max_bytes: int, *, whole: bool
    ) -> Acquired:
        """What there is now; may be nothing. `whole`: batches are not cut, so it may be more than `max_records` (KIP-1206:
        batch_optimized). Raises HeadraceError."""
        source = await self.source(group, tp)
        rooms = self._rooms
        hosted = rooms.layouts.hosted(source)
        while first := await rooms.local.submit(source, engine.Peek(source, 1)):
            # Read first, acquire second: a record that would not fit into the answer is left for somebody else.
            data = self._read(hosted, source.queue, first[0], max_bytes)
            below = _reach(data, first[0], max_records if whole else None)
            if below <= first[0]:
                break
            limit = below - first[0] if whole else max_records
            received = await rooms.local.submit(
                source, engine.Receive(source, limit, None, member, below=below)
            )
            if not received.runs:
                break
            runs, void = _without(received.runs, self._void(hosted, source.queue, data))
            if void:
                gaps = tuple((low, high - 1, (int(engine.AckType.GAP),)) for low, high in void)
                await rooms.local.submit(source, engine.Acknowledge(source, member, gaps))
            if runs:
                return Acquired(_covering(data, runs), tuple(runs))
        return Acquired()

    def _read(self, hosted: Hosted, queue: str, offset: int, max_bytes: int) -> Buffer:
        end = hosted.readable_end(queue)
        if offset >= end:
            return b""  # it was readable before the group was told to read committed records only
        data = hosted.data.read(offset, max(1, min(max_bytes, READ_AT_ONCE)), end)
        if isinstance(data, Rejected):
            raise HeadraceError(data.kind, data.detail)
        return without_waiting(data) if hosted.data.config.delay_enabled else data

    def _void(self, hosted: Hosted, queue: str, data: Buffer) -> list[Range]:
        """Where no record for this group lies: markers, and what was aborted if it wants to know of commits only (R48).
        Share consumers are not told of aborted transactions, so nobody else leaves them out."""
        config = hosted.machine.config(queue)
        is_uncommitted = config is not None and config.uncommitted
        return [
            (header.base_offset, header.next_offset)
            for _, header in scan(data)
            if header.is_control or (not is_uncommitted and is_aborted(hosted.data, header))
        ]

    def leave(self, owner: Owner) -> None:
        """A member's session is over: what it holds here goes to others at once."""
        group, member = owner
        queue = SHARE_PREFIX + group
        for hosted in self._rooms.shards.hosted.values():
            hosted.shard.tell(engine.ReleaseOwner(queue, member))

    def connection_closed(self, connection_id: int) -> None:
        for owner in self.sessions.connection_closed(connection_id):
            self.leave(owner)

    def arrival(self, group: str) -> asyncio.Event:
        return self._rooms.shards.arrival(SHARE_PREFIX + group)


def _reach(data: Buffer, first: int, max_records: int | None) -> int:
    """The end of the batch that brings the count to `max_records`; None: of the last one."""
    below, count = first, 0
    for _, header in scan(data):
        if max_records is not None and count >= max_records:
            break
        below = header.next_offset
        count += below - max(first, header.base_offset)
    return below


def _without(runs: Sequence[Delivered], void: Sequence[Range]) -> tuple[list[Delivered], list[Range]]:
    """The runs without what lies in `void`, and what was taken out of them. Both in order."""
    kept: list[Delivered] = []
    taken: list[Range] = []
    for run in runs:
        at = run.first
        for low, high in void:
            low, high = max(low, at), min(high, run.end)
            if low >= high:
                continue
            if at < low:
                kept.append(run._replace(first=at, end=low))
            taken.append((low, high))
            at = high
        if at < run.end:
            kept.append(run._replace(first=at))
    return kept, taken


def _covering(data: Buffer, runs: Sequence[Delivered]) -> Buffer:
    """The batches that hold these records, in order and each once."""
    view = memoryview(data)
    pieces: list[Buffer] = []
    left = iter(runs)
    run = next(left, None)
    for at, header in scan(data):
        while run is not None and run.end <= header.base_offset:
            run = next(left, None)
        if run is None:
            break
        if run.first < header.next_offset:
            pieces.append(view[at : at + header.size])
    return b"".join(pieces)
