"""Driver: the old partition of a message group that moves, and whether the group is still there (Q11, R59).

While a FIFO queue changes its number of partitions, a group's old partition decides for each message whether it stays or goes
to the new one, and nobody else does. It stays if something of the group is there for certain, and goes if for certain
nothing is. Then once a group is gone it never comes back in this change, whoever leads the partition, because nobody
puts something of it there: *none of the group is there* is a truth that lasts. So it must be known, never guessed: a message
that stays because nobody can tell overtakes those that went.

Certain means:
- This broker leads the partition and its journal, by the newest news that it has; the news of a change come after those of
  the leaderships before it. A message that stays is written only while that is so (`Stay.holds`).
- Everything in the log so far has been looked at, also what is not committed yet: a send that its client gave up may be there.
- Nothing else that was to stay is on its way into the log, and what was on its way before the change can not get in
  any more (QueueSpec.era, placement.py).
- What the engine says rests on facts that are committed.
Who does not know refuses, and the client asks again.
"""

from __future__ import annotations

import asyncio

from headrace.broker.hosts import QueueHost
from headrace.broker.partition import Partition
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.layout import Layouts
from headrace.broker.queueing.local.hosted import Hosted
from headrace.broker.queueing.local.intake import Intake
from headrace.broker.queueing.local.shards import QueueShards
from headrace.broker.queueing.routing.peer_calls import AskLeftBehind
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import shard_for
from headrace.queues import commands as engine
from headrace.queues.commands import Source, WantedRecords
from headrace.queues.intake import MAX_WANTED

DECIDE_MS = 10_000
"""So long a message waits until it is known where it belongs."""
LEFT_BEHIND_MS = 1_000
"""So long upkeep waits for an answer: it asks again every second, and others wait for it."""
LOOK_AGAIN_S = 0.5
"""In case that what was waited for came in a way that nobody told of."""
MAX_REMEMBERED = 100_000
"""Groups that have left; of others it is found out each time."""


class _Group:
    """Messages of one group that want to be placed: at most one of them waits for certainty, the others for it."""

    __slots__ = ("lock", "present", "staying")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.present = 0
        self.staying = 0
        """On their way into the old partition."""


class _Unread:
    """The groups in a part of the log that the engine has no room to look at yet, with the last place of each."""

    __slots__ = ("end", "first", "last")

    def __init__(self, first: int) -> None:
        self.first = self.end = first
        self.last: dict[bytes, int] = {}


class Home:
    """One load of an old partition's shard in one era of its queue: what it knows of groups rests on that load's memory."""

    def __init__(
        self, host: QueueHost, catalog: QueueCatalog, layouts: Layouts, source: Source, era: int
    ) -> None:
        self._host = host
        self._catalog = catalog
        self._layouts = layouts
        self.source = source
        self.era = era
        self.hosted: Hosted = layouts.hosted(source)
        self.load = self.hosted.load
        self.epoch = self.hosted.data.leader_epoch
        self.groups: dict[bytes, _Group] = {}
        self.gone: set[bytes] = set()
        """Groups that are known to have left: they do not come back as long as this lasts."""
        self.stayed = 0
        """So many messages were let stay."""
        self.unread: _Unread | None = None

    def is_of(self, era: int) -> bool:
        hosted = self._layouts.hosted(self.source)
        return self.era == era and self.load is hosted.load and self.epoch == hosted.data.leader_epoch

    def lasts(self) -> bool:
        spec = self._catalog.find(self.source.queue)
        return (
            spec is not None
            and self._layouts.is_here(self.source)
            and self.is_of(spec.era)
            and self.hosted.ready
            and self._leads(self.hosted.data)
            and self._leads(self.hosted.shard.partition)
        )

    def check(self) -> None:
        if not self.lasts():
            raise HeadraceError(ErrorKind.NOT_COORDINATOR, f"nothing certain is known of {self.source} here")

    def _leads(self, partition: Partition) -> bool:
        """Also by the news that are not carried out yet."""
        topic = self._host.image.topic(partition.tp.topic)
        number = partition.tp.partition
        state = topic.partitions[number] if topic is not None and number < len(topic.partitions) else None
        return (
            partition.is_leader
            and state is not None
            and state.leader == self._host.node_id
            and state.leader_epoch == partition.leader_epoch
        )

    def has(self, group: bytes) -> bool:
        """True is certain; False is not."""
        machine = self.hosted.machine
        if machine.holds(self.source, group):
            return True
        last = -1 if self.unread is None else self.unread.last.get(group, -1)
        counts = machine.counts(self.source)
        return counts is not None and last >= counts.indexed_to and not machine.is_done(self.source, last)

    def has_looked_through(self, end: int) -> bool:
        """Whether `unread` tells about everything below `end` that the engine has not looked at."""
        counts = self.hosted.machine.counts(self.source)
        unread = self.unread
        return (
            counts is not None
            and unread is not None
            and unread.first <= counts.indexed_to
            and unread.end >= end
        )

    def leave(self, name: bytes, group: _Group) -> None:
        if not (group.present or group.staying) and self.groups.get(name) is group:
            del self.groups[name]


class Stay:
    """A message that stays with the old partition, from the decision until it is written, or not."""

    __slots__ = ("_group", "_home", "_name")

    def __init__(self, home: Home, name: bytes, group: _Group) -> None:
        self._home = home
        self._name = name
        self._group = group
        group.staying += 1
        home.stayed += 1

    def holds(self) -> bool:
        return self._home.lasts()

    def is_over(self) -> None:
        self._group.staying -= 1
        self._home.leave(self._name, self._group)


