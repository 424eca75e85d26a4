"""Driver: the replicas on this broker. Opens, closes and deletes logs as the image says: several partitions at a time, each in order.

S12: a directory that no topic claims is never deleted. It is moved aside and reported, because missing metadata is
no proof that the data is not wanted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headrace.broker.disk_room import AUTOMATIC, DiskRoom
from headrace.broker.flusher import Flusher
from headrace.broker.isr_writer import IsrWriter
from headrace.broker.lanes import Lanes
from headrace.broker.metadata import Metadata
from headrace.broker.pacing import Pace
from headrace.broker.partition import Partition
from headrace.broker.replicator import Replicator
from headrace.broker.runtime import Runtime
from headrace.cluster import keys
from headrace.cluster.configs import TopicConfig
from headrace.cluster.controller import Standings
from headrace.cluster.election import hand_over, raise_epoch
from headrace.cluster.image import (
    BrokerDown,
    BrokerRegistered,
    BrokerUp,
    Delta,
    PartitionChanged,
    Topic,
    TopicConfigChanged,
    TopicDeleted,
)
from headrace.cluster.state import NO_LEADER, PartitionState
from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.ports import FileSystem
from headrace.core.units import is_digits
from headrace.log.config import LogConfig
from headrace.log.growing_log import FULL_DISK
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import LoadReport, LogCorrupt, WrongTopic
from headrace.log.segment_cache import SegmentCache
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

_Change = PartitionChanged | TopicDeleted | TopicConfigChanged
"""What there is to do for us in a change of the image."""
QUARANTINE = "quarantine"
DOOMED = ".deleted"
AT_ONCE = 6
"""Partitions that are opened, closed or deleted at a time: most of it is waiting for the disk (F27). Fewer than there are threads for
blocking work, since commits need one too."""
READ_AGAIN_S = 0.5
RETRY_S = 5.0


def log_config(config: TopicConfig) -> LogConfig:
    """The part of a topic's config that its logs go by."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        segment_jitter_ms=config.segment_jitter_ms,
        index_interval_bytes=config.index_interval_bytes,
        index_max_bytes=config.segment_index_bytes,
        delete=config.deletes_by_retention,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        timestamp_skew_ms=min(config.message_timestamp_after_max_ms, 2**53),
        file_delete_delay_ms=config.file_delete_delay_ms,
        compact=config.is_compacted,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
        delete_retention_ms=config.delete_retention_ms,
        log_append_time=config.is_log_append_time,
    )


def _touches(change: _Change) -> tuple[str, int | None]:
    """The topic, and the partition if it is only one."""
    if isinstance(change, PartitionChanged):
        return change.topic.name, change.partition
    return change.topic.name if isinstance(change, TopicConfigChanged) else change.name, None


