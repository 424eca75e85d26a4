"""A cluster of pure machines: real Leaders, Followers, images and controllers around one partition, exchanging messages
in any order over a network that loses and repeats them, on disks that forget what was not synced.

Nothing here decides about safety; that is what is tested. After each step `check` asserts the invariants of
correctness.md section 3 against the truth, which only the model can see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random

import msgspec
from replication_node import PARTITION, TOPIC_ID, Broken, Mail, Node
from tiny_coordinator import TinyCoordinator

from headrace.cluster import keys, membership
from headrace.cluster.changes import Change
from headrace.cluster.configs import Alteration, AlterOp
from headrace.cluster.controller import Standings, rebalance_leaders, reconcile
from headrace.cluster.election import alter_isr, isr_change
from headrace.cluster.image import ClusterImage
from headrace.cluster.membership import PreviousLife
from headrace.cluster.reassignment import start, stop
from headrace.cluster.state import NO_LEADER, BrokerRegistration, PartitionState, decode, encode
from headrace.cluster.topics import CreateTopic, alter_topic_configs, create_topic
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.replication import leader as ld

__all__ = ["Broken", "Fate", "ModelCluster", "Options"]


class Fate(Enum):
    """Of a transaction."""

    ANSWERED = 0
    ANSWER_LOST = 1
    LATE = 2
    NEVER = 3


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
        self.next_fate: Fate | None = None
        self.told: list[str] = []
        """What happened, for people."""
        self._truth: tuple[int, PartitionState | None] = (0, None)
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
        held = self.store.held[PARTITION]
        revision, state = self._truth
        if state is None or revision != held.mod_revision:
            state = decode(PartitionState, held.value)
            self._truth = (held.mod_revision, state)
        return state

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
        transaction may be late: told unknown first, done afterwards, or never."""
        fate = self.next_fate or self._fate()
        self.next_fate = None
        answer: ld.LeaderEvent = ld.IsrUnknown(proposal.revision)
        if fate is Fate.LATE:
            self.post_to_coordinator(lambda: self._swap_silently(change))
        elif fate is not Fate.NEVER:
            done = self.store.txn(change)
            if fate is Fate.ANSWERED:
                refused = ld.IsrRejected(proposal.revision)
                answer = ld.IsrCommitted(self.store.revision, new.isr, new.elr) if done else refused
        self.post(node, lambda: self._answer(node, leader, answer), reliable=True)

    def _fate(self) -> Fate:
        if not self.options.outcomes_get_lost:
            return Fate.ANSWERED
        return self.rng.choices(list(Fate), (80, 10, 5, 5))[0]

    def _swap_silently(self, change: Change) -> None:
        self.store.txn(change)

    @staticmethod
    def _answer(node: Node, leader: ld.Leader, answer: ld.LeaderEvent) -> None:
        if node.leader is leader:
            node.lead(answer)

    # -- what is true -------------------------------------------------------------------------------------------------

    def leads(self, node: Node, epoch: int) -> None:
        self.told.append(f"{node.id}: leads epoch {epoch} from {node.log.end}")
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
        self.told.append(f"{node.id}: committed up to {offset}")
        if self.options.flush == "commit":
            need = min(self.options.min_isr, len(self.nodes))
            copies = sum(other.log.entries[: len(mine)] == mine for other in self.nodes.values())
            if copies < need:
                raise Broken("EnoughCopies", f"{offset} records committed on {copies} brokers")

    def acknowledge(self, offset: int, value: str) -> None:
        if offset >= len(self.committed) or self.committed[offset][1] != value:
            raise Broken("AcknowledgedIsCommitted", f"{value} at {offset}")
        self.acknowledged[offset] = value
        self.told.append(f"acknowledged {value}")

    def check(self) -> None:
        self._check_partition(self.truth())
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
        registration = BrokerRegistration("127.0.0.1", 9092, "127.0.0.1", 9324, incarnation, f"rack{node.id}")
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
