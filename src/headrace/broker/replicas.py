"""Driver: the replicas on this broker. Opens, closes and deletes logs as the image says: several partitions at a time, each in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headrace.broker.disk_room import AUTOMATIC, DiskRoom
from headrace.broker.flusher import Flusher
from headrace.broker.isr_writer import IsrWriter
from headrace.broker.lanes import WorkLanes
from headrace.broker.log_directories import LogDirectories, log_config
from headrace.broker.metadata import Metadata
from headrace.broker.pacing import Pace
from headrace.broker.partition import Partition
from headrace.broker.replicator import Replicator
from headrace.broker.runtime import Runtime
from headrace.broker.watchlist import Watchlist
from headrace.cluster import keys
from headrace.cluster.controller import Standings
from headrace.cluster.deltas import (
    BrokerDown,
    BrokerRegistered,
    BrokerUp,
    Delta,
    PartitionChanged,
    TopicConfigChanged,
    TopicGone,
)
from headrace.cluster.election import hand_over, raise_epoch
from headrace.cluster.rows import Topic
from headrace.cluster.state import NO_LEADER, PartitionState
from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.log.parts import FULL_DISK
from headrace.log.results import LogCorrupt, WrongTopic
from headrace.replication.events import (
    BrokerChanged,
    LeaderEffect,
    LeaderEvent,
    LeaseChanged,
    PartitionRead,
    ProposeIsr,
    RequirementsChanged,
    RereadPartition,
    Stalled,
    StepDown,
    Tick,
)
from headrace.replication.leader import Leader, Leadership

log = logging.getLogger(__name__)

_Change = PartitionChanged | TopicGone | TopicConfigChanged
"""What there is to do for us in a change of the image."""
AT_ONCE = 6
"""Partitions that are opened, closed or deleted at a time: most of it is waiting for the disk (F27). Fewer than there are threads for
blocking work, since commits need one too."""
LOOKED_AT_ONCE = 1_000
"""Partitions that are asked in one go whether they need anything: some tenths of a microsecond each."""
READ_AGAIN_S = 0.5
RETRY_S = 5.0


def _touches(change: _Change) -> tuple[str, int | None]:
    """The topic, and the partition if it is only one."""
    if isinstance(change, PartitionChanged):
        return change.topic.name, change.partition
    return change.topic.name if isinstance(change, TopicConfigChanged) else change.name, None


class Replicas:
    def __init__(
        self,
        runtime: Runtime,
        metadata: Metadata,
        flusher: Flusher,
        log_dir: str,
        replicator: Replicator,
        lease_held: Callable[[], bool],
        *,
        ephemeral: bool = False,
        repair: bool = False,
        disk_reserve_bytes: int = AUTOMATIC,
    ) -> None:
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.on_open: list[Callable[[Partition], None]] = []
        self.on_lead: list[Callable[[Partition], None]] = []
        self.on_resign: list[Callable[[Partition], None]] = []
        self.broker_epoch = 0
        """Of our current registration; a leadership older than it belongs to an earlier life (R4, R29)."""
        self.offline: dict[TopicPartition, str] = {}
        """Replicas that can't be opened, and why."""
        self._giving_away: set[TopicPartition] = set()
        self._runtime = runtime
        self._metadata = metadata
        self._image = metadata.image
        self._lease_held = lease_held
        self.watchlist: Watchlist[Partition] = Watchlist()
        self._lease_told = True
        """What the leaders believe of our lease."""
        self._isr = IsrWriter(runtime, metadata)
        self.replicator = replicator
        self._flusher = flusher
        self._logs = LogDirectories(runtime, metadata, log_dir, ephemeral=ephemeral, repair=repair)
        self.quarantine_unknown = self._logs.quarantine_unknown
        self.room = DiskRoom(runtime.fs, log_dir, disk_reserve_bytes)
        self._work = WorkLanes(self._carry_out, _touches, AT_ONCE)

    # -- following the image -----------------------------------------------------------------------------------

    def heard(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, (PartitionChanged, TopicGone, TopicConfigChanged)):
                if isinstance(delta, TopicGone):
                    self._let_go(delta)
                self._work.put(delta)
                if isinstance(delta, PartitionChanged) and delta.old is None:
                    self._expect(delta)
            elif isinstance(delta, (BrokerUp, BrokerRegistered)):
                self.broker_changed(delta.broker.id)
            elif isinstance(delta, BrokerDown):
                self.broker_changed(delta.broker_id)

    def _let_go(self, deleted: TopicGone) -> None:
        """F1: nobody is served from a topic of which is known here that it is gone, however long its files take to follow."""
        for number in range(deleted.partition_count):
            partition = self.partitions.get((deleted.name, number))
            if partition is not None and partition.topic_id == deleted.topic_id and partition.is_leader:
                self._resign(partition)

    def _expect(self, new: PartitionChanged) -> None:
        if (
            self._image.broker_id in new.new.replicas
            and (new.topic.name, new.partition) not in self.partitions
        ):
            self._logs.expect(new.topic, new.partition)

    def look_at_everything(self) -> None:
        """At start: the image was read before anybody listened."""
        for topic, number, _ in list(self._image.all_partitions()):
            self._look_at(topic, number)

    def _look_at(self, topic: Topic, number: int) -> None:
        state = topic.partitions[number]
        if state is not None:
            revision = self._image.mod_revision(keys.partition(topic.id, number))
            self.heard([PartitionChanged(topic, number, None, state, revision)])

    async def run(self) -> None:
        await self._work.run()

    async def _carry_out(self, delta: _Change) -> None:
        try:
            await self._follow(delta)
        except Exception as problem:
            self._follow_later(delta, problem)

    def _follow_later(self, delta: _Change, problem: Exception) -> None:
        """What can't be done now (a full disk, a bug) holds up nothing else, and is tried again."""
        if isinstance(problem, OSError):
            # That the disk is full is said once for all of them (DiskRoom).
            level = logging.INFO if problem.errno in FULL_DISK else logging.ERROR
            log.log(level, "%s: %s; trying again in %d s", type(delta).__name__, problem, RETRY_S)
        else:
            self._runtime.unexpected("follow the image", problem, type(delta).__name__)
        asyncio.get_running_loop().call_later(RETRY_S, self._work.put, delta)

    async def caught_up(self) -> None:
        """Until every change of the image so far has been carried out here."""
        await self._work.done()

    async def _follow(self, delta: _Change) -> None:
        if isinstance(delta, PartitionChanged):
            await self._partition_changed(delta.topic, delta.partition)
        elif isinstance(delta, TopicConfigChanged):
            for number in range(len(delta.topic.partitions)):
                self._configure(delta.topic, number)
        else:
            await self._delete_topic(delta)

    async def _partition_changed(self, topic: Topic, number: int) -> None:
        # Decide from what is true now: several changes may have come in while an earlier one was carried out.
        if self._image.topic(topic.name) is not topic or topic.partitions[number] is None:
            return
        state = topic.partitions[number]
        assert state is not None
        mine = self._image.broker_id in state.replicas
        partition = self.partitions.get((topic.name, number))
        if partition is not None and (partition.topic_id != topic.id or not mine):
            await self._drop(partition, topic.name)
            partition = None
        if not mine:
            self.offline.pop(TopicPartition(topic.name, number), None)
            # R35: should it come back, it starts empty. The metadata says in so many words that it is not ours.
            await self._logs.clear_away(topic, number)
            return
        if partition is None:
            try:
                partition = await self._open(topic, number)
            finally:
                if partition is None and state.leader == self._image.broker_id:
                    self._hand_over(topic.name, number)
            if partition is None:
                return
        await self._lead_or_follow(partition, topic, number, state)

    async def _lead_or_follow(
        self, partition: Partition, topic: Topic, number: int, state: PartitionState
    ) -> None:
        me = self._image.broker_id
        if partition.failed:
            if state.leader == me:
                self._hand_over(topic.name, number)
            return
        known = max(partition.log.epochs.latest, self._metadata.epochs_before.get((topic.id, number), -1))
        if state.leader_epoch < known:
            # F10: in this epoch somebody else has led already. It is raised before anybody leads or follows in it.
            if partition.is_leader:
                self._resign(partition)
            self.replicator.forget(partition)
            self._runtime.spawn(self._raise_epoch(topic, number, known), f"raise the epoch of {partition.tp}")
            return
        if not self._image.leads_in_this_life(topic, number, me, self.broker_epoch):
            if partition.is_leader:
                self._resign(partition)
            leader = state.leader if state.leader != me else NO_LEADER
            partition.follow(leader, state.leader_epoch, state.unclean_epoch)
            self.replicator.follow(partition, leader)
            return
        if partition.is_leader and partition.leader_epoch == state.leader_epoch:
            revision = self._image.mod_revision(keys.partition(topic.id, number))
            partition.tell_leader(
                PartitionRead(revision, state.leader_epoch, state.replicas, state.isr, state.elr)
            )
            return
        if partition.is_leader:
            self._resign(partition)
        self.replicator.forget(partition)
        partition.follow(NO_LEADER, state.leader_epoch)
        # R10: the epoch and where it begins are on disk before we append in it; nobody appends before we lead.
        try:
            if partition.log.is_unwritten:
                partition.log.start_epoch(state.leader_epoch)  # writes nothing, so it needs no thread
            else:
                await self._runtime.run_blocking(lambda: partition.log.start_epoch(state.leader_epoch))
        except OSError as problem:
            if problem.errno in FULL_DISK:
                self._hand_over(topic.name, number)  # to somebody who has room; else it is tried again
                raise
            log.critical("%s: epoch %d can't begin here: %s", partition.tp, state.leader_epoch, problem)
            partition.mark_failed()  # which hands the partition to somebody whose disk works
            return
        if (
            self._image.topic(topic.name) is not topic
            or topic.partitions[number] is not state
            or partition.failed
            or not self._image.leads_in_this_life(topic, number, me, self.broker_epoch)
        ):
            return
        partition.become_leader(self._new_leader(partition, topic, number, state))
        if not self._lease_told:
            partition.tell_leader(LeaseChanged(False))
        # All of them, not only today's replicas: a move may add any, and who is not known to live can't join (R14, R35).
        for node in self._image.brokers.values():
            if node.id != me:
                partition.tell_leader(BrokerChanged(node.id, node.epoch, node.live, node.rack))
        for callback in self.on_lead:
            callback(partition)

    def _new_leader(self, partition: Partition, topic: Topic, number: int, state: PartitionState) -> Leader:
        me, config, opened = self._image.broker_id, topic.config, partition.log
        node = self._image.broker(me)
        leadership = Leadership(
            broker_id=me,
            leader_epoch=state.leader_epoch,
            revision=self._image.mod_revision(keys.partition(topic.id, number)),
            replicas=state.replicas,
            isr=state.isr,
            elr=state.elr,
            min_isr=config.min_insync_replicas,
            min_racks=config.min_insync_racks,
            rack=None if node is None else node.rack,
            waits_for_sync=config.flush == "commit",
        )
        known = max(opened.checkpointed.high_watermark, partition.high_watermark)
        start = min(known, opened.durable_end)
        return Leader(
            leadership,
            opened.epochs,
            end_offset=opened.end_offset,
            # What is durable beyond the checkpoint is told by the first LocalDurable, which moves the high watermark.
            durable_end=start,
            high_watermark=max(start, opened.start_offset),
            now_ms=self._runtime.clock.now_ms(),
        )

    def _delegated(self, partition: Partition, effect: LeaderEffect) -> None:
        if isinstance(effect, StepDown):
            log.warning("%s: stepping down: %s", partition.tp, effect.reason)
            self._resign(partition)
        elif isinstance(effect, ProposeIsr):
            self._runtime.spawn(self._isr.propose(partition, effect), f"ISR of {partition.tp}")
        elif isinstance(effect, RereadPartition):
            self._runtime.spawn(self._read_again(partition), f"read {partition.tp} again")

    async def _read_again(self, partition: Partition) -> None:
        """A2: a leader that stepped down because of what a peer said, and that still leads, leads on (F15). While it leads,
        its machine asks again by itself; when it has stepped down, nobody else would.
        """
        while (leads := await self._isr.read_again(partition)) is None:
            if partition.is_leader or self.partitions.get(partition.tp) is not partition:
                return
            await asyncio.sleep(READ_AGAIN_S)
        topic = self._image.topic_by_id(partition.topic_id)
        if leads and not partition.is_leader and topic is not None:
            self._look_at(topic, partition.tp.partition)

    # -- what leaders have to know -------------------------------------------------------------------------------

    def broker_changed(self, broker_id: int) -> None:
        """A broker came, went, or was fenced: those who lead it have to know (R12, R14)."""
        node = self._image.broker(broker_id)
        event = BrokerChanged(
            broker_id,
            -1 if node is None else node.epoch,
            node is not None and node.live,
            None if node is None else node.rack,
        )
        for partition in list(self.partitions.values()):
            self._tell(partition, event)

    def _tell(self, partition: Partition, *events: LeaderEvent) -> None:
        """Told to many at once: one that raises is out of service, and the others hear of it (F16)."""
        try:
            for event in events:
                partition.tell_leader(event)
        except Exception as problem:
            self._runtime.unexpected("leader", problem, str(partition.tp))
            partition.mark_failed()

    async def tick(self, lease_held: Callable[[], bool], stalled: bool) -> None:
        """Now and then: slow followers leave the ISR (R15), and leaders learn whether our lease holds (R7). In slices, as
        there may be thousands (A3): all of them only when there is news for all."""
        held = lease_held()
        for_all = stalled or held != self._lease_told
        self._lease_told = held
        event = Stalled() if stalled else Tick()
        pace = Pace(self._runtime.clock)
        partitions = list(self.partitions.values())
        for first in range(0, len(partitions), LOOKED_AT_ONCE):
            looked = partitions[first : first + LOOKED_AT_ONCE]
            for partition in looked if for_all else [entry for entry in looked if entry.needs_ticks]:
                if partition.is_leader:
                    self._tell(partition, LeaseChanged(held), event)
                    await pace.step()
            await pace.step()

    def _resign(self, partition: Partition) -> None:
        partition.resign()
        for callback in self.on_resign:
            callback(partition)

    def _failed(self, partition: Partition) -> None:
        """This replica is out of service until a restart. Nobody may wait for us to lead it."""
        if self.partitions.get(partition.tp) is not partition:
            return  # it was dropped; what has its name now is another's
        self.offline[partition.tp] = partition.log.failed or "the replica failed; see the log"
        self.replicator.forget(partition)
        for callback in self.on_resign:
            callback(partition)
        self._hand_over(*partition.tp)

    def _hand_over(self, topic_name: str, number: int) -> None:
        tp = TopicPartition(topic_name, number)
        if tp not in self._giving_away:
            self._giving_away.add(tp)
            self._runtime.spawn(self._give_away(tp), f"hand over {topic_name}-{number}")

    async def _give_away(self, tp: TopicPartition) -> None:
        """Until somebody else leads, or our replica is repaired: we are alive, so the controller leaves the partition to us (F82).
        That no heir is up, or that the coordinator is away for a moment, is no reason to keep it for good."""
        try:
            while (topic := self._image.topic(tp.topic)) is not None:
                if await self._given_away(topic, tp.partition) or tp not in self.offline:
                    return
                await asyncio.sleep(READ_AGAIN_S)
        finally:
            self._giving_away.discard(tp)

    async def _given_away(self, topic: Topic, number: int) -> bool:
        """Also when there is nothing to give: somebody else leads, or there is nobody who could."""
        state, me = topic.partitions[number], self._image.broker_id
        if state is None or state.leader != me or state.replicas == (me,):
            return True
        change = hand_over(self._image, topic, number, me, Standings(self._image).of(topic.config))
        try:
            return change is not None and (await self._metadata.commit(change)).succeeded
        except HeadraceError as problem:
            log.info("%s-%d can't be handed over yet: %s", topic.name, number, problem.detail)
            return False

    async def _raise_epoch(self, topic: Topic, number: int, above: int) -> None:
        """Until it is above: by us or by another replica."""
        while self._image.topic(topic.name) is topic:
            change = raise_epoch(self._image, topic, number, above, self._image.broker_id)
            state = topic.partitions[number]
            if state is None or state.leader_epoch > above:
                return
            try:
                if change is not None and (await self._metadata.commit(change)).succeeded:
                    log.warning("%s-%d: the leader epoch is raised above %d", topic.name, number, above)
                    return
            except HeadraceError as problem:
                log.info("%s-%d: the epoch can't be raised yet: %s", topic.name, number, problem.detail)
            await asyncio.sleep(READ_AGAIN_S)

    def _configure(self, topic: Topic, number: int) -> None:
        partition = self.partitions.get((topic.name, number))
        if partition is not None:
            config = topic.config
            partition.configure(config, log_config(config))
            partition.tell_leader(
                RequirementsChanged(
                    config.min_insync_replicas, config.min_insync_racks, config.flush == "commit"
                )
            )

    # -- logs --------------------------------------------------------------------------------------------------

    async def _open(self, topic: Topic, number: int) -> Partition | None:
        tp = TopicPartition(topic.name, number)
        fs = self._logs.place(topic, number).fs
        try:
            opened, report = await self._logs.open_or_start_over(topic, number)
        except (LogCorrupt, WrongTopic, OSError) as problem:
            # S4: never start silently shortened.
            self.offline[tp] = str(problem)
            if isinstance(problem, OSError) and problem.errno in FULL_DISK:
                raise  # tried again until there is room (S15)
            log.critical("%s stays offline: %s", tp, problem)
            return None
        if report.truncated_bytes or report.quarantined:
            log.warning(
                "%s: cut off %d torn bytes that nobody was told of (S3); %s",
                tp,
                report.truncated_bytes,
                report,
            )
        elif not report.clean:
            log.info("%s: %s", tp, report)
        partition = Partition(
            tp,
            topic.id,
            opened,
            topic.config,
            fs,
            self._runtime,
            self._flusher,
            self._delegated,
            self._lease_held,
            self.watchlist,
        )
        partition.on_failed = self._failed
        partition.room = self.room if fs is self._runtime.fs else None
        self.offline.pop(tp, None)
        self.partitions[tp] = partition
        for callback in self.on_open:
            callback(partition)
        return partition

    async def _drop(self, partition: Partition, topic: str) -> None:
        """The metadata says in so many words that this replica is no longer ours."""
        self._resign(partition)
        self.replicator.forget(partition)
        del self.partitions[partition.tp]
        self.watchlist.forget(partition)
        partition.log.close(clean=False)

    async def _delete_topic(self, deleted: TopicGone) -> None:
        for number in range(deleted.partition_count):
            self.offline.pop(TopicPartition(deleted.name, number), None)
            partition = self.partitions.get((deleted.name, number))
            if partition is not None and partition.topic_id == deleted.topic_id:
                await self._drop(partition, deleted.name)
        await self._logs.clear_away_topic(deleted.name, deleted.topic_id)

    async def close(self, *, clean: bool) -> None:
        for partition in list(self.partitions.values()):
            self._resign(partition)
            partition.log.close(clean=clean)
        self.partitions.clear()