def directory_name(topic: str, topic_id: bytes) -> str:
    """Readable for people, unique by the id: a topic created again under the same name gets its own (R34, X24)."""
    return f"{topic[:180]}@{topic_id.hex()}"


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
        self._runtime = runtime
        self._metadata = metadata
        self._image = metadata.image
        self._lease_held = lease_held
        self._isr = IsrWriter(runtime, metadata)
        self.replicator = replicator
        self._flusher = flusher
        self._log_dir = log_dir
        self._quarantine = f"{log_dir.rpartition('/')[0]}/{QUARANTINE}"
        self.room = DiskRoom(runtime.fs, log_dir, disk_reserve_bytes)
        self._memory = MemoryFileSystem()
        self._caches: dict[int, SegmentCache] = {}
        """One for each file system, shared by its logs, so that open files stay bounded (S17)."""
        self._ephemeral = ephemeral
        self._repair = repair
        self._work = Lanes(self._carry_out, _touches, AT_ONCE)

    # -- following the image -----------------------------------------------------------------------------------

    def heard(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, (PartitionChanged, TopicDeleted, TopicConfigChanged)):
                self._work.put(delta)
            elif isinstance(delta, (BrokerUp, BrokerRegistered)):
                self.broker_changed(delta.broker.id)
            elif isinstance(delta, BrokerDown):
                self.broker_changed(delta.broker_id)

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
            fs, directory = self._place(topic, number)
            if fs.exists(directory):
                await self._clear_away(fs, directory, f"{directory_name(topic.name, topic.id)}-{number}")
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
            await self._runtime.run_blocking(lambda: partition.log.start_epoch(state.leader_epoch))
        except OSError as problem:
            if problem.errno in FULL_DISK:
                self._hand_over(topic.name, number)  # to somebody who has room; else it is tried again
                raise
            log.critical("%s: epoch %d can't begin here: %s", partition.tp, state.leader_epoch, problem)
            partition.mark_failed()  # which hands the partition to somebody whose disk works
            return
        if (
            topic.partitions[number] is not state
            or partition.failed
            or not self._image.leads_in_this_life(topic, number, me, self.broker_epoch)
        ):
            return
        partition.become_leader(self._new_leader(partition, topic, number, state))
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
        there may be thousands (A3)."""
        pace = Pace(self._runtime.clock)
        async for partition in pace.over(list(self.partitions.values())):
            if partition.is_leader:
                self._tell(partition, LeaseChanged(lease_held()), Stalled() if stalled else Tick())

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
        self._runtime.spawn(self._give_away(topic_name, number), f"hand over {topic_name}-{number}")

    async def _give_away(self, topic_name: str, number: int) -> None:
        topic = self._image.topic(topic_name)
        if topic is None:
            return
        standing = Standings(self._image).of(topic.config)
        change = hand_over(self._image, topic, number, self._image.broker_id, standing)
        if change is None:
            return
        try:
            await self._metadata.commit(change)
        except HeadraceError as problem:
            log.warning("%s-%d can't be handed over yet: %s", topic_name, number, problem.detail)

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

    def _home(self, topic: Topic) -> tuple[FileSystem, str]:
        fs = self._memory if self._ephemeral or topic.config.is_memory else self._runtime.fs
        return fs, f"{self._log_dir}/{directory_name(topic.name, topic.id)}"

    def _place(self, topic: Topic, number: int) -> tuple[FileSystem, str]:
        fs, directory = self._home(topic)
        return fs, f"{directory}/{number}"

    async def _open_log(self, topic: Topic, number: int) -> tuple[PartitionLog, LoadReport]:
        fs, directory = self._place(topic, number)
        wall_ms = self._runtime.clock.wall_ms()
        cache = self._caches.setdefault(id(fs), SegmentCache(fs))
        return await self._runtime.run_blocking(
            lambda: PartitionLog.open(
                fs,
                directory,
                log_config(topic.config),
                topic_id=topic.id,
                wall_ms=wall_ms,
                cache=cache,
                repair=self._repair,
            )
        )

    async def _open_or_start_over(self, topic: Topic, number: int) -> tuple[PartitionLog, LoadReport]:
        """S3: a damaged replica that nobody counts on is put aside and fetched anew (F85). Its bytes are kept (S12).

        It can't be counted on meanwhile: who is in neither set gets into one only by fetching, and that needs the log. The
        image is no older than our registration, which took our earlier lives out of the ISR (R4).
        """
        try:
            return await self._open_log(topic, number)
        except LogCorrupt as problem:
            state = topic.partitions[number]
            if (
                state is None
                or self._image.broker_id in {*state.isr, *state.elr}
                or not state.isr + state.elr
            ):
                raise
            fs, directory = self._place(topic, number)
            aside = f"{directory_name(topic.name, topic.id)}-{number}-{self._runtime.clock.wall_ms()}"
            home = self._quarantine
            log.error(
                "%s-%d: %s; it is not in sync and others are: moved to %s/%s and fetched anew",
                topic.name, number, problem, home, aside,
            )  # fmt: skip
            await self._runtime.run_blocking(lambda: _put_aside(fs, directory, home, aside))
            return await self._open_log(topic, number)

    async def _open(self, topic: Topic, number: int) -> Partition | None:
        tp = TopicPartition(topic.name, number)
        fs, _ = self._place(topic, number)
        try:
            opened, report = await self._open_or_start_over(topic, number)
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
        partition.log.close(clean=False)

    async def _delete_topic(self, deleted: TopicDeleted) -> None:
        for number in range(deleted.partition_count):
            self.offline.pop(TopicPartition(deleted.name, number), None)
            partition = self.partitions.get((deleted.name, number))
            if partition is not None and partition.topic_id == deleted.topic_id:
                await self._drop(partition, deleted.name)
        directory = f"{self._log_dir}/{directory_name(deleted.name, deleted.topic_id)}"
        for fs in (self._memory, self._runtime.fs):
            if fs.exists(directory):
                await self._clear_away(fs, directory, directory_name(deleted.name, deleted.topic_id))

    async def _clear_away(self, fs: FileSystem, directory: str, name: str) -> None:
        """Data that the metadata says is not ours. A coordinator that was restored from a backup says so of everything that
        came later: then it is put aside (S12, F10)."""
        if self._metadata.restored is None or fs is self._memory:
            await self._runtime.run_blocking(lambda: _remove(fs, directory))
            return
        aside = f"{name}-{self._runtime.clock.wall_ms()}"
        log.error("a restored coordinator does not know %s: moved to %s/%s", name, self._quarantine, aside)
        await self._runtime.run_blocking(lambda: _put_aside(fs, directory, self._quarantine, aside))

    async def close(self, *, clean: bool) -> None:
        for partition in list(self.partitions.values()):
            self._resign(partition)
            partition.log.close(clean=clean)
        self.partitions.clear()

    # -- start-up ----------------------------------------------------------------------------------------------

    def quarantine_unknown(self) -> list[str]:
        """Directories that belong to no topic we know, moved aside (S12). Deletions are finished: those that we began, and
        those of topics of which the metadata says in so many words that they were deleted while we were away."""
        fs = self._runtime.fs
        known = {directory_name(topic.name, topic.id) for topic in self._image.topics.values()}
        moved = []
        for name in fs.list_dir(self._log_dir):
            if name.endswith(DOOMED):
                fs.remove_tree(f"{self._log_dir}/{name}")
            elif name in known:
                _finish_removals(fs, f"{self._log_dir}/{name}")
            elif self._image.was_deleted(name.rpartition("@")[2]):
                _remove(fs, f"{self._log_dir}/{name}")
            elif "@" in name:
                home = self._quarantine
                fs.make_dirs(home)
                fs.rename(f"{self._log_dir}/{name}", f"{home}/{name}")
                moved.append(name)
                log.error("no topic claims %s: moved to %s, nothing was deleted (S12)", name, home)
        return moved


def _put_aside(fs: FileSystem, directory: str, home: str, name: str) -> None:
    fs.make_dirs(home)
    fs.rename(directory, f"{home}/{name}")


def _remove(fs: FileSystem, directory: str) -> None:
    # Renamed first, so that a crash half-way can't leave something that looks like a topic (S20). What an earlier removal
    # of the same replica left behind would be in the way.
    doomed = directory + DOOMED
    if fs.exists(doomed):
        fs.remove_tree(doomed)
    fs.rename(directory, doomed)
    fs.remove_tree(doomed)


def _finish_removals(fs: FileSystem, topic_directory: str) -> None:
    """Replicas that were being removed from this topic when the broker stopped."""
    for name in fs.list_dir(topic_directory):
        if name.endswith(DOOMED) and is_digits(name.removesuffix(DOOMED)):
            fs.remove_tree(f"{topic_directory}/{name}")
