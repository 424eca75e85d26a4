"""One broker of the replication model: a real image, a real Leader or Follower, and a log that forgets.

Everything between brokers goes through the cluster's mail, everything durable through the log and `previous`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tiny_coordinator import KeyEvent

from headrace.cluster import keys, membership
from headrace.cluster.deltas import BrokerDown, BrokerRegistered, BrokerUp, Delta, TopicConfigChanged
from headrace.cluster.image import ClusterImage
from headrace.cluster.membership import PreviousLife
from headrace.cluster.state import BrokerRegistration, PartitionState
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.log.epochs import LeaderEpochs
from headrace.replication import follower as f
from headrace.replication import leader as ld

if TYPE_CHECKING:
    from replication_model import ModelCluster

TOPIC_ID = bytes(range(1, 17))
PARTITION = keys.partition(TOPIC_ID, 0)


class Broken(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class ModelLog:
    """A log whose batches are single values."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, str]] = []
        self.durable = 0
        self.epochs = LeaderEpochs()

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def append(self, entries: list[tuple[int, str]]) -> None:
        for epoch, value in entries:
            assert epoch >= self.last_epoch, "R11: epochs never fall"
            self.epochs.assign(epoch, self.end)
            self.entries.append((epoch, value))

    def truncate(self, offset: int) -> None:
        del self.entries[offset:]
        self.epochs.truncate_end(offset)
        self.durable = offset

    def power_cut(self, kept: int) -> None:
        """`kept` of the batches that were not synced survive. What recovery finds it syncs."""
        del self.entries[self.durable + kept :]
        self.epochs = LeaderEpochs()
        for offset, (epoch, _) in enumerate(self.entries):
            self.epochs.assign(epoch, offset)
        self.durable = self.end


class Mail(NamedTuple):
    work: Callable[[], None]
    to: Node | None = None
    life: int = 0
    reliable: bool = True

    @property
    def arrives(self) -> bool:
        return self.to is None or (self.to.up and self.to.life == self.life)


