"""Driver: where share groups stand: look, set, forget (KIP-932, KIP-1226). The group's coordinator is asked; the state of a
partition lies beside its data, so the coordinator asks whoever has it, router to router.
"""

from __future__ import annotations

from headrace.broker.groups import Groups
from headrace.broker.load import CommandRefused
from headrace.broker.queueing import names
from headrace.broker.queueing.local.shards import SHARE_PREFIX
from headrace.broker.queueing.rooms import QueueRooms
from headrace.broker.queueing.routing.peer_calls import AskShareOffset, ShareOffset
from headrace.broker.share_groups import ShareGroups
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.ids import TopicPartition
from headrace.groups.share import commands
from headrace.queues import commands as engine
from headrace.queues.commands import Source

NOWHERE = ShareOffset(-1, -1, -1)
"""The group has not begun to read the partition."""
EMPTY = ("Empty", "Dead")


class ShareOffsets:
    def __init__(
        self, image: ClusterImage, groups: Groups, rooms: QueueRooms, share_groups: ShareGroups
    ) -> None:
        self._image = image
        self._groups = groups
        self._rooms = rooms
        self._share_groups = share_groups

    async def require_group(self, group: str, *, empty: bool) -> None:
        """Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or why the coordinator can't say."""
        (found,) = await self._groups.ask(group, commands.ShareGroupDescribe((group,)))
        if found.error is not ErrorKind.NONE:
            raise HeadraceError(found.error, found.message or "")
        if empty and found.state not in EMPTY:
            raise HeadraceError(ErrorKind.NON_EMPTY_GROUP, f"the group {group} has members")

    async def make_group(self, group: str) -> None:
        """As Kafka 4.2 has it: who sets where a group begins makes it (F35). Raises HeadraceError when it has members."""
        try:
            await self._groups.ask(group, commands.MakeShareGroup(group))
        except CommandRefused as refused:
            why = f"there is no share group {group!r}, and it can't be made"
            if refused.kind is ErrorKind.NON_EMPTY_GROUP:
                why = f"the group {group} has members"
            raise HeadraceError(refused.kind, why) from None

    def topics(self) -> list[str]:
        """Where any share group may have been."""
        image = self._image
        found = [topic for name in image.topics if (topic := names.data_topic(name)) is not None]
        return sorted(topic for topic in found if image.topic(topic) is not None)

    async def find(self, group: str, tp: TopicPartition) -> ShareOffset:
        return await self._ask(group, tp, "find")

    async def set(self, group: str, tp: TopicPartition, offset: int) -> None:
        await self._ask(group, tp, "set", offset)

    async def forget(self, group: str, tp: TopicPartition) -> None:
        await self._ask(group, tp, "forget")

    async def _ask(self, group: str, tp: TopicPartition, action: str, offset: int = -1) -> ShareOffset:
        known = self._image.topic(tp.topic)
        if known is None or not 0 <= tp.partition < len(known.partitions):
            raise Unknown(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp}")
        if self._image.topic(names.journal_topic(tp.topic)) is None:
            if action != "set":
                return NOWHERE  # nobody has ever shared it
            await self._rooms.catalog.ensure_journal(tp.topic)
        ask = AskShareOffset(queue=SHARE_PREFIX + group, topic=tp.topic, partition=tp.partition, action=action, offset=offset)  # type: ignore[arg-type]  # fmt: skip
        home = self._rooms.layouts.home_of(Source(ask.queue, *tp))
        if home == self._image.broker_id:
            return await self.answer(ask)
        answer: ShareOffset = await self._rooms.caller.ask(home, ask)
        return answer

    async def answer(self, ask: AskShareOffset) -> ShareOffset:
        """At the home of the partition."""
        tp = TopicPartition(ask.topic, ask.partition)
        source = Source(ask.queue, *tp)
        rooms = self._rooms
        if ask.action == "set":
            source = await self._share_groups.source(ask.queue.removeprefix(SHARE_PREFIX), tp)
            await rooms.local.submit(source, engine.SeekSource(source, ask.offset))
            rooms.shards.feed_source(rooms.layouts.hosted(source), source)
        elif ask.action == "forget" and source in rooms.layouts.hosted(source).machine.sources():
            await rooms.local.submit(source, engine.Close(source))
            self._share_groups.forget(source)
        hosted = rooms.layouts.hosted(source)
        counts = hosted.machine.counts(source)
        if counts is None:
            return NOWHERE
        lag = counts.visible + counts.in_flight + counts.delayed + counts.dying
        return ShareOffset(counts.start_offset, hosted.data.leader_epoch, lag)