class GroupMigration:
    def __init__(self, host: QueueHost, catalog: QueueCatalog, layouts: Layouts, shards: QueueShards) -> None:
        self._host = host
        self._catalog = catalog
        self._layouts = layouts
        self._shards = shards
        self._homes: dict[Source, Home] = {}

    def _home(self, source: Source, era: int) -> Home:
        """As this broker knows itself to be; raises when it can not tell anything about the partition."""
        home = self._homes.get(source)
        if home is None or not home.is_of(era):
            home = self._homes[source] = Home(self._host, self._catalog, self._layouts, source, era)
        home.check()
        return home

    async def decide(self, source: Source, era: int, name: bytes) -> Stay | None:
        """Whether a message of a group stays with the old partition; None: it goes to the new one."""
        home = self._home(source, era)
        if name in home.gone:
            return None
        group = home.groups.setdefault(name, _Group())
        if not group.lock.locked() and (group.staying or home.has(name)):
            return Stay(home, name, group)
        group.present += 1
        try:
            async with group.lock:
                if name not in home.gone and await self._is_there(home, name, group):
                    return Stay(home, name, group)
                if len(home.gone) < MAX_REMEMBERED:
                    home.gone.add(name)
                return None
        finally:
            group.present -= 1
            home.leave(name, group)

    async def _is_there(self, home: Home, name: bytes, group: _Group) -> bool:
        """True and False are both certain. Nothing awaits between finding something and saying so, so that `left_behind` sees
        either what is there or who is about to join it."""
        deadline_ms = self._host.runtime.clock.now_ms() + DECIDE_MS
        home.check()
        end = home.hosted.data.log.end_offset
        while not (group.staying or home.has(name)):
            await self._read_to(home, end, deadline_ms, name)
            answer = await home.load.submit(engine.Holding(home.source, name, end))
            home.check()
            if answer is False or (answer is None and home.has_looked_through(end) and not home.has(name)):
                return False
        return True

    async def _read_to(self, home: Home, end: int, deadline_ms: int, name: bytes = b"") -> None:
        """Until everything below `end` is committed and has been looked at, by the engine or, as far as it has no room for
        it, here."""
        data, clock = home.hosted.data, self._host.runtime.clock
        if data.high_watermark < end:
            settled: asyncio.Future[ErrorKind] = asyncio.get_running_loop().create_future()
            data.when_committed(
                end, deadline_ms, lambda kind: None if settled.done() else settled.set_result(kind)
            )
            if await settled is not ErrorKind.NONE:
                raise HeadraceError(
                    ErrorKind.NOT_COORDINATOR, f"what is on its way to {data.tp} is not known"
                )
        while True:
            home.check()
            self._shards.feed_source(home.hosted, home.source)
            machine = home.hosted.machine
            counts = machine.counts(home.source)
            if counts is not None and counts.indexed_to >= end:
                return
            if counts is not None and counts.end_offset >= end and machine.wanted(home.source) is None:
                await self._look_through(home, counts.indexed_to, end, name)
                return
            left_ms = deadline_ms - clock.now_ms()
            if left_ms <= 0:
                raise HeadraceError(ErrorKind.NOT_COORDINATOR, f"{home.source} is still being read")
            await home.hosted.told_more(min(LOOK_AGAIN_S, left_ms / 1000))

    async def _look_through(self, home: Home, first: int, end: int, name: bytes) -> None:
        """Which groups there are between where the engine stopped and `end`. Known from before, unless the last of the group
        is done by now (a lease from before a failover): then there may be an earlier one, or not."""
        machine, unread = home.hosted.machine, home.unread
        if unread is not None and machine.is_done(home.source, unread.last.get(name, end)):
            unread = None
        if unread is None or not unread.first <= first <= unread.end:
            unread = home.unread = _Unread(first)
        spec = self._catalog.spec(home.source.queue)
        reader = Intake(home.hosted.data)
        while unread.end < end:
            wanted = WantedRecords(unread.end, end, MAX_WANTED, ())
            seen = reader.look(wanted, spec.queue_config, None, spec.default_delay_ms)
            if seen.indexed_to <= unread.end:
                raise HeadraceError(ErrorKind.NOT_COORDINATOR, f"{home.source} can not be read so far yet")
            for message in seen.messages:
                if not machine.is_done(home.source, message.offset):
                    unread.last[message.group] = message.offset
            unread.end = seen.indexed_to
            await asyncio.sleep(0)
            home.check()

    async def left_behind(self, ask: AskLeftBehind) -> int:
        """How many groups are still in a partition that they do not belong to any more, or on their way there. When there
        are none there never will be, in this change."""
        home = self._home(ask.source, ask.era)
        spec = self._catalog.spec(ask.queue)
        end, stayed = home.hosted.data.log.end_offset, home.stayed
        await self._read_to(home, end, self._host.runtime.clock.now_ms() + LEFT_BEHIND_MS)
        staying = sum(1 for group in home.groups.values() if group.staying) + home.stayed - stayed
        groups = await home.load.submit(engine.HeldGroups(ask.source, end))
        home.check()
        if groups is None:
            return 1 + staying
        home.unread = None
        return staying + sum(
            1
            for group in groups
            if shard_for(group.decode(errors="replace"), spec.active) != ask.source.partition
        )
