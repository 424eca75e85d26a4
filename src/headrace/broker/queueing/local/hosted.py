"""Driver: one data partition with its journal on this broker: the shard of its queues, the local replica, and who listens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, TypeAlias

from headrace.broker.load import Load, ShardState
from headrace.broker.partition import Partition
from headrace.broker.queueing.local.intake import Intake
from headrace.broker.queueing.local.payloads import Payloads
from headrace.broker.runtime import happens
from headrace.broker.shards import Shard
from headrace.core.plan import AnyCommand, Command, R
from headrace.queues.commands import QueueEffect, Source
from headrace.queues.shard import QueueShard

HostedShard: TypeAlias = Shard[QueueShard, QueueEffect]
QueueLoad: TypeAlias = Load[QueueShard, QueueEffect]

PATIENCE_S = 3.0
"""How long whoever asks is kept waiting for a shard that loads, as right after a queue was made (F34)."""


class Ordinary(NamedTuple):
    """Offsets that we wrote ourselves as the leader of this epoch."""

    first: int
    end: int
    epoch: int


class Hosted:
    """One data partition with its journal: the shard, the local replica, and who listens."""

    def __init__(self, shard: HostedShard, data: Partition) -> None:
        self.shard = shard
        self.data = data
        self.payloads = Payloads(data)
        self.grown: Callable[[int], None] = lambda high_watermark: None
        """What listens to the data's commits."""
        self.feeding = False
        """A look at the log is already on its way."""
        self._intakes: dict[Source, Intake] = {}
        self.reading: set[Source] = set()
        """Sources whose backlog is being looked through; the next piece is on its way."""
        self._ordinary = Ordinary(0, 0, -1)
        self._told: asyncio.Event | None = None
        """There while somebody waits for the engine to be told more."""
        self._loaded = asyncio.Event()

    def wrote_ordinary(self, first: int, end: int) -> None:
        """[first, end) was written here just now, and no record of it has a header of ours."""
        known, epoch = self._ordinary, self.data.leader_epoch
        if known.end == first and known.epoch == epoch:
            first = known.first
        self._ordinary = Ordinary(first, end, epoch)

    def ordinary_to(self, offset: int, stable: int) -> int:
        """How far the log is known to be ordinary from `offset` on, without reading it, up to `stable`. Only while we lead as
        we did when it was written: else something else may lie at these offsets."""
        first, end, epoch = self._ordinary
        data = self.data
        is_ours = first <= offset < end and data.leader_epoch == epoch and data.is_leader
        return min(end, stable) if is_ours else offset

    def readable_end(self, queue: str) -> int:
        """How far a queue may read: to the last stable offset, unless it takes what is not committed."""
        config = self.machine.config(queue)
        is_uncommitted = config is not None and config.uncommitted
        return self.data.high_watermark if is_uncommitted else self.data.last_stable_offset

    def intake(self, source: Source) -> Intake:
        found = self._intakes.get(source)
        if found is None:
            found = self._intakes[source] = Intake(self.data)
        return found

    @property
    def load(self) -> QueueLoad:
        """Whoever does something for the shard that takes time does it for one load of it."""
        return self.shard.current

    @property
    def machine(self) -> QueueShard:
        return self.shard.current.machine

    @property
    def ready(self) -> bool:
        return self.shard.current.state is ShardState.READY

    def submit(self, command: Command[R]) -> Awaitable[R]:
        """Put one command to the shard; while it loads, as soon as it has loaded."""
        load = self.shard.current
        return self._submit_later(command) if load.state is ShardState.LOADING else load.submit(command)

    async def _submit_later(self, command: Command[R]) -> R:
        await have_loaded([self])
        return await self.shard.current.submit(command)

    async def loaded(self) -> None:
        """Until the shard has loaded or is no more; the next command tells which."""
        if self.shard.state is ShardState.LOADING:
            self._loaded.clear()
            await self._loaded.wait()

    def load_ended(self) -> None:
        """The shard has loaded, or is given up."""
        self._loaded.set()

    def tell(self, command: AnyCommand) -> None:
        """To the load there is; the next one finds out for itself."""
        self.shard.current.tell(command)
        if self._told is not None:
            self._told.set()
            self._told = None

    async def told_more(self, seconds: float) -> None:
        """Until the engine has been told something more of the log, or so long: then look anyhow."""
        if self._told is None:
            self._told = asyncio.Event()
        await happens(self._told, seconds)


async def have_loaded(all_of_them: Iterable[Hosted]) -> None:
    """Waited for a while, and not to the end: a large journal takes its time, and clients know what to do."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            for hosted in all_of_them:
                await hosted.loaded()
    except TimeoutError:
        pass
