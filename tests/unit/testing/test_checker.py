"""The anomaly checker on small histories, one per anomaly of correctness.md section 6, and the ones that must pass."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.testing.checker import CheckOptions, Report, check
from headrace.testing.cycles import Graph
from headrace.testing.history import (
    Action,
    OperationHistory,
    OperationOutcome,
    Poll,
    RecordedOperation,
    Send,
    Step,
)
from headrace.testing.version_order import VersionOrder

OK, FAIL, INFO = OperationOutcome.OK, OperationOutcome.FAIL, OperationOutcome.INFO


class Story:
    """A history told one operation after the other; `begin` and `end` make them overlap."""

    def __init__(self) -> None:
        self.history = OperationHistory()
        self.now_ms = 0

    def begin(
        self, process: int, action: Action, *steps: Step, keys: Sequence[str] = (), at: int | None = None
    ) -> RecordedOperation:
        self.now_ms = self.now_ms + 1 if at is None else at
        return self.history.invoke(process, action, steps, keys=keys, now_ms=self.now_ms)

    def end(
        self,
        operation: RecordedOperation,
        outcome: OperationOutcome = OK,
        *,
        rebalanced: Sequence[str] = (),
        at: int | None = None,
    ) -> None:
        self.now_ms = self.now_ms + 1 if at is None else at
        self.history.complete(operation, outcome, rebalanced=rebalanced, now_ms=self.now_ms)

    def op(
        self,
        process: int,
        *steps: Step,
        outcome: OperationOutcome = OK,
        action: Action | None = None,
        keys: Sequence[str] = (),
        rebalanced: Sequence[str] = (),
    ) -> RecordedOperation:
        if action is None:
            has_send = any(isinstance(step, Send) for step in steps)
            has_poll = any(isinstance(step, Poll) for step in steps)
            action = "txn" if has_send and has_poll else "send" if has_send else "poll"
        operation = self.begin(process, action, *steps, keys=keys)
        self.end(operation, outcome, rebalanced=rebalanced)
        return operation

    def check(self, **options: bool) -> Report:
        return check(self.history.operations, CheckOptions(**options))


def send(value: str, offset: int | None = None, key: str = "x") -> Send:
    return Send(key, value, offset)


def poll(*records: tuple[int, str], key: str = "x") -> Poll:
    return Poll({key: records})


# --- derived structures ---


def test_empty_history() -> None:
    report = check([])
    assert report.is_valid
    assert report.names() == set()
    assert report.worst_realtime_lag is None


def test_version_order_is_dense_and_polls_of_failed_operations_count() -> None:
    story = Story()
    story.op(0, send("a", 0))
    story.op(0, send("b", 5))
    story.op(1, send("unknown", 7), outcome=INFO)
    story.op(2, poll((9, "c")), outcome=FAIL)
    story.op(3, send("no", 3), outcome=FAIL)
    log = VersionOrder(story.history.operations).logs["x"]
    assert (log.offsets, log.by_index) == ([0, 5, 9], [["a"], ["b"], ["c"]])
    assert log.index(None, "b") == 1


def test_an_unknown_send_counts_once_a_committed_operation_saw_part_of_it() -> None:
    story = Story()
    unknown = story.op(0, send("a", 0), send("b", 1, "y"), outcome=INFO)
    assert not VersionOrder(story.history.operations).must_have_committed(unknown)
    story.op(1, poll((1, "b"), key="y"), outcome=INFO)
    assert not VersionOrder(story.history.operations).must_have_committed(unknown)
    story.op(1, poll((1, "b"), key="y"))
    order = VersionOrder(story.history.operations)
    assert order.must_have_committed(unknown)
    assert order.logs["x"].by_index == [["a"]]


def test_a_healthy_history_is_clean() -> None:
    story = Story()
    story.op(2, action="assign", keys=["x"])
    for number in range(5):
        story.op(0, send(f"v{number}", 2 * number))  # odd offsets are control records
        story.op(2, poll((2 * number, f"v{number}")))
    report = story.check()
    assert report.is_valid
    assert report.names() == set()


# --- the log ---


def test_inconsistent_offsets() -> None:
    story = Story()
    story.op(0, send("a", 0))
    story.op(1, poll((0, "b")))
    report = story.check()
    assert "inconsistent-offsets" in report.forbidden
    assert report.anomalies["inconsistent-offsets"][0].detail == {"offset": 0, "values": ["a", "b"]}


def test_duplicate() -> None:
    story = Story()
    story.op(0, send("a", 0))
    story.op(1, poll((0, "a"), (1, "b"), (2, "a")))
    assert "duplicate" in story.check().forbidden
    assert "duplicate" not in story.check(uses_idempotence=False).forbidden


def test_lost_write() -> None:
    story = Story()
    for offset, value in enumerate("abc"):
        story.op(0, send(value, offset))
    story.op(1, poll((0, "a"), (2, "c")))
    report = story.check()
    assert [anomaly.detail["value"] for anomaly in report.anomalies["lost-write"]] == ["b"]
    assert "lost-write" in report.forbidden


def test_lost_write_needs_someone_to_have_read_past_it() -> None:
    story = Story()
    for offset, value in enumerate("abc"):
        story.op(0, send(value, offset))
    story.op(1, poll((0, "a")))
    report = story.check()
    assert "lost-write" not in report.names()
    assert report.anomalies["unseen"][0].detail == {"values": ["b", "c"]}


def test_lost_write_of_an_unknown_transaction_that_is_known_to_have_committed() -> None:
    story = Story()
    story.op(0, send("a", 0, "x"), send("b", 0, "y"), outcome=INFO)
    story.op(1, send("c", 1, "x"))
    story.op(2, poll((0, "b"), key="y"))
    story.op(2, poll((1, "c"), key="x"))
    report = story.check()
    assert [anomaly.detail["value"] for anomaly in report.anomalies["lost-write"]] == ["a"]


def test_a_value_written_twice_is_not_lost_before_its_last_place() -> None:
    story = Story()
    story.op(0, send("a", 0))
    story.op(0, send("b", 1))
    story.op(1, poll((1, "b")))
    story.op(2, poll((5, "a")), outcome=INFO)  # the same value again, further on: read, so not lost
    assert "lost-write" not in story.check().names()


def test_unseen_counts_only_acknowledged_values() -> None:
    story = Story()
    story.op(0, send("a", 0))
    story.op(0, send("b"))
    story.op(0, send("c"), outcome=INFO)
    story.op(0, send("d"), outcome=FAIL)
    story.op(1, poll((0, "a")))
    report = story.check()
    assert report.anomalies["unseen"][0].detail == {"values": ["b"]}
    assert report.forbidden == ["unseen"]


# --- transactions ---


def test_g1a() -> None:
    story = Story()
    story.op(0, send("a", 0), outcome=FAIL)
    story.op(1, poll((0, "a")))
    assert story.check().forbidden == ["G1a"]


def test_g1a_needs_a_reader_that_committed() -> None:
    story = Story()
    story.op(0, send("a", 0), outcome=FAIL)
    story.op(1, poll((0, "a")), outcome=INFO)
    assert "G1a" not in story.check().names()


def test_precommitted_read() -> None:
    story = Story()
    story.op(0, send("a", 0), poll((0, "a")))
    assert "precommitted-read" in story.check().forbidden
    assert story.check(uses_read_committed=False).is_valid


# --- positions inside one operation ---


def _filled(story: Story, count: int = 5) -> None:
    for offset in range(count):
        story.op(9, send(f"v{offset}", offset))
    story.op(8, poll(*((offset, f"v{offset}") for offset in range(count))))


@pytest.mark.parametrize(
    ("offsets", "name"),
    [((0, 2), "int-poll-skip"), ((2, 1), "int-nonmonotonic-poll"), ((1, 1), "int-nonmonotonic-poll")],
)
def test_polls_inside_one_operation(offsets: tuple[int, int], name: str) -> None:
    story = Story()
    _filled(story)
    records = [(offset, f"v{offset}") for offset in offsets]
    story.op(0, poll(records[0]), poll(records[1]), action="txn")
    assert story.check().forbidden == [name]


def test_polls_inside_one_operation_may_jump_when_the_key_was_reassigned() -> None:
    story = Story()
    _filled(story)
    story.op(0, poll((0, "v0"), (3, "v3")), rebalanced=["x"])
    assert story.check().names() == set()


def test_sends_inside_one_transaction() -> None:
    story = Story()
    story.op(0, send("a", 0), send("c", 2), action="txn")
    story.op(1, send("b", 1))
    story.op(2, send("e", 4), send("d", 3), action="txn")
    story.op(8, poll(*enumerate("abcde")))
    report = story.check()
    assert report.anomalies["int-send-skip"][0].operations == (0,)
    assert report.anomalies["int-nonmonotonic-send"][0].operations == (2,)
    assert report.forbidden == ["int-nonmonotonic-send"], "a skip is another writer's record in between"


# --- positions between operations ---


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [(0, 2, "poll-skip"), (2, 1, "nonmonotonic-poll"), (1, 1, "nonmonotonic-poll")],
)
def test_polls_of_one_process(first: int, second: int, name: str) -> None:
    story = Story()
    _filled(story)
    story.op(0, poll((first, f"v{first}")))
    story.op(0, poll((second, f"v{second}")))
    assert story.check().forbidden == [name]
    assert story.check(uses_subscribe=True).is_valid


def test_polls_of_different_processes_are_independent() -> None:
    story = Story()
    _filled(story)
    story.op(0, poll((3, "v3")))
    story.op(1, poll((0, "v0")))
    assert story.check().names() == set()


def test_assign_keeps_the_positions_of_keys_that_stay() -> None:
    story = Story()
    _filled(story)
    story.op(0, action="assign", keys=["x", "y"])
    story.op(0, poll((0, "v0")))
    story.op(0, action="assign", keys=["x"])
    story.op(0, poll((3, "v3")))
    assert story.check().forbidden == ["poll-skip"]


def test_assign_forgets_keys_that_left() -> None:
    story = Story()
    _filled(story)
    story.op(0, poll((0, "v0")))
    story.op(0, action="assign", keys=["y"])
    story.op(0, action="assign", keys=["x"])
    story.op(0, poll((3, "v3")))
    assert story.check().names() == set()


def test_a_failed_poll_does_not_move_the_position() -> None:
    story = Story()
    _filled(story)
    story.op(0, poll((0, "v0")))
    story.op(0, poll((1, "v1")), outcome=FAIL)
    story.op(0, poll((1, "v1")))
    assert story.check().names() == set()


def test_nonmonotonic_send() -> None:
    story = Story()
    story.op(0, send("b", 1))
    story.op(0, send("a", 0), outcome=INFO)
    story.op(8, poll((0, "a"), (1, "b")))
    report = story.check()
    assert report.forbidden == ["nonmonotonic-send"]
    assert report.anomalies["nonmonotonic-send"][0].operations == (0, 1)


def test_sends_of_one_process_may_skip() -> None:
    story = Story()
    story.op(0, send("a", 0))
    story.op(1, send("b", 1))
    story.op(0, send("c", 2))
    story.op(8, poll(*enumerate("abc")))
    assert story.check().names() == set()


# --- cycles ---


def test_g0_is_reported_and_allowed() -> None:
    story = Story()
    one = story.begin(0, "txn", send("a", 0, "x"), send("d", 1, "y"))
    two = story.begin(1, "txn", send("b", 1, "x"), send("c", 0, "y"))
    story.end(one)
    story.end(two)
    story.op(8, poll((0, "a"), (1, "b"), key="x"), poll((0, "c"), (1, "d"), key="y"), action="txn")
    report = story.check()
    assert "G0" in report.names()
    assert report.is_valid
    assert {kind for _, kind, _ in report.anomalies["G0"][0].detail["cycle"]} == {"ww"}
    assert story.check(infers_write_order=False).names() == set()


def test_g1c_of_reads_only_is_forbidden() -> None:
    story = Story()
    one = story.begin(0, "txn", send("a", 0, "x"), poll((0, "b"), key="y"))
    two = story.begin(1, "txn", send("b", 0, "y"), poll((0, "a"), key="x"))
    story.end(one)
    story.end(two)
    report = story.check()
    assert report.forbidden == ["G1c"]
    assert report.anomalies["G1c"][0].detail["pure_wr"]
    assert story.check(infers_write_order=False).forbidden == ["G1c"]


def test_g1c_through_inferred_writes_is_reported_and_allowed() -> None:
    story = Story()
    one = story.begin(0, "txn", send("a", 0, "x"), poll((0, "c"), key="y"))
    two = story.begin(1, "txn", send("b", 1, "x"), send("c", 0, "y"))
    story.end(one)
    story.end(two)
    story.op(8, poll((0, "a"), (1, "b"), key="x"))
    report = story.check()
    assert report.is_valid
    assert not report.anomalies["G1c"][0].detail["pure_wr"]
    assert {kind for _, kind, _ in report.anomalies["G1c"][0].detail["cycle"]} == {"ww", "wr"}


def test_reading_from_the_future_is_a_realtime_cycle_of_reads() -> None:
    story = Story()
    story.op(0, poll((0, "a")))
    story.op(1, send("a", 0))
    report = story.check()
    assert report.forbidden == ["G1c-realtime"]


def test_reading_ones_own_future_is_a_process_cycle() -> None:
    story = Story()
    story.op(0, poll((0, "a")))
    story.op(0, send("a", 0))
    assert "G1c-process" in story.check().forbidden


def test_writes_against_real_time() -> None:
    story = Story()
    story.op(0, send("b", 1))
    story.op(1, send("a", 0))
    story.op(8, poll((0, "a"), (1, "b")))
    report = story.check()
    assert report.names() == {"G0-realtime"}
    assert report.is_valid


def test_an_unknown_operation_has_no_end_in_real_time() -> None:
    story = Story()
    story.op(0, send("b", 1), outcome=INFO)
    story.op(1, send("a", 0))
    story.op(8, poll((0, "a"), (1, "b")))
    assert story.check().names() == set(), "it may have happened after the other one"


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from("pq")), max_size=20),
    st.sampled_from(["p", "pq"]),
)
def test_cycle_search_agrees_with_a_dumb_one(edges: list[tuple[int, int, str]], may: str) -> None:
    graph: Graph[str] = Graph()
    for source, target, kind in edges:
        graph.add(source, target, kind)
    reach = {(s, t) for s, t, kind in edges if kind in may and s != t}
    for _ in range(8):
        reach |= {(a, d) for a, b in reach for c, d in reach if b == c}
    expected = any((node, node) in reach for node in range(8))
    cycles = graph.cycles(may)
    assert bool(cycles) == expected
    for cycle in cycles:
        assert all(edge.kind in may and tuple(edge) in set(edges) for edge in cycle)
        targets = [edge.target for edge in cycle]
        assert targets == [edge.source for edge in cycle[1:]] + [cycle[0].source]


# --- reports ---


def test_worst_realtime_lag() -> None:
    story = Story()
    operation = story.begin(0, "send", send("a", 0), at=0)
    story.end(operation, at=10)
    operation = story.begin(0, "send", send("b", 1), at=20)
    story.end(operation, at=30)
    for process in (1, 2):
        story.end(story.begin(process, "assign", keys=["x"], at=31), at=32)
    story.end(story.begin(1, "poll", poll((0, "a"), (1, "b")), at=40), at=41)
    story.end(story.begin(2, "poll", poll((0, "a")), at=50), at=51)
    assert story.check().worst_realtime_lag == (20, 2, "x")
    story.end(story.begin(2, "poll", Poll(), at=130), at=131)
    assert story.check().worst_realtime_lag == (100, 2, "x")


def test_consume_counts() -> None:
    story = Story()
    _filled(story, 2)
    story.op(0, action="subscribe", keys=["x"])
    story.op(0, poll((0, "v0"), (1, "v1")), action="txn")
    story.op(0, poll((0, "v0")), action="txn")
    story.op(0, poll((1, "v1")), action="txn", outcome=FAIL)
    story.op(1, action="assign", keys=["x"])
    story.op(1, poll((0, "v0")), action="txn")
    assert story.check(uses_subscribe=True).consume_counts == {1: 1, 2: 1}


def test_the_report_reads_well() -> None:
    story = Story()
    story.op(0, send("a", 0), outcome=FAIL)
    story.op(1, poll((0, "a")))
    text = story.check().describe()
    assert text.startswith("INVALID: G1a\nG1a x1\n  key x ops (0, 1)")


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_a_correct_log_never_alarms(seed: int, clients: int) -> None:
    """A perfect in-memory log, random clients, unknown outcomes and aborted transactions: nothing to report."""
    from headrace.testing.dice import Dice

    dice = Dice(seed)
    story = Story()
    log: list[str | None] = []
    positions = [0] * clients
    values = 0
    for _ in range(30):
        client = dice.between(0, clients - 1)
        if dice.chance(0.5):
            values += 1
            value = f"v{values}"
            outcome = dice.pick((OK, OK, FAIL, INFO))
            happened = outcome is OK or (outcome is INFO and dice.chance(0.5))
            offset = len(log)
            log.append(value if happened else None)
            story.op(client * 100 + values, send(value, offset if outcome is OK else None), outcome=outcome)
        else:
            records = [
                (offset, value)
                for offset, value in enumerate(log)
                if offset >= positions[client] and value is not None
            ]
            if records:
                positions[client] = records[-1][0] + 1
            story.op(client, poll(*records))
    story.op(9999, poll(*((offset, value) for offset, value in enumerate(log) if value is not None)))
    report = story.check()
    assert report.names() == set(), report.describe()
