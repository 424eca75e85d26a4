"""The transaction shard against a dumb model: the tables of kafka.md 7 written down as they are read, for two ids.

Epochs start near their end, so that producer ids rotate in ordinary runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from transaction_world import World

from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.transactions.commands import (
    AddPartitions,
    EndTxn,
    InitProducerId,
    MarkersWritten,
    ProducerIdentity,
    SendMarkers,
    VerifyPartitions,
)
from headrace.transactions.facts import Loaded
from headrace.transactions.journal import transaction_record
from headrace.transactions.state import LAST_EPOCH, Transaction, TransactionState

IDS = st.sampled_from(["x", "y"])
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
SOME = st.frozensets(st.sampled_from(PARTITIONS), min_size=1)
TIMEOUT_MS = 10_000
FENCED, CONCURRENT = ErrorKind.PRODUCER_FENCED, ErrorKind.CONCURRENT_TRANSACTIONS
UNKNOWN, INVALID_STATE = ErrorKind.INVALID_PRODUCER_ID_MAPPING, ErrorKind.INVALID_TXN_STATE


@dataclass
class Model:
    """One transactional id. The retries are the identities whose last request may come again."""

    identity: tuple[int, int]
    state: str = "Empty"
    partitions: set[TopicPartition] = field(default_factory=set)
    unmarked: set[TopicPartition] = field(default_factory=set)
    deadline_ms: int | None = None
    init_retry: tuple[int, int] | None = None
    end_retry: tuple[int, int] | None = None
    promised: tuple[int, int] | None = None
    previous: int = -1

    def prepare(self, commit: bool) -> None:
        self.state = "PrepareCommit" if commit else "PrepareAbort"
        self.unmarked = set(self.partitions)
        self.deadline_ms = None
        if not self.unmarked:
            self.complete()

    def complete(self) -> None:
        self.state = self.state.replace("Prepare", "Complete")
        self.partitions.clear()
        if self.promised is not None:
            self.identity, self.promised = self.promised, None

    def fence(self) -> None:
        self.identity = (self.identity[0], self.identity[1] + 1)
        self.init_retry = self.end_retry = None
        self.prepare(False)

    @property
    def idle(self) -> bool:
        return self.state in ("Empty", "CompleteCommit", "CompleteAbort")


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.models: dict[str, Model] = {}
        self.known: list[tuple[int, int]] = [(999_999, 0)]
        """Every identity anybody was ever told: requests use any of them."""
        self.sent: dict[str, SendMarkers] = {}

    @initialize(epochs=st.tuples(*[st.integers(LAST_EPOCH - 3, LAST_EPOCH)] * 2))
    def start(self, epochs: tuple[int, int]) -> None:
        for name, producer_id, epoch in zip("xy", (1, 2), epochs, strict=True):
            empty = Transaction(name, producer_id, epoch, TransactionState.EMPTY, TIMEOUT_MS)
            self.world.shard.apply(Loaded(empty), self.world.now_ms)
            self.world.journal.append(transaction_record(empty))
            self.models[name] = Model((producer_id, epoch))
            self.known.append((producer_id, epoch))

    def ask(self, make: Any) -> Any:
        answer = self.world.ask(make)
        for effect in self.world.last.effects:
            self.sent[effect.transactional_id] = effect
        if isinstance(answer, ProducerIdentity) and answer.producer_id >= 0:
            self.known.append(answer[1:])
        return answer

    def pick(self, data: st.DataObject, name: str) -> tuple[int, int]:
        """Mostly the current identity, sometimes any other."""
        return data.draw(st.just(self.models[name].identity) | st.sampled_from(self.known[-8:]))

    # --- requests --------------------------------------------------------------------------------------------

    @rule(name=IDS, data=st.data(), recover=st.booleans())
    def init(self, name: str, data: st.DataObject, recover: bool) -> None:
        model = self.models[name]
        expected = self.pick(data, name) if recover else None
        drawn = self.world.draw()
        answer = self.ask(
            lambda w: InitProducerId(name, TIMEOUT_MS, drawn, *(expected or (-1, -1)), waiter=w)
        )
        if expected is not None and not self.may_recover(model, expected):
            assert answer.error is FENCED
        elif model.state.startswith("Prepare"):
            assert answer.error is CONCURRENT
        elif model.state == "Ongoing":
            assert answer.error is CONCURRENT
            model.fence()
        elif expected is None or expected == model.identity:
            pid, epoch = model.identity
            following = (drawn, 0) if epoch >= LAST_EPOCH else (pid, epoch + 1)
            assert answer == (ErrorKind.NONE, *following)
            model.init_retry = expected
            model.end_retry = None
            model.previous = pid if following[0] != pid else model.previous
            model.identity, model.state = following, "Empty"
        elif expected == model.init_retry:
            assert answer == (ErrorKind.NONE, *model.identity)
            model.state = "Empty"
            model.end_retry = None
        else:
            assert answer.error is FENCED

    def may_recover(self, model: Model, expected: tuple[int, int]) -> bool:
        if expected[0] != model.identity[0]:
            return expected == (model.previous, LAST_EPOCH)
        return expected[1] <= LAST_EPOCH

    def is_early(self, model: Model, who: tuple[int, int]) -> bool:
        """F25: the name that it was promised for its next transaction, before this one has its markers."""
        told = model.promised or model.identity
        return model.state.startswith("Prepare") and who == told and who[1] <= LAST_EPOCH

    @rule(name=IDS, partitions=SOME, data=st.data())
    def add(self, name: str, partitions: frozenset[TopicPartition], data: st.DataObject) -> None:
        model, who = self.models[name], self.pick(data, name)
        answer = self.ask(lambda w: AddPartitions(name, *who, partitions, waiter=w))
        if self.is_early(model, who):
            assert answer is CONCURRENT
        elif who[0] != model.identity[0]:
            assert answer is UNKNOWN
        elif who != model.identity or who[1] > LAST_EPOCH:
            assert answer is FENCED
        elif model.state.startswith("Prepare"):
            assert answer is CONCURRENT
        else:
            assert answer is ErrorKind.NONE
            if model.state != "Ongoing":
                model.state, model.deadline_ms = "Ongoing", self.world.now_ms + TIMEOUT_MS
            model.partitions |= partitions

    @rule(name=IDS, partitions=SOME, data=st.data())
    def verify(self, name: str, partitions: frozenset[TopicPartition], data: st.DataObject) -> None:
        model, who = self.models[name], self.pick(data, name)
        answer = self.ask(lambda w: VerifyPartitions(name, *who, partitions, waiter=w))
        if who == model.identity and who[1] <= LAST_EPOCH and not model.state.startswith("Prepare"):
            missing = ErrorKind.TRANSACTION_ABORTABLE
            assert answer == {p: ErrorKind.NONE if p in model.partitions else missing for p in partitions}
        else:
            assert ErrorKind.NONE not in answer.values()

    @rule(name=IDS, commit=st.booleans(), data=st.data())
    def end_old(self, name: str, commit: bool, data: st.DataObject) -> None:
        model, who = self.models[name], self.pick(data, name)
        answer = self.ask(lambda w: EndTxn(name, *who, commit, waiter=w))
        word = "Commit" if commit else "Abort"
        if self.is_early(model, who) and who[0] != model.identity[0]:
            assert answer.error is CONCURRENT
        elif who[0] != model.identity[0]:
            assert answer.error is UNKNOWN
        elif who != model.identity or who[1] > LAST_EPOCH:
            assert answer.error is FENCED
        elif model.state == "Ongoing":
            assert answer == (ErrorKind.NONE, -1, -1)
            model.end_retry = None
            model.prepare(commit)
        elif model.state == "Complete" + word:
            assert answer == (ErrorKind.NONE, -1, -1)
        else:
            assert answer.error is (CONCURRENT if model.state == "Prepare" + word else INVALID_STATE)

    @rule(name=IDS, commit=st.booleans(), data=st.data())
    def end_new(self, name: str, commit: bool, data: st.DataObject) -> None:
        model, who = self.models[name], self.pick(data, name)
        drawn = self.world.draw()
        answer = self.ask(lambda w: EndTxn(name, *who, commit, True, drawn, waiter=w))
        word = "Commit" if commit else "Abort"
        if who == model.end_retry and model.state not in ("Ongoing", "Empty"):
            if model.state == "Complete" + word:
                assert answer == (ErrorKind.NONE, *model.identity)
            else:
                assert answer.error is (CONCURRENT if model.state == "Prepare" + word else INVALID_STATE)
        elif self.is_early(model, who):
            assert answer.error is CONCURRENT
        elif who[0] != model.identity[0]:
            assert answer.error is UNKNOWN
        elif who != model.identity or who[1] > LAST_EPOCH or model.state.startswith("Prepare"):
            assert answer.error is FENCED
        elif model.idle and commit:
            assert answer.error is INVALID_STATE
        else:
            pid, epoch = who
            following = (drawn, 0) if epoch >= LAST_EPOCH else (pid, epoch + 1)
            assert answer == (ErrorKind.NONE, *following)
            model.end_retry = who
            model.init_retry = who
            model.promised = following if following[0] != pid else None
            model.previous = pid if following[0] != pid else model.previous
            model.identity = (pid, epoch + 1)
            model.prepare(commit)

    # --- markers, time, failure ------------------------------------------------------------------------------

    @rule(name=IDS, partitions=SOME)
    def mark(self, name: str, partitions: frozenset[TopicPartition]) -> None:
        sent = self.sent.get(name)
        if sent is None:
            return
        self.world.run(
            self.world.shard.decide(MarkersWritten(name, sent.marker_round, partitions), self.world.now_ms)
        )
        model = self.models[name]
        if model.state.startswith("Prepare"):
            assert sent.producer_epoch == model.identity[1] and set(sent.partitions) == model.partitions
            assert sent.commit == (model.state == "PrepareCommit")
            model.unmarked -= partitions
            if not model.unmarked:
                model.complete()

    @rule(ms=st.integers(1, 8_000))
    def advance(self, ms: int) -> None:
        before = len(self.world.effects)
        self.world.advance(ms)
        for effect in self.world.effects[before:]:
            self.sent[effect.transactional_id] = effect
        for model in self.models.values():
            if model.deadline_ms is not None and model.deadline_ms <= self.world.now_ms:
                model.fence()

    @rule(compacted=st.booleans())
    def restart(self, compacted: bool) -> None:
        self.world.restart(compacted=compacted)
        decided = {effect.transactional_id: effect for effect in self.world.effects}
        self.sent = decided
        for name, model in self.models.items():
            assert (name in decided) == model.state.startswith("Prepare")
            model.unmarked = set(model.partitions) if name in decided else set()
            if model.deadline_ms is not None:
                model.deadline_ms = self.world.now_ms + TIMEOUT_MS

    @invariant()
    def agree(self) -> None:
        for name, model in self.models.items():
            transaction = self.world.transaction(name)
            assert transaction.state.label == model.state
            assert transaction.partitions == model.partitions
            assert (transaction.producer_id, transaction.producer_epoch) == model.identity


Transactions.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTransactions = Transactions.TestCase
