"""A cluster of pure machines: real Leaders, Followers, images and controllers around one partition, exchanging messages
in any order over a network that loses and repeats them, on disks that forget what was not synced.

Nothing here decides about safety; that is what is tested. After each step `check` asserts the invariants of
correctness.md section 3 against the truth, which only the model can see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import msgspec
from tiny_coordinator import KeyEvent, TinyCoordinator

from headrace.cluster import keys, membership
from headrace.cluster.changes import Change
from headrace.cluster.configs import Alteration, AlterOp
from headrace.cluster.controller import Standings, rebalance_leaders, reconcile
from headrace.cluster.election import alter_isr, isr_change
from headrace.cluster.image import (
    BrokerDown,
    BrokerRegistered,
    BrokerUp,
    ClusterImage,
    Delta,
    TopicConfigChanged,
)
from headrace.cluster.membership import PreviousLife
from headrace.cluster.reassignment import start, stop
from headrace.cluster.state import NO_LEADER, PartitionState, Registration, decode, encode
from headrace.cluster.topics import CreateTopic, alter_topic_configs, create_topic
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.log.epochs import LeaderEpochs
from headrace.replication import follower as f
from headrace.replication import leader as ld

TOPIC_ID = bytes(range(1, 17))
PARTITION = keys.partition(TOPIC_ID, 0)


class Broken(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


@dataclass
class Options:
    brokers: int = 3
    min_isr: int = 2
    flush: str = "commit"
    steps: int = 400
    watch_is_hostile: bool = True
    outcomes_get_lost: bool = True
    replicas: int = 4
    """At most; fewer when there are fewer brokers."""
    weights: dict[str, float] = field(default_factory=dict)
    """How often each action is tried, over the defaults."""


DEFAULT_WEIGHTS = {
    "deliver": 30,
    "watch": 25,
    "fetch": 15,
    "produce": 6,
    "sync": 15,
    "tick": 3,
    "control": 15,
    "crash": 0.6,
    "stop": 0.2,
    "restart": 4,
    "expire": 1.5,
    "suspect": 0.2,
    "checkpoint": 1,
    "prefer": 0.5,
    "min_isr": 0.2,
    "lease": 0.2,
    "move": 0.0,
}


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
        registration = Registration(
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
            case ld.FailWaiters():
                self.waiting = []
            case ld.ProposeIsr():
                self.cluster.propose(self, leader, effect)
            case ld.RereadPartition():
                self.cluster.post(self, self.reread_partition, reliable=True)
            case ld.StepDown():
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
                    self.log.truncate(offset)
                    follower.step(f.Truncated(self.log.end, self.log.last_epoch))
                case f.GoOffline(reason):
                    raise Broken("NoTruncationBelowHighWatermark", f"broker {self.id}: {reason}")
                case f.RestartAt():
                    raise Broken("LogStart", "nothing is ever deleted here")


class ModelCluster:
    def __init__(self, seed: int, options: Options | None = None) -> None:
        self.rng = Random(seed)
        self.options = options or Options()
        self.store = TinyCoordinator()
        self.nodes = {number: Node(self, number) for number in range(1, self.options.brokers + 1)}
        self.mail: list[Mail] = []
        self.committed: list[tuple[int, str]] = []
        self.acknowledged: dict[int, str] = {}
        self.leaders: dict[int, tuple[int, int]] = {}
        self.values = 0
        self._truth = (0, None)
        self._set_up()

    def _set_up(self) -> None:
        for node in self.nodes.values():
            node.start()
        self.settle()
        first = self.nodes[1]
        controller = first.image.controller
        assert controller is not None
        created = create_topic(
            first.image,
            CreateTopic(
                "t",
                assignments={0: tuple(self.nodes)[: self.options.replicas]},
                configs={
                    "min.insync.replicas": str(self.options.min_isr),
                    "headrace.flush": self.options.flush,
                },
            ),
            topic_id=TOPIC_ID,
            wall_ms=0,
            controller_epoch=controller.epoch,
        )
        assert not isinstance(created, Rejected), created
        for change in created.changes:
            assert self.store.txn(change)
        self.settle()

    # -- the world ----------------------------------------------------------------------------------------------------

    def post(self, to: Node, work: Callable[[], None], *, reliable: bool = False) -> None:
        """To a process over the network; a reliable one is only lost when the process dies."""
        self.mail.append(Mail(work, to, to.life, reliable))

    def post_to_coordinator(self, work: Callable[[], None]) -> None:
        self.mail.append(Mail(work))

    def truth(self) -> PartitionState:
        return decode(PartitionState, self.store.held[PARTITION].value)

    def propose(self, node: Node, leader: ld.Leader, proposal: ld.ProposeIsr) -> None:
        """The driver's part of an ISR change: a compared transaction that takes its time."""
        state = node.partition()
        new: PartitionState | Rejected = Rejected(ErrorKind.INVALID_UPDATE_VERSION)
        topic = node.image.topic("t")
        if (
            state is not None
            and topic is not None
            and node.image.mod_revision(PARTITION) == proposal.revision
        ):
            new = alter_isr(
                state,
                leader=node.id,
                leader_epoch=leader.leader_epoch,
                isr=proposal.isr,
                min_isr=topic.config.min_insync_replicas,
            )
        if isinstance(new, Rejected):
            self.post(
                node, lambda: self._answer(node, leader, ld.IsrRejected(proposal.revision)), reliable=True
            )
            return
        change = isr_change(
            TOPIC_ID,
            0,
            revision=proposal.revision,
            new=new,
            broker_epoch=node.broker_epoch,
            joining=proposal.joining,
        )
        self.post_to_coordinator(lambda: self._swap(node, leader, proposal, new, change))

    def _swap(
        self, node: Node, leader: ld.Leader, proposal: ld.ProposeIsr, new: PartitionState, change: Change
    ) -> None:
        """The transaction reaches the coordinator, even if its sender is gone. The answer may get lost, or the
        transaction may be late: told unknown first, done afterwards."""
        if self.options.outcomes_get_lost and self.rng.random() < 0.1:
            self.post(
                node, lambda: self._answer(node, leader, ld.IsrUnknown(proposal.revision)), reliable=True
            )
            if self.rng.random() < 0.5:
                self.post_to_coordinator(lambda: self._swap_silently(change))
            return
        done = self.store.txn(change)
        revision = self.store.revision
        lost = self.options.outcomes_get_lost and self.rng.random() < 0.1
        answer: ld.LeaderEvent = ld.IsrRejected(proposal.revision)
        if done:
            answer = ld.IsrCommitted(revision, new.isr, new.elr)
        if lost:
            answer = ld.IsrUnknown(proposal.revision)
        self.post(node, lambda: self._answer(node, leader, answer), reliable=True)

    def _swap_silently(self, change: Change) -> None:
        self.store.txn(change)

    @staticmethod
    def _answer(node: Node, leader: ld.Leader, answer: ld.LeaderEvent) -> None:
        if node.leader is leader:
            node.lead(answer)

    # -- what is true -------------------------------------------------------------------------------------------------

    def leads(self, node: Node, epoch: int) -> None:
        other = self.leaders.setdefault(epoch, (node.id, node.life))
        if other != (node.id, node.life):
            raise Broken("OneLeaderPerEpoch", f"epoch {epoch}: {other} and {(node.id, node.life)}")
        # One that hears late of an election that is history by now leads nobody; it may lack what came after.
        if epoch == self.truth().leader_epoch and node.log.entries[: len(self.committed)] != self.committed:
            raise Broken(
                "LeaderCompleteness", f"broker {node.id} leads epoch {epoch} without all that is committed"
            )

    def committed_upto(self, node: Node, offset: int) -> None:
        mine = node.log.entries[:offset]
        common = min(len(mine), len(self.committed))
        if len(mine) < offset or mine[:common] != self.committed[:common]:
            raise Broken("ConsistentRead", f"broker {node.id} commits {mine[-3:]} over {self.committed[-3:]}")
        self.committed += mine[common:]
        if self.options.flush == "commit":
            need = min(self.options.min_isr, len(self.nodes))
            copies = sum(other.log.entries[: len(mine)] == mine for other in self.nodes.values())
            if copies < need:
                raise Broken("EnoughCopies", f"{offset} records committed on {copies} brokers")

    def acknowledge(self, offset: int, value: str) -> None:
        if offset >= len(self.committed) or self.committed[offset][1] != value:
            raise Broken("AcknowledgedIsCommitted", f"{value} at {offset}")
        self.acknowledged[offset] = value

    def check(self) -> None:
        revision = self.store.held[PARTITION].mod_revision
        if revision != self._truth[0]:
            self._truth = (revision, decode(PartitionState, self.store.held[PARTITION].value))
        self._check_partition(self._truth[1])
        for node in self.nodes.values():
            if node.up and node.high_watermark > len(self.committed):
                raise Broken("HighWatermark", f"broker {node.id} is at {node.high_watermark}")
            if node.up and node.log.entries[: node.high_watermark] != self.committed[: node.high_watermark]:
                raise Broken("LogMatching", f"broker {node.id} differs below its high watermark")

    def _check_partition(self, truth: PartitionState) -> None:
        if set(truth.isr) & set(truth.elr):
            raise Broken("IsrAndElrAreDisjoint", str(truth))
        if not truth.isr and not truth.elr and self.options.flush == "commit":
            raise Broken("SomeoneIsEligible", str(truth))
        for member in {*truth.isr, *truth.elr}:
            node = self.nodes[member]
            if self.is_live(member) and node.up and node.log.entries[: len(self.committed)] != self.committed:
                raise Broken(
                    "CandidateCompleteness", f"broker {member} could be elected and lacks committed records"
                )
        if truth.leader != NO_LEADER:
            node = self.nodes[truth.leader]
            leader = node.leader
            if leader is not None and leader.leader_epoch == truth.leader_epoch and leader._may_commit:
                waits_for = {*leader._maximal_isr()}
                if not waits_for >= {*truth.isr, *truth.elr}:
                    raise Broken("QuorumSuperset", f"waits for {waits_for}, the coordinator has {truth}")

    def is_live(self, broker_id: int) -> bool:
        return keys.broker(broker_id) in self.store.held and keys.fence(broker_id) not in self.store.held

    # -- chance -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        weights = {**DEFAULT_WEIGHTS, **self.options.weights}
        names, numbers = list(weights), list(weights.values())
        step = 0
        while step < self.options.steps:
            action = self.rng.choices(names, numbers)[0]
            able = [node for node in self.nodes.values() if self.can(action, node)]
            if able:
                getattr(self, f"do_{action}")(self.rng.choice(able))
                self.check()
                step += 1

    def can(self, action: str, node: Node) -> bool:
        """Whether the action would do anything: chance is spent on what matters."""
        match action:
            case "deliver":
                return bool(self.mail)
            case "restart":
                return not node.up or membership.must_register_again(node.image, node.id)
            case "expire":
                return keys.broker(node.id) in self.store.held
            case _ if not node.up:
                return False
            case "watch":
                return node.seen < len(self.store.history)
            case "fetch":
                return node.follower is not None and node.follower.next_fetch() is not None
            case "produce" | "lease":
                return node.leader is not None
            case "sync":
                return node.log.durable < node.log.end
            case "control" | "suspect" | "prefer" | "move":
                controller = node.image.controller
                return controller is None or controller.broker_id == node.id
        return True

    def do_deliver(self, _: Node) -> None:
        if not self.mail:
            return
        index = self.rng.randrange(len(self.mail))
        mail = self.mail[index]
        chance = 1.0 if mail.reliable else self.rng.random()
        if chance > 0.03:  # else it arrives twice
            del self.mail[index]
        if mail.arrives and (chance <= 0.03 or chance > 0.08):
            mail.work()

    def do_watch(self, node: Node) -> None:
        if not node.up:
            return
        history = self.store.history
        if self.options.watch_is_hostile and self.rng.random() < 0.1 and history:
            node.hear(self.rng.choice(history[: node.seen + 1]))  # a repeated event
            return
        if self.options.watch_is_hostile and self.rng.random() < 0.05:
            node.seen = len(history)  # lost events, then a full read
            node.read_everything()
            return
        for event in history[node.seen : node.seen + self.rng.randint(1, 5)]:
            node.seen += 1
            node.hear(event)

    def do_fetch(self, node: Node) -> None:
        if node.up:
            node.fetch()

    def do_produce(self, node: Node) -> None:
        if node.up:
            self.values += 1
            node.produce(f"v{self.values}")

    def do_sync(self, node: Node) -> None:
        if node.up:
            node.sync()

    def do_tick(self, node: Node) -> None:
        node.now_ms += 1_000
        if node.up:
            node.lead(ld.Tick())

    def do_lease(self, node: Node) -> None:
        if node.up:
            node.lead(ld.LeaseChanged(self.rng.random() < 0.7))

    def do_checkpoint(self, node: Node) -> None:
        if node.up:
            node.high_watermark_on_disk = node.high_watermark

    def do_crash(self, node: Node) -> None:
        if node.up:
            node.crash(self.rng.randint(0, node.log.end - node.log.durable))

    def do_stop(self, node: Node) -> None:
        if node.up:
            change = membership.announce_stop(node.image, node.id)
            if change is not None and self.rng.random() < 0.5:
                self.store.txn(change)
            node.stop()

    def do_restart(self, node: Node) -> None:
        if not node.up:
            node.start()
        elif membership.must_register_again(node.image, node.id):
            self._register_again(node)

    def _register_again(self, node: Node) -> None:
        """The process never died: same incarnation, new epoch."""
        image = ClusterImage(node.id)
        image.resync(self.store.snapshot(), self.store.revision)
        incarnation = f"{node.id}-{node.life}"
        registration = Registration("127.0.0.1", 9092, "127.0.0.1", 9324, incarnation, f"rack{node.id}")
        change = membership.register(
            image, node.id, registration, lease=0, previous=node.previous, durable=True
        )
        if not isinstance(change, Rejected) and self.store.txn(change):
            node.broker_epoch = self.store.revision
            node.previous = PreviousLife(node.broker_epoch, clean=False)

    def do_expire(self, node: Node) -> None:
        """A lease ends: of a dead broker often, of a live one rarely (R8)."""
        if not node.up or self.rng.random() < 0.05:
            doomed = [keys.broker(node.id)]
            controller = self.store.held.get(keys.CONTROLLER)
            if controller is not None and f'"broker_id":{node.id},'.encode() in controller.value:
                doomed.append(keys.CONTROLLER)
            self.store.delete(*doomed)

    def do_suspect(self, node: Node) -> None:
        controller = node.image.controller
        if node.up and controller is not None and controller.broker_id == node.id:
            change = membership.fence_suspect(node.image, self.rng.choice(list(self.nodes)), controller.epoch)
            if change is not None:
                self.store.txn(change)

    def do_prefer(self, node: Node) -> None:
        controller = node.image.controller
        if node.up and controller is not None and controller.broker_id == node.id:
            for change in rebalance_leaders(node.image, controller.epoch):
                self.store.txn(change)

    def do_move(self, node: Node) -> None:
        """An administrator moves the partition, or thinks better of it."""
        controller, topic = node.image.controller, node.image.topic("t")
        if controller is None or topic is None:
            return
        standing = Standings(node.image).of(topic.config)
        target = self.rng.sample(sorted(self.nodes), min(self.options.replicas, len(self.nodes)))
        change = start(node.image, topic, 0, target, controller.epoch, standing)
        if self.rng.random() < 0.2:
            change = stop(node.image, topic, 0, controller.epoch, standing)
        if isinstance(change, Change):
            self.store.txn(change)

    def do_min_isr(self, node: Node) -> None:
        controller, topic = node.image.controller, node.image.topic("t")
        if node.up and controller is not None and topic is not None:
            # Never below what the run promises, so that EnoughCopies stays a fair question.
            wanted = str(self.rng.randint(self.options.min_isr, 3))
            alteration = Alteration("min.insync.replicas", AlterOp.SET, wanted)
            change = alter_topic_configs(node.image, topic, [alteration], controller.epoch)
            if isinstance(change, Change):
                self.store.txn(change)

    def do_control(self, node: Node) -> None:
        if not node.up:
            return
        controller = node.image.controller
        if controller is None:
            change = membership.become_controller(node.image, node.id, node.broker_epoch, 0)
            if change is not None:
                self.store.txn(change)
            return
        if controller.broker_id != node.id:
            return
        decisions = reconcile(node.image, controller.epoch)
        if any("let in" in change.why for change in decisions.changes):
            # R2: a fence is lifted only on a fresh read.
            node.read_everything()
            controller = node.image.controller
            if controller is None or controller.broker_id != node.id:
                return
            decisions = reconcile(node.image, controller.epoch)
        for change in decisions.changes:
            self.store.txn(change)

    # -- stories: one thing after the other ---------------------------------------------------------------------------

    def tell(self, *nodes: int) -> None:
        """These brokers hear all that has happened."""
        for number in nodes:
            node = self.nodes[number]
            while node.seen < len(self.store.history):
                node.seen += 1
                node.hear(self.store.history[node.seen - 1])
        self.check()

    def deliver(self, kept: Callable[[Mail], bool] = lambda mail: False) -> None:
        """Everything under way arrives, and what it gives rise to; `kept` stays under way."""
        for _ in range(100):
            due = [mail for mail in self.mail if not kept(mail)]
            if not due:
                return
            self.mail = [mail for mail in self.mail if kept(mail)]
            for mail in due:
                if mail.arrives:
                    mail.work()
                    self.check()

    def replicate(self, *nodes: int, rounds: int = 12) -> None:
        """These brokers fetch, sync and fetch again, until their leaders know what they have."""
        for _ in range(rounds):
            for number in nodes:
                self.nodes[number].sync()
                self.nodes[number].fetch()
                self.deliver()

    def write(self, node: int, count: int) -> None:
        for _ in range(count):
            self.values += 1
            self.nodes[node].produce(f"v{self.values}")
            self.nodes[node].sync()
        self.check()

    def control(self, node: int, times: int = 6) -> None:
        """This broker, the controller, does what there is to do, hearing of its own work."""
        for _ in range(times):
            self.do_control(self.nodes[node])
            self.tell(node)

    def make_controller(self, node: int) -> None:
        self.store.delete(keys.CONTROLLER)
        self.tell(node)
        self.control(node, 1)

    def move_partition(self, controller: int, *target: int) -> None:
        """The controller, up to date, moves the partition; ended at once when nothing has to be caught up."""
        node = self.nodes[controller]
        topic, leader = node.image.topic("t"), node.image.controller
        assert topic is not None and leader is not None
        change = start(node.image, topic, 0, target, leader.epoch, Standings(node.image).of(topic.config))
        assert isinstance(change, Change) and self.store.txn(change)
        self.tell(controller)
        self.control(controller)

    def move_leader(self, to: int) -> None:
        """An election among in-sync replicas (R32)."""
        truth = self.truth()
        new = msgspec.structs.replace(
            truth, leader=to, leader_epoch=truth.leader_epoch + 1, partition_epoch=truth.partition_epoch + 1
        )
        assert to in truth.isr
        self.store.put(PARTITION, encode(new))

    # -- calm ---------------------------------------------------------------------------------------------------------

    def settle(self, rounds: int = 60) -> None:
        """No more faults: everything runs until it should be well again."""
        for _ in range(rounds):
            for node in self.nodes.values():
                if not node.up or membership.must_register_again(node.image, node.id):
                    self.do_restart(node)
                if node.leader is not None:
                    node.lead(ld.LeaseChanged(True))
                node.sync()
                node.fetch()
                node.now_ms += 200
                node.lead(ld.Tick())
                self.do_control(node)
            mail, self.mail = self.mail, []
            for letter in mail:
                if letter.arrives:
                    letter.work()
            for node in self.nodes.values():
                if node.up:
                    node.read_everything()
                    node.seen = len(self.store.history)

    def check_recovered(self) -> None:
        """Liveness: after the faults everyone agrees, and everything committed is everywhere."""
        problem = "never"
        for _ in range(20):
            self.settle(20)
            problem = self._not_recovered()
            if not problem:
                return
        raise Broken("Recovers", problem)

    def _not_recovered(self) -> str:
        truth = self.truth()
        if set(truth.isr) != set(truth.replicas) or truth.leader == NO_LEADER:
            return str(truth)
        for replica in truth.replicas:
            node = self.nodes[replica]
            if node.log.entries[: len(self.committed)] != self.committed:
                return f"broker {replica} lacks committed records"
            if node.high_watermark != node.log.end:
                return f"broker {replica} knows {node.high_watermark} of {node.log.end} to be committed"
        return ""
