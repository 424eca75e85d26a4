"""The queue shard against a dumb model: every message in exactly one state, never two live leases, acked never returns.

Between any two commands the shard may crash: its journal is compacted up to anywhere, perhaps without tombstones, the
last command perhaps not in it, a checkpoint perhaps cut in the middle; another shard replays it and reads the log again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from queue_desk import EPOCH_MS, SOURCE, Desk
from queue_model import DONE, DYING, LEASED, READY, RESTING, SCHEDULED, QueueModel, Row

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.queues import draft as draft_module
from headrace.queues.commands import (
    Ack,
    Acknowledge,
    AckType,
    CancelSchedule,
    DeadLettersWritten,
    Extend,
    Handle,
    ListSchedules,
    LoggedMessage,
    MoveFailed,
    MoveSchedule,
    MoveToDeadLetter,
    Purge,
    Receive,
    ReceivedRuns,
    RejectMessages,
    Release,
    ReleaseOwner,
    SeekSource,
)
from headrace.queues.config import QueueConfig
from headrace.queues.journal import DEDUP, DELTA

CONFIGS = {
    "plain": QueueConfig(visibility_ms=100, max_deliveries=3, max_in_flight=6),
    "dead-letters": QueueConfig(visibility_ms=100, max_deliveries=2, dead_letter="d"),
    "journaled": QueueConfig(visibility_ms=100, max_deliveries=3, journaled_leases=True),
    "delays": QueueConfig(visibility_ms=100, delays=True, ttl=True, dead_letter="d", dead_letter_expired=True),
    "priorities": QueueConfig(visibility_ms=100, priorities=True, delays=True, filtered=True),
    "fair": QueueConfig(visibility_ms=100, fair=True, ttl=True),
    "fifo": QueueConfig(
        visibility_ms=100, fifo=True, dedup_window_ms=50, delays=True, max_deliveries=2, dead_letter="d",
        journaled_leases=True,
    ),
    "fifo-in-memory": QueueConfig(visibility_ms=100, fifo=True, ttl=True),
    "everything": QueueConfig(
        visibility_ms=100, priorities=True, fair=True, delays=True, ttl=True, filtered=True, dedup_window_ms=50,
        max_deliveries=3, dead_letter="d", max_in_flight=8,
    ),
}  # fmt: skip

times = st.integers(0, 150)
picks = st.lists(st.integers(0, 200), min_size=1, max_size=4)


class QueueAgainstModel(RuleBasedStateMachine):
    config: QueueConfig

    @initialize()
    def start(self) -> None:
        self.desk = Desk(self.config)
        self.model = QueueModel(self.config)
        self.remember()

    def remember(self) -> None:
        """Where to go back to when the next command is lost in a crash."""
        self.before = self.model.copy()
        self.journal_before = len(self.desk.journal)
        self.log_before = len(self.model.rows)

    def ask(self, command: Any) -> Any:
        self.remember()
        return self.desk.ask(command)

    def receipts(self, numbers: list[int]) -> list[Handle]:
        """Some receipts, recent ones more often; one that is not of the log's making now and then."""
        return [self.model.receipts[-1 - number % len(self.model.receipts)] for number in numbers]

    # --- the log -----------------------------------------------------------------------------------------------------

    @rule(
        specs=st.lists(
            st.tuples(
                st.sampled_from([0, 0, 0, 20, 60, 200]), st.sampled_from([b"", b"a", b"b"]),
                st.sampled_from([b"", b"", b"1", b"2"]), st.sampled_from([4, 4, 1, 9]),
                st.sampled_from([0, 0, 0, 30, 120]), st.sampled_from([False, False, False, True]),
            ),
            min_size=1, max_size=6,
        )
    )  # fmt: skip
    def send(self, specs: list[tuple[int, bytes, bytes, int, int, bool]]) -> None:
        self.remember()
        wall_ms = self.model.wall_ms
        messages = []
        for delay, group, dedup_id, priority, ttl, skipped in specs:
            offset = len(self.model.rows)
            due_ms = wall_ms + delay if delay and self.config.delays else 0
            expires_ms = wall_ms + ttl if ttl and self.config.ttl else 0
            message = LoggedMessage(offset, due_ms, group, dedup_id, priority, expires_ms, wall_ms)
            skipped = skipped and self.config.filtered
            if skipped:
                self.desk.skipped.setdefault(SOURCE, set()).add(offset)
                message = LoggedMessage(offset)
            messages.append(message)
            self.model.send(message, skipped=skipped)
        self.desk.send(*messages)
        self.model.tick(self.model.now_ms)
        self.desk.tick(self.desk.now_ms)

    @rule(by_ms=times)
    def advance(self, by_ms: int) -> None:
        self.remember()
        self.desk.advance(by_ms)
        self.model.tick(self.model.now_ms + by_ms)

    # --- receive -------------------------------------------------------------------------------------------------------

    @rule(
        limit=st.integers(1, 8),
        visibility_ms=st.sampled_from([None, 40, 100, 300]),
        owner=st.sampled_from(["", "x"]),
    )
    def receive(self, limit: int, visibility_ms: int | None, owner: str) -> None:
        model = self.model
        room = self.config.max_in_flight - len(model.in_state(LEASED))
        candidates = model.receivable()
        worn = [
            r for r in candidates if self.config.max_deliveries and r.deliveries >= self.config.max_deliveries
        ]
        received = self.ask(Receive(SOURCE, limit, visibility_ms, owner))
        assert isinstance(received, ReceivedRuns)
        assert received.limited == (room <= 0)
        handles = received.handles()
        offsets = [handle.offset for handle in handles]
        assert len(set(offsets)) == len(offsets)
        assert set(offsets) <= {row.offset for row in candidates} - {row.offset for row in worn}
        if not worn:
            assert len(offsets) == max(0, min(limit, room, len(candidates)))
            self.check_order(offsets, candidates)
        for handle in handles:
            assert handle.delivery == model.rows[handle.offset].deliveries + 1
            model.lease(handle, received.visibility_ms, owner)
        for row in worn:
            # After a failover a message may be found to have had all its deliveries; it dies when its turn comes.
            if self.desk.status(row.offset).state is not READY:
                model.die(row)

    def check_order(self, offsets: list[int], candidates: list[Row]) -> None:
        chosen = [self.model.rows[offset] for offset in offsets]
        left = [row for row in candidates if row not in chosen]
        if self.config.priorities and chosen:
            lowest = min(self.model.group(row)[0] for row in chosen)
            assert all(self.model.group(row)[0] <= lowest for row in left), "a lower priority overtook"
        for (
            row
        ) in left:  # within a lane, the lowest offset goes first; of a FIFO group that is the order (R59)
            behind = [one for one in chosen if self.model.group(one) == self.model.group(row)]
            assert all(one.offset < row.offset for one in behind)
        if self.config.fair and not self.config.ttl and not self.config.priorities:
            shares = Counter(self.model.group(row) for row in chosen)
            starved = {self.model.group(row) for row in left}
            assert all(shares[group] >= max(shares.values()) - 1 for group in starved if shares)

    # --- with a receipt ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.receipts)
    @rule(numbers=picks)
    def ack(self, numbers: list[int]) -> None:
        handles = self.receipts(numbers)
        results = self.ask(Ack(SOURCE, tuple(handles)))
        for handle, result in zip(handles, results, strict=True):
            if not self.before.may_be_forgotten(handle):
                assert (result is None) == self.before.may_ack(handle)
            if result is None:
                self.model.finish(self.model.rows[handle.offset])
            else:
                assert result.kind is ErrorKind.RECEIPT_HANDLE_IS_INVALID

    @precondition(lambda self: self.model.receipts)
    @rule(numbers=picks, delay_ms=st.sampled_from([0, 0, 30, 90]))
    def release(self, numbers: list[int], delay_ms: int) -> None:
        handles = self.receipts(numbers)
        self.check_held(handles, self.ask(Release(SOURCE, tuple(handles), delay_ms)))
        for handle in sorted(set(handles)):
            if self.before.holds(handle):
                self.model.give_back(self.model.rows[handle.offset], delay_ms)

    @precondition(lambda self: self.model.receipts)
    @rule(numbers=picks, visibility_ms=st.sampled_from([0, 10, 150, 400]))
    def extend(self, numbers: list[int], visibility_ms: int) -> None:
        handles = self.receipts(numbers)
        self.check_held(handles, self.ask(Extend(SOURCE, tuple(handles), visibility_ms)))
        for handle in sorted(set(handles)):
            if self.before.holds(handle):
                row = self.model.rows[handle.offset]
                if visibility_ms:
                    self.model.extend(row, visibility_ms)
                else:
                    self.model.give_back(row, 0)

    @precondition(lambda self: self.model.receipts)
    @rule(numbers=picks)
    def reject(self, numbers: list[int]) -> None:
        handles = self.receipts(numbers)
        self.check_held(handles, self.ask(RejectMessages(SOURCE, tuple(handles), "no good")))
        for handle in set(handles):
            if self.before.holds(handle):
                self.model.die(self.model.rows[handle.offset])

    def check_held(self, handles: list[Handle], results: tuple[Rejected | None, ...]) -> None:
        for handle, result in zip(handles, results, strict=True):
            assert (result is None) == self.before.holds(handle)
            assert result is None or result.kind in (
                ErrorKind.RECEIPT_HANDLE_IS_INVALID, ErrorKind.MESSAGE_NOT_INFLIGHT,
            )  # fmt: skip

    # --- share groups ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.in_state(LEASED))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        rows = self.model.in_state(LEASED)
        row = data.draw(st.sampled_from(rows))
        size = data.draw(st.integers(1, 3))
        types = data.draw(st.lists(st.sampled_from(list(AckType)), min_size=size, max_size=size))
        owner = data.draw(st.sampled_from(["", "x"]))
        answer = self.ask(Acknowledge(SOURCE, owner, ((row.offset, row.offset + size - 1, tuple(types)),)))
        affected = self.model.rows[row.offset : row.offset + size]
        if len(affected) < size or not all(one.state is LEASED and one.owner == owner for one in affected):
            assert answer.kind is ErrorKind.INVALID_RECORD_STATE
            return
        assert answer is None
        for one, ack_type in zip(affected, types, strict=True):
            match ack_type:
                case AckType.GAP | AckType.ACCEPT:
                    self.model.finish(one)
                case AckType.RELEASE:
                    self.model.give_back(one, 0)
                case AckType.REJECT:
                    self.model.die(one)
                case AckType.RENEW:
                    self.model.extend(one, self.config.visibility_ms)

    @rule()
    def session_ends(self) -> None:
        self.ask(ReleaseOwner("q", "x"))
        for row in self.model.in_state(LEASED):
            if row.owner == "x":
                self.model.give_back(row, 0)

    # --- dead letters --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.in_state(DYING))
    @rule(number=st.integers(0, 100))
    def moved(self, number: int) -> None:
        dying = self.model.in_state(DYING)
        row = dying[number % len(dying)]
        self.ask(DeadLettersWritten(SOURCE, (row.offset, row.offset + 1000)))
        self.model.finish(row)

    @precondition(lambda self: self.model.in_state(DYING))
    @rule(number=st.integers(0, 100))
    def move_failed(self, number: int) -> None:
        dying = self.model.in_state(DYING)
        row = dying[number % len(dying)]
        self.ask(MoveFailed(SOURCE, (row.offset,), 50))
        row.retry_move_ms = self.model.now_ms + 50

    @invariant()
    def asked_for_each_move_once(self) -> None:
        asked = Counter(effect.offset for effect in self.desk.take_effects(MoveToDeadLetter))
        assert all(count == 1 for count in asked.values())

    # --- schedules and whole ranges --------------------------------------------------------------------------------

    @rule(number=st.integers(0, 100), delay_ms=st.sampled_from([0, 10, 500]))
    def move_schedule(self, number: int, delay_ms: int) -> None:
        scheduled = self.model.in_state(SCHEDULED)
        assert self.desk.ask(ListSchedules(SOURCE)) == tuple((row.offset, row.until_ms) for row in scheduled)
        if not scheduled:
            return
        row = scheduled[number % len(scheduled)]
        answer = self.ask(MoveSchedule(SOURCE, row.offset, self.model.wall_ms + delay_ms))
        if self.config.fifo:
            assert answer.kind is ErrorKind.UNSUPPORTED_OPERATION
            return
        row.due_ms = row.until_ms = self.model.wall_ms + delay_ms
        self.desk.tick(self.desk.now_ms)
        self.model.tick(self.model.now_ms)

    @precondition(lambda self: self.model.in_state(SCHEDULED))
    @rule(number=st.integers(0, 100))
    def cancel_schedule(self, number: int) -> None:
        scheduled = self.model.in_state(SCHEDULED)
        row = scheduled[number % len(scheduled)]
        assert self.ask(CancelSchedule(SOURCE, row.offset)) is None
        self.model.finish(row)

    @precondition(lambda self: len(self.model.rows) > 12)
    @rule(back=st.integers(0, 5))
    def purge(self, back: int) -> None:
        upto = len(self.model.rows) - back
        self.ask(Purge(SOURCE, upto if back else None))
        for row in self.model.rows[:upto]:
            self.model.finish(row)
        if not back:
            self.model.kept.clear()

    @precondition(lambda self: len(self.model.rows) > 12)
    @rule(back=st.integers(0, 8))
    def seek(self, back: int) -> None:
        offset = len(self.model.rows) - back
        self.ask(SeekSource(SOURCE, offset))
        done = {row.offset for row in self.model.rows[offset:] if self.desk.status(row.offset).state is DONE}
        self.model.restart_at(offset, done)
        self.desk.tick(self.desk.now_ms)
        self.model.tick(self.model.now_ms)

    # --- failover ------------------------------------------------------------------------------------------------------

    @rule(compact=st.floats(0, 1), keep_tombstones=st.booleans(), lose=st.booleans(), cut=st.integers(0, 4))
    def crash(self, compact: float, keep_tombstones: bool, lose: bool, cut: int) -> None:
        if lose and len(self.model.rows) == self.log_before:
            # The last command was never answered: nothing of it is in the journal but, perhaps, part of a checkpoint.
            self.model = self.before
            tail = self.desk.journal[self.journal_before :]
            first_fact = next((at for at, r in enumerate(tail) if r.key[:1] in (DELTA, DEDUP)), len(tail))
            del self.desk.journal[self.journal_before + min(cut, first_fact) :]
            self.model.now_ms = self.desk.now_ms
        model = self.model
        model.crash()
        self.desk.crash(
            compact_to=int(compact * len(self.desk.journal)), keep_tombstone=lambda at: keep_tombstones
        )
        self.adopt_counts()
        model.read_again(model.start)
        model.tick(model.now_ms)
        self.remember()

    def adopt_counts(self) -> None:
        """Delivery counts survive approximately: as journaled, or as they were, or in between; never more. That a rest
        is over is not journaled, so it may have to be rested again: late, never early (R58)."""
        for row in self.model.rows:
            if row.state not in (READY, RESTING):
                continue
            status = self.desk.status(row.offset)
            if status.state is DONE and row.state is READY and self.model.is_duplicate(row):
                # A seek had brought it back because its id was used again since; whoever reads the log anew from its twin
                # on takes it for what it is (R59).
                row.state = DONE
                continue
            if status.state is RESTING and row.state is READY:
                assert row.delay_ms > 0
                row.state = RESTING
                row.until_ms = self.model.now_ms + row.delay_ms
            found = status.deliveries if status.state in (READY, RESTING) else row.journaled_deliveries
            assert row.journaled_deliveries <= found <= row.deliveries
            row.deliveries = row.journaled_deliveries = found

    # --- always ------------------------------------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        for row in self.model.rows:
            status = self.desk.status(row.offset)
            assert status.state is row.state, f"{row.offset} is {status}, the model says {row.state!r}"
            if row.state in (LEASED, READY, RESTING):
                assert status.deliveries == row.deliveries
            if row.state in (LEASED, RESTING, SCHEDULED):
                assert status.until_ms == row.until_ms
        counts = self.desk.shard.counts(SOURCE)
        assert counts is not None
        assert counts.visible == len(self.model.in_state(READY))
        assert counts.in_flight == len(self.model.in_state(LEASED))
        assert counts.delayed == len(self.model.in_state(SCHEDULED)) + len(self.model.in_state(RESTING))
        open_rows = [row.offset for row in self.model.rows if row.state is not DONE]
        assert self.desk.shard.done_offset(SOURCE) == min(open_rows, default=len(self.model.rows))


@pytest.fixture(autouse=True)
def tiny_checkpoints(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(draft_module, "CHECKPOINT_DELTAS", 3)
    monkeypatch.setattr(draft_module, "PART_BYTES", 48)
    monkeypatch.setattr(draft_module, "_CHECKPOINT_BYTES_PER_DELTA", 1_000_000)
    yield


@pytest.mark.parametrize("name", CONFIGS)
def test_queue_agrees_with_model(name: str) -> None:
    machine = type("QueueAgainstModel_" + name, (QueueAgainstModel,), {"config": CONFIGS[name]})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=30, stateful_step_count=30, deadline=None, print_blob=False)
    )


def test_the_epoch_is_the_wall_clock() -> None:
    assert Desk().wall_ms == EPOCH_MS
