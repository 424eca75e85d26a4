"""Runs tests/scenario/replication/*.txt: real leaders, followers and controllers around one partition.

Brokers are numbers; broker 1 is the controller at first. Messages arrive at once, metadata only when told. Steps:

    cluster [brokers=3] [replicas=3] [min-isr=2] [flush=commit|os]    before anything else
    write N COUNT          a producer with acks=all writes COUNT records to broker N, which syncs them
    append N COUNT         the same, but nothing is synced
    fetch N…               these brokers fetch until they know all their leader knows
    ask N…                 these brokers send one fetch; `hold` keeps requests under way, `release` lets them arrive
    crash N [keep=K]       power cut: of what was not synced K records survive
    stop N ; expire N… ; suspect N
    start N                start a broker, or let one that lost its registration register again
    control [N]            the controller does what there is to do; with N that broker becomes controller first
    tell N… | all          these brokers hear of all that has happened
    pass N 11s             time passes for broker N
    fate answer-lost|late|never       of the next ISR change
    min-isr K ; prefer N ; move N…    an administrator's wishes
    show                   every broker: log end, high watermark, role
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from replication_model import Fate, ModelCluster, Options
from replication_node import Mail, Node

from headrace.cluster import keys, membership
from headrace.cluster.changes import Change
from headrace.cluster.configs import Alteration, AlterOp
from headrace.cluster.state import NO_LEADER, PartitionState
from headrace.cluster.topics import alter_topic_configs
from headrace.core.units import parse_duration_ms
from headrace.replication import leader as ld

FILES = sorted((Path(__file__).parent / "replication").glob("*.txt"))


def listed(brokers: tuple[int, ...]) -> str:
    return ",".join(str(broker) for broker in brokers) or "-"


def described(state: PartitionState) -> str:
    leader = "none" if state.leader == NO_LEADER else str(state.leader)
    parts = [f"leader {leader}", f"epoch {state.leader_epoch}", f"isr {listed(state.isr)}"]
    if state.elr:
        parts.append(f"elr {listed(state.elr)}")
    if state.reassigning:
        parts.append(f"adding {listed(state.adding)} removing {listed(state.removing)}")
    return "  partition: " + " ".join(parts)


class Stage:
    def __init__(self) -> None:
        self.cluster = ModelCluster(0, Options(outcomes_get_lost=False, watch_is_hostile=False))
        self.holding = False
        self.shown = described(self.cluster.truth())

    def execute(self, line: str) -> list[str]:
        verb, *words = line.split()
        self.cluster.told = []
        plain = [word for word in words if "=" not in word]
        getattr(self, "do_" + verb.replace("-", "_"))(
            plain, dict(word.split("=") for word in words if "=" in word)
        )
        self.cluster.check()
        now = described(self.cluster.truth())
        if now != self.shown:
            self.cluster.told.append(now)
            self.shown = now
        return self.cluster.told

    def node(self, word: str) -> Node:
        return self.cluster.nodes[int(word)]

    def arrive(self) -> None:
        def kept(mail: Mail) -> bool:
            return self.holding and not mail.reliable

        self.cluster.deliver(kept)

    def controller(self) -> int:
        held = self.cluster.store.held[keys.CONTROLLER].value
        return next(number for number in self.cluster.nodes if f'"broker_id":{number},'.encode() in held)

    # -- steps --------------------------------------------------------------------------------------------------------

    def do_cluster(self, _: list[str], given: dict[str, str]) -> None:
        options = Options(
            brokers=int(given.get("brokers", "3")),
            replicas=int(given.get("replicas", "3")),
            min_isr=int(given.get("min-isr", "2")),
            flush=given.get("flush", "commit"),
            outcomes_get_lost=False,
            watch_is_hostile=False,
        )
        self.cluster = ModelCluster(0, options)
        self.shown = ""

    def do_write(self, plain: list[str], _: dict[str, str]) -> None:
        self.do_append(plain, _)
        self.node(plain[0]).sync()

    def do_append(self, plain: list[str], _: dict[str, str]) -> None:
        node = self.node(plain[0])
        refusal = node.leader.acks_all_refusal() if node.leader is not None else "not the leader"
        if refusal is not None:
            self.cluster.told.append(f"refused: {getattr(refusal, 'name', refusal)}")
            return
        for _number in range(int(plain[1])):
            self.cluster.values += 1
            node.produce(f"v{self.cluster.values}")

    def do_fetch(self, plain: list[str], _: dict[str, str]) -> None:
        for _round in range(30):
            for word in plain:
                self.node(word).sync()
                self.node(word).fetch()
                self.arrive()

    def do_ask(self, plain: list[str], _: dict[str, str]) -> None:
        for word in plain:
            self.node(word).fetch()
        self.arrive()

    def do_hold(self, plain: list[str], _: dict[str, str]) -> None:
        self.holding = True

    def do_release(self, plain: list[str], _: dict[str, str]) -> None:
        self.holding = False
        self.arrive()

    def do_crash(self, plain: list[str], given: dict[str, str]) -> None:
        self.node(plain[0]).crash(int(given.get("keep", "0")))

    def do_stop(self, plain: list[str], _: dict[str, str]) -> None:
        change = membership.announce_stop(self.node(plain[0]).image, int(plain[0]))
        assert change is not None
        self.cluster.store.txn(change)
        self.node(plain[0]).stop()

    def do_start(self, plain: list[str], _: dict[str, str]) -> None:
        node = self.node(plain[0])
        if node.up:
            self.cluster.tell(node.id)
            self.cluster.do_restart(node)
        else:
            node.start()
        fence = self.cluster.store.held.get(keys.fence(node.id))
        assert node.up and fence is not None

    def do_expire(self, plain: list[str], _: dict[str, str]) -> None:
        self.cluster.store.delete(*(keys.broker(int(word)) for word in plain))

    def do_suspect(self, plain: list[str], _: dict[str, str]) -> None:
        node = self.cluster.nodes[self.controller()]
        controller = node.image.controller
        assert controller is not None
        change = membership.fence_suspect(node.image, int(plain[0]), controller.epoch)
        assert change is not None and self.cluster.store.txn(change)

    def do_control(self, plain: list[str], _: dict[str, str]) -> None:
        if plain:
            self.cluster.make_controller(int(plain[0]))
        number = self.controller()
        self.cluster.tell(number)
        self.cluster.control(number, 10)
        self.arrive()

    def do_tell(self, plain: list[str], _: dict[str, str]) -> None:
        numbers = list(self.cluster.nodes) if plain == ["all"] else [int(word) for word in plain]
        self.cluster.tell(*(number for number in numbers if self.cluster.nodes[number].up))
        self.arrive()

    def do_pass(self, plain: list[str], _: dict[str, str]) -> None:
        node = self.node(plain[0])
        node.now_ms += parse_duration_ms(plain[1])
        node.lead(ld.Tick())
        self.arrive()

    def do_fate(self, plain: list[str], _: dict[str, str]) -> None:
        self.cluster.next_fate = Fate[plain[0].upper().replace("-", "_")]

    def do_min_isr(self, plain: list[str], _: dict[str, str]) -> None:
        node = self.cluster.nodes[self.controller()]
        controller, topic = node.image.controller, node.image.topic("t")
        assert controller is not None and topic is not None
        wish = Alteration("min.insync.replicas", AlterOp.SET, plain[0])
        change = alter_topic_configs(node.image, topic, [wish], controller.epoch)
        assert isinstance(change, Change) and self.cluster.store.txn(change)
        self.cluster.options.min_isr = min(self.cluster.options.min_isr, int(plain[0]))

    def do_prefer(self, plain: list[str], _: dict[str, str]) -> None:
        self.cluster.move_leader(int(plain[0]))

    def do_move(self, plain: list[str], _: dict[str, str]) -> None:
        self.cluster.move_partition(self.controller(), *(int(word) for word in plain))

    def do_show(self, plain: list[str], _: dict[str, str]) -> None:
        for number, node in self.cluster.nodes.items():
            if not node.up:
                self.cluster.told.append(f"{number}: down, {node.log.end} records")
                continue
            role = f"leads epoch {node.leader.leader_epoch}" if node.leader is not None else "follows"
            if node.follower is not None and node.follower.leader != NO_LEADER:
                role = f"follows {node.follower.leader} in epoch {node.follower.leader_epoch}"
            live = "" if self.cluster.is_live(number) else ", fenced"
            self.cluster.told.append(
                f"{number}: end {node.log.end} committed {node.high_watermark}, {role}{live}"
            )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path, scenario: Callable[[Path, Callable[[str], list[str]]], None]) -> None:
    scenario(path, Stage().execute)