class Node:
    def __init__(self, cluster: ModelCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.up = False
        self.life = 0
        self.broker_epoch = -1
        self.image = ClusterImage(broker_id)
        self.seen = 0
        self.now_ms = 0
        self.log = ModelLog()
        self.high_watermark_on_disk = 0
        self.previous: PreviousLife | None = None
        self.leader: ld.Leader | None = None
        self.follower: f.Follower | None = None
        self.role_epoch = -1
        self.waiting: list[tuple[int, str]] = []

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        store = self.cluster.store
        image = ClusterImage(self.id)
        image.resync(store.snapshot(), store.revision)
        registration = BrokerRegistration(
            "127.0.0.1", 9092, "127.0.0.1", 9324, f"{self.id}-{self.life + 1}", f"rack{self.id}"
        )
        change = membership.register(
            image, self.id, registration, lease=0, previous=self.previous, durable=True
        )
        if isinstance(change, Rejected) or not store.txn(change):
            return
        self.up, self.life = True, self.life + 1
        self.broker_epoch = store.revision
        self.previous = PreviousLife(self.broker_epoch, clean=False)
        self.image, self.seen = image, len(store.history)
        image.resync(store.snapshot(), store.revision)
        self.role_epoch = -1
        self.waiting = []
        self.leader = None
        self._become_follower(self.high_watermark_on_disk)
        self.obey([])

    def crash(self, kept: int) -> None:
        self.up = False
        self.log.power_cut(kept)
        self._forget()

    def stop(self) -> None:
        """A clean stop: everything synced, the marker written (R33)."""
        self.up = False
        self.high_watermark_on_disk = self.high_watermark
        self.log.durable = self.log.end
        self.previous = PreviousLife(self.broker_epoch, clean=True)
        self._forget()

    def _forget(self) -> None:
        self.leader = self.follower = None
        self.waiting = []

    @property
    def high_watermark(self) -> int:
        if self.leader is not None:
            return self.leader.high_watermark
        return self.follower.high_watermark if self.follower is not None else 0

    # -- metadata -----------------------------------------------------------------------------------------------------

    def partition(self) -> PartitionState | None:
        return self.image.partition("t", 0)

    def hear(self, event: KeyEvent) -> None:
        self.obey(self.image.apply(event))

    def read_everything(self) -> None:
        store = self.cluster.store
        self.obey(self.image.resync(store.snapshot(), store.revision))

    def reread_partition(self) -> None:
        self.read_everything()
        if self.leader is not None:
            self._tell_leader_partition()

    def obey(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            self._tell_leader(delta)
        partition, topic = self.partition(), self.image.topic("t")
        if partition is None or topic is None or not self.up:
            return
        if self.leader is not None:
            self._tell_leader_partition()
        if self.id not in partition.replicas:
            self._give_up_replica(partition)
            return
        if partition.leader_epoch <= self.role_epoch:
            return
        if partition.leader == self.id:
            if self.image.leads_in_this_life(topic, 0, self.id, self.broker_epoch):
                self._become_leader(partition)
            return
        self.role_epoch = partition.leader_epoch
        if self.follower is None:
            self._become_follower(self.high_watermark)
        if self.follower is not None:
            self.follower.step(
                f.LeaderChanged(partition.leader, partition.leader_epoch, partition.unclean_epoch)
            )

    def _give_up_replica(self, partition: PartitionState) -> None:
        """Moved away: the data is deleted; if the replica comes back it starts empty (R35)."""
        # We may be added again in this very epoch.
        self.role_epoch = partition.leader_epoch - 1
        self._forget()
        self.log = ModelLog()
        self.high_watermark_on_disk = 0

    def _tell_leader(self, delta: Delta) -> None:
        if self.leader is None:
            return
        match delta:
            case BrokerUp(broker):
                self.lead(ld.BrokerChanged(broker.id, broker.epoch, True, broker.rack))
            case BrokerRegistered(broker):
                self.lead(ld.BrokerChanged(broker.id, broker.epoch, False, broker.rack))
            case BrokerDown(broker_id, epoch, _):
                self.lead(ld.BrokerChanged(broker_id, epoch, False))
            case TopicConfigChanged(topic, _):
                config = topic.config
                self.lead(
                    ld.RequirementsChanged(
                        config.min_insync_replicas, config.min_insync_racks, config.flush == "commit"
                    )
                )

    def _tell_leader_partition(self) -> None:
        state = self.partition()
        if state is not None:
            revision = self.image.mod_revision(PARTITION)
            self.lead(ld.PartitionRead(revision, state.leader_epoch, state.replicas, state.isr, state.elr))

    # -- roles --------------------------------------------------------------------------------------------------------

    def _become_leader(self, partition: PartitionState) -> None:
        high_watermark = self.high_watermark
        self.role_epoch = partition.leader_epoch
        self.follower = None
        self.waiting = []
        topic = self.image.topic("t")
        assert topic is not None
        config = topic.config
        self.log.epochs.assign(partition.leader_epoch, self.log.end)  # R10
        self.leader = ld.Leader(
            ld.Leadership(
                broker_id=self.id,
                leader_epoch=partition.leader_epoch,
                revision=self.image.mod_revision(PARTITION),
                replicas=partition.replicas,
                isr=partition.isr,
                elr=partition.elr,
                min_isr=config.min_insync_replicas,
                rack=f"rack{self.id}",
                waits_for_sync=config.flush == "commit",
                lag_max_ms=3_000,
            ),
            self.log.epochs,
            end_offset=self.log.end,
            durable_end=self.log.durable,
            high_watermark=high_watermark,
            now_ms=self.now_ms,
        )
        self.cluster.leads(self, partition.leader_epoch)
        for broker in self.image.brokers.values():
            self.lead(ld.BrokerChanged(broker.id, broker.epoch, broker.live, broker.rack))
        self.lead(ld.LocalDurable(self.log.durable))

    def _become_follower(self, high_watermark: int) -> None:
        self.leader = None
        self.waiting = []
        self.follower = f.Follower(
            self.log.epochs,
            end_offset=self.log.end,
            durable_end=self.log.durable,
            last_epoch=self.log.last_epoch,
            high_watermark=high_watermark,
            log_start_offset=0,
            waits_for_sync=self.cluster.options.flush == "commit",
        )

    def lead(self, event: ld.LeaderEvent) -> list[Any]:
        leader = self.leader
        if leader is None:
            return []
        if isinstance(event, ld.Tick) and not leader.needs_ticks:
            return []  # F27: as the driver does
        effects = leader.step(event, self.now_ms)
        for effect in effects:
            self._carry_out(leader, effect)
        return effects

    def _carry_out(self, leader: ld.Leader, effect: ld.LeaderEffect) -> None:
        match effect:
            case ld.AdvanceHighWatermark(offset):
                self.cluster.committed_upto(self, offset)
                done = [entry for entry in self.waiting if entry[0] < offset]
                self.waiting = [entry for entry in self.waiting if entry[0] >= offset]
                for entry in done:
                    self.cluster.acknowledge(*entry)
            case ld.FailWaiters(kind):
                self.cluster.told += (
                    f"{self.id}: {value} fails with {kind.name}" for _, value in self.waiting
                )
                self.waiting = []
            case ld.ProposeIsr():
                self.cluster.propose(self, leader, effect)
            case ld.RereadPartition():
                self.cluster.post(self, self.reread_partition, reliable=True)
            case ld.StepDown(reason):
                self.cluster.told.append(f"{self.id}: steps down, {reason}")
                if self.leader is leader:
                    self._become_follower(leader.high_watermark)

    # -- records ------------------------------------------------------------------------------------------------------

    def produce(self, value: str) -> None:
        leader = self.leader
        if leader is None or leader.acks_all_refusal() is not None:
            return
        offset = self.log.end
        self.log.append([(leader.leader_epoch, value)])
        self.waiting.append((offset, value))
        self.lead(ld.LocalAppended(self.log.end))

    def sync(self) -> None:
        self.log.durable = self.log.end
        if self.leader is not None:
            self.lead(ld.LocalDurable(self.log.end))
        elif self.follower is not None:
            self.follower.step(f.Synced(self.log.end))

    def fetch(self) -> None:
        plan = self.follower.next_fetch() if self.follower is not None else None
        if plan is not None and plan.leader in self.cluster.nodes:
            source, life, epoch = self, self.life, self.broker_epoch
            self.cluster.post(
                self.cluster.nodes[plan.leader],
                lambda: self.cluster.nodes[plan.leader].serve(source, life, epoch, plan),
            )

    def serve(self, follower: Node, life: int, broker_epoch: int, plan: f.FetchPlan) -> None:
        """A follower's fetch has arrived; the answer goes back over the network."""

        def answer(event: f.FollowerEvent, entries: list[tuple[int, str]]) -> None:
            self.cluster.post(follower, lambda: follower.take(life, event, entries))

        leader = self.leader
        if leader is None:
            answer(f.FetchFailed(plan, ErrorKind.NOT_LEADER_OR_FOLLOWER), [])
            return
        request = ld.FollowerFetch(
            follower.id, broker_epoch, plan.fetch_offset, plan.last_fetched_epoch, plan.leader_epoch
        )
        for effect in self.lead(request):
            if isinstance(effect, ld.RefuseFetch):
                answer(f.FetchFailed(plan, effect.kind), [])
                return
            if isinstance(effect, ld.Diverging):
                answer(f.Diverged(plan, effect.epoch, effect.end_offset), [])
                return
        if plan.fetch_offset > self.log.end:
            answer(f.OutOfRange(plan, 0), [])
            return
        entries = self.log.entries[plan.fetch_offset : plan.fetch_offset + self.cluster.rng.randint(1, 4)]
        answer(f.Fetched(plan, bool(entries), leader.high_watermark, 0), entries)

    def take(self, life: int, event: f.FollowerEvent, entries: list[tuple[int, str]]) -> None:
        if life != self.life or self.follower is None:
            return
        follower = self.follower
        for effect in follower.step(event):
            match effect:
                case f.AppendRecords():
                    # An epoch we led without writing anything is void once another leader's records go there.
                    self.log.epochs.truncate_end(self.log.end)
                    self.log.append(entries)
                    follower.step(f.Appended(self.log.end, self.log.last_epoch))
                case f.TruncateTo(offset):
                    self.cluster.told.append(f"{self.id}: truncates from {self.log.end} to {offset}")
                    self.log.truncate(offset)
                    follower.step(f.Truncated(self.log.end, self.log.last_epoch))
                case f.GoOffline(reason):
                    raise Broken("NoTruncationBelowHighWatermark", f"broker {self.id}: {reason}")
                case f.RestartAt():
                    raise Broken("LogStart", "nothing is ever deleted here")
