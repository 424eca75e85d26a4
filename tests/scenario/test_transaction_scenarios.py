"""Runs tests/scenario/transactions/*.txt: one file per behaviour or KIP.

The transactional id is `x` unless a step says id=…; producers have names (a, b, …) and remember who they were told to be.
The n-th producer id drawn is 1000+n. Steps:

    config key=value …                        settings of TransactionConfig; before anything else
    init WHO [recover] [as=PID,EPOCH] [timeout=60s] [via=CONNECTION]
    add WHO t-0 … [via=…]                     AddPartitionsToTxn
    offsets WHO GROUP [via=…]                 AddOffsetsToTxn
    verify WHO t-0 …                          KIP-890 part 1
    commit|abort WHO [v2] [via=…]             EndTxn; v2 bumps the epoch
    marked [t-0 …] [round=N]                  the partitions have their markers (all, of the newest round)
    describe ID… ; list [state=…]
    epoch WHO PID EPOCH                       let WHO pretend to be somebody
    load ID PID EPOCH STATE [t-0 …]           as if the journal said so
    advance 3s                                stops at every deadline on the way
    restart [floor=N]                         another coordinator replays the journal
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transaction_world import World

from headrace.core.ids import TopicPartition
from headrace.core.plan import Plan
from headrace.core.units import parse_duration_ms
from headrace.transactions.commands import (
    AddOffsets,
    AddPartitions,
    CloseConnection,
    DescribeTransactions,
    EndTxn,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    ProducerIdentity,
    SendMarkers,
    VerifyPartitions,
)
from headrace.transactions.facts import Forgotten, Loaded, Moved
from headrace.transactions.state import Transaction, TransactionState

FILES = sorted((Path(__file__).parent / "transactions").glob("*.txt"))
STATES = {state.label: state for state in TransactionState}


def partition(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def identity(pair: tuple[int, int]) -> str:
    return f"{pair[0]}/{pair[1]}"


class Stage:
    """A shard with its journal, and producers that remember what they were told."""

    def __init__(self) -> None:
        self.world = World()
        self.world.now_ms = 0
        self.known: dict[str, tuple[int, int]] = {}
        self.sent: SendMarkers | None = None
        self.out: list[str] = []

    def execute(self, line: str) -> list[str]:
        verb, *words = line.split()
        self.out = []
        plain = [word for word in words if "=" not in word]
        given = dict(word.split("=", 1) for word in words if "=" in word)
        getattr(self, "do_" + verb)(plain, given)
        return self.out

    # --- driver ----------------------------------------------------------------------------------------------

    def ask(self, make: Callable[[int], Any]) -> Any:
        answer = self.world.ask(make)
        self.tell(self.world.last)
        return answer

    def tell(self, plan: Plan) -> None:
        """What was journaled and what the driver was asked to do."""
        for fact in plan.facts:
            if isinstance(fact, Moved):
                t = fact.transaction
                self.out.append(
                    f"journal: {t.transactional_id} {t.state.label} {identity((t.producer_id, t.producer_epoch))}"
                )
            elif isinstance(fact, Forgotten):
                self.out.append(f"journal: {fact.transactional_id} forgotten")
        for effect in plan.effects:
            if isinstance(effect, CloseConnection):
                self.out.append(f"close connection {effect.connection_id}")
                continue
            self.sent = effect
            kind = "COMMIT" if effect.commit else "ABORT"
            where = " ".join(str(tp) for tp in effect.partitions)
            who = identity((effect.producer_id, effect.producer_epoch))
            self.out.append(
                f"markers: {kind} {who} coordinator={effect.coordinator_epoch} round={effect.marker_round} to {where}"
            )

    def answered(self, who: str, verb: str, answer: ProducerIdentity) -> None:
        told = "" if answer.producer_id < 0 else f" {identity(answer[1:])}"
        if told:
            self.known[who] = answer[1:]
        self.out.append(f"{who}: {verb} {answer.error.name}{told}")

    # --- steps -----------------------------------------------------------------------------------------------

    def do_config(self, _: list[str], given: dict[str, str]) -> None:
        self.world = World(**{key: parse_duration_ms(value) for key, value in given.items()})
        self.world.now_ms = 0

    def do_init(self, plain: list[str], given: dict[str, str]) -> None:
        who, *flags = plain
        expected = self.known[who] if "recover" in flags else (-1, -1)
        drawn = self.world.draw()
        self.answered(
            who,
            "init",
            self.ask(
                lambda w: InitProducerId(
                    given.get("id", "x"),
                    parse_duration_ms(given.get("timeout", "60s")),
                    drawn,
                    *expected,
                    via(given),
                    waiter=w,
                )
            ),
        )

    def do_add(self, plain: list[str], given: dict[str, str]) -> None:
        who, *names = plain
        partitions = frozenset(partition(name) for name in names)
        producer = self.known[who]
        error = self.ask(
            lambda w: AddPartitions(given.get("id", "x"), *producer, partitions, via(given), waiter=w)
        )
        self.out.append(f"{who}: add {error.name}")

    def do_offsets(self, plain: list[str], given: dict[str, str]) -> None:
        who, group_id = plain
        producer = self.known[who]
        error = self.ask(
            lambda w: AddOffsets(given.get("id", "x"), *producer, group_id, via(given), waiter=w)
        )
        self.out.append(f"{who}: offsets {error.name}")

    def do_verify(self, plain: list[str], given: dict[str, str]) -> None:
        who, *names = plain
        partitions = frozenset(partition(name) for name in names)
        producer = self.known[who]
        answer = self.ask(lambda w: VerifyPartitions(given.get("id", "x"), *producer, partitions, waiter=w))
        self.out.append(f"{who}: verify " + " ".join(f"{tp}={answer[tp].name}" for tp in sorted(answer)))

    def do_commit(self, plain: list[str], given: dict[str, str]) -> None:
        self._end(plain, given, True)

    def do_abort(self, plain: list[str], given: dict[str, str]) -> None:
        self._end(plain, given, False)

    def _end(self, plain: list[str], given: dict[str, str], commit: bool) -> None:
        who, *flags = plain
        bump, producer = "v2" in flags, self.known[who]
        drawn = self.world.draw() if bump and producer[1] >= 32766 else -1
        answer = self.ask(
            lambda w: EndTxn(given.get("id", "x"), *producer, commit, bump, drawn, via(given), waiter=w)
        )
        self.answered(who, "commit" if commit else "abort", answer)

    def do_marked(self, plain: list[str], given: dict[str, str]) -> None:
        assert self.sent is not None
        partitions = frozenset(partition(name) for name in plain) or frozenset(self.sent.partitions)
        number = int(given.get("round", self.sent.marker_round))
        command = MarkersWritten(self.sent.transactional_id, number, partitions)
        self.world.run(self.world.shard.decide(command, self.world.now_ms))
        self.tell(self.world.last)

    def do_describe(self, plain: list[str], given: dict[str, str]) -> None:
        for item in self.ask(lambda w: DescribeTransactions(tuple(plain), waiter=w)):
            where = " ".join(str(tp) for tp in item.partitions)
            who = identity((item.producer_id, item.producer_epoch))
            self.out.append(f"{item.transactional_id}: {item.error.name} {item.state} {who} {where}".rstrip())

    def do_list(self, plain: list[str], given: dict[str, str]) -> None:
        states = frozenset(filter(None, given.get("state", "").split(",")))
        unknown, found = self.ask(lambda w: ListTransactions(states, waiter=w))
        self.out += (f"unknown state {name}" for name in unknown)
        self.out += (f"{item.transactional_id}: {item.producer_id} {item.state}" for item in found)

    def do_epoch(self, plain: list[str], given: dict[str, str]) -> None:
        self.known[plain[0]] = (int(plain[1]), int(plain[2]))

    def do_load(self, plain: list[str], given: dict[str, str]) -> None:
        name, producer_id, epoch, state, *where = plain
        partitions = frozenset(partition(text) for text in where)
        loaded = Transaction(name, int(producer_id), int(epoch), STATES[state], 60_000, partitions)
        self.world.shard.apply(Loaded(loaded), self.world.now_ms)

    def do_advance(self, plain: list[str], given: dict[str, str]) -> None:
        world = self.world
        end_ms = world.now_ms + parse_duration_ms(plain[0])
        while (at_ms := world.shard.next_deadline()) is not None and at_ms <= end_ms:
            world.now_ms = max(at_ms, world.now_ms)
            start = len(self.out)
            world.run(world.shard.expire(world.now_ms))
            self.tell(world.last)
            self.out[start:] = (f"[{world.now_ms / 1000:g}s] {line}" for line in self.out[start:])
        world.now_ms = end_ms

    def do_restart(self, plain: list[str], given: dict[str, str]) -> None:
        self.world.restart(connection_floor=int(given.get("floor", -1)))
        for name, entry in self.world.shard.table.entries.items():
            self.out.append(f"{name}: loaded {entry.transaction.state.label}")
        self.tell(self.world.last)


def via(given: dict[str, str]) -> int | None:
    return int(given["via"]) if "via" in given else None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path, scenario: Callable[[Path, Callable[[str], list[str]]], None]) -> None:
    scenario(path, Stage().execute)
