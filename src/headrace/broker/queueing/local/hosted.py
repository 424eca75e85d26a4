"""Driver: one data partition with its journal on this broker: the shard of its queues, the local replica, and who listens."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import attrgetter
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
from headrace.records.build import Record

HostedShard: TypeAlias = Shard[QueueShard, QueueEffect]
QueueLoad: TypeAlias = Load[QueueShard, QueueEffect]

PATIENCE_S = 3.0
"""How long whoever asks is kept waiting for a shard that loads, as right after a queue was made (F34)."""


MAX_SPECIAL = 1_000
"""Records that are kept until the engine has been told of them. Beyond that the log is read."""


_OFFSET = attrgetter("offset")


class WrittenHere(NamedTuple):
    """Offsets that we wrote ourselves as the leader of this epoch."""

    first: int
    end: int
    epoch: int
    special: tuple[Record, ...] = ()
    """Those of them that say something about themselves, as they were sent but for their values."""


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
        self.written = WrittenHere(0, 0, -1)
        self._told: asyncio.Event | None = None
        """There while somebody waits for the engine to be told more."""
        self._loaded = asyncio.Event()

    def wrote(self, first: int, end: int, special: tuple[Record, ...] = ()) -> None:
        """[first, end) was written here just now, and no record of it but `special` has a header of ours or a key."""
        known, epoch = self.written, self.data.leader_epoch
        if known.end == first and known.epoch == epoch and len(known.special) + len(special) <= MAX_SPECIAL:
            first, special = known.first, (*known.special, *special)
        self.written = WrittenHere(first, end, epoch, special)

    def written_from(self, offset: int, stable: int) -> tuple[int, Sequence[Record]]:
        """How far it is known from `offset` on what was written, without reading the log, up to `stable`; and what is special
        in there. Only while we lead as we did when it was written: else something else may lie at these offsets."""
        first, end, epoch, special = self.written
        data = self.data
        if not (first <= offset < end and data.leader_epoch == epoch and data.is_leader):
            return offset, ()
        end = min(end, stable)
        if special:
            special = special[
                bisect_left(special, offset, key=_OFFSET) : bisect_left(special, end, key=_OFFSET)
            ]
        return end, special

    def ordinary_to(self, offset: int, stable: int) -> int:
        """How far no record has a header of ours."""
        end, special = self.written_from(offset, stable)
        return next((record.offset for record in special if record.headers), end)

    def forget_special(self, below: int) -> None:
        """Every queue was told of them; who did not want to know yet reads the log."""
        _, end, epoch, special = self.written
        if special and special[0].offset < below:
            gone = bisect_left(special, below, key=_OFFSET)
            self.written = WrittenHere(special[gone - 1].offset + 1, end, epoch, special[gone:])

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
