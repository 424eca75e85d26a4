"""R59: order within a message group, one outstanding batch per group, five minutes of deduplication."""

from __future__ import annotations

from queue_desk import EPOCH_MS, SOURCE, Desk

from headrace.core.errors import ErrorKind
from headrace.queues.commands import (
    Ack,
    FindDuplicate,
    Handle,
    LoggedMessage,
    MessageState,
    MoveSchedule,
    Release,
    SeekSource,
    WakeReceivers,
)
from headrace.queues.config import DEDUP_WINDOW_MS, QueueConfig, fifo_queue


def grouped(groups: str) -> list[LoggedMessage]:
    return [LoggedMessage(0, group=group.encode()) for group in groups]


def test_r59_one_outstanding_batch_per_group() -> None:
    desk = Desk(fifo_queue())
    desk.send(*grouped("aabab"))
    batch = desk.receive(2)
    assert [handle.offset for handle in batch] == [0, 1]
    assert desk.offsets() == [2, 4], "only of the other group"
    desk.ask(Ack(SOURCE, (batch[0],)))
    assert desk.receive() == [], "one of the batch is still out"
    desk.take_effects()
    desk.ask(Ack(SOURCE, (batch[1],)))
    assert WakeReceivers("q") in desk.take_effects()
    assert desk.offsets() == [3]


def test_r59_as_many_as_possible_of_one_group_then_the_next() -> None:
    desk = Desk(fifo_queue())
    desk.send(*grouped("abababab"))
    assert desk.offsets(6) == [0, 2, 4, 6, 1, 3]


def test_r59_what_comes_back_goes_first() -> None:
    desk = Desk(fifo_queue(visibility_ms=1_000))
    desk.send(*grouped("aaa"))
    first, second = desk.receive(2)
    desk.ask(Ack(SOURCE, (second,)))
    desk.advance(1_000)
    assert desk.offsets() == [0, 2]
    assert first.offset == 0


def test_r59_a_resting_message_holds_its_group_and_no_other() -> None:
    desk = Desk(fifo_queue())
    desk.send(*grouped("aab"))
    (handle,) = desk.receive(1)
    desk.ask(Release(SOURCE, (handle,), 500))
    assert desk.offsets() == [2]
    desk.advance(500)
    assert desk.offsets() == [0, 1]


def test_r59_a_dead_message_lets_its_group_go_on() -> None:
    desk = Desk(fifo_queue(visibility_ms=1_000, max_deliveries=1, dead_letter="d"))
    desk.send(*grouped("aa"))
    desk.receive(1)
    desk.advance(1_000)
    assert desk.status(0).state is MessageState.DYING
    assert desk.offsets() == [1]


def test_r59_a_delayed_message_delays_those_behind_it_in_its_group() -> None:
    desk = Desk(fifo_queue(delays=True))
    late = EPOCH_MS + 500
    desk.send(
        LoggedMessage(0, group=b"a", due_ms=late),
        LoggedMessage(0, group=b"a"),
        LoggedMessage(0, group=b"b"),
        LoggedMessage(0),
        LoggedMessage(0),
    )
    assert desk.offsets() == [2, 3, 4]
    assert desk.ask(MoveSchedule(SOURCE, 0, EPOCH_MS)).kind is ErrorKind.UNSUPPORTED_OPERATION
    desk.advance(500)
    assert desk.offsets() == [0, 1]


def test_r59_nobody_overtakes_one_that_is_due_and_was_not_let_go_yet() -> None:
    desk = Desk(fifo_queue(delays=True))
    desk.send(LoggedMessage(0, group=b"a", due_ms=EPOCH_MS + 10))
    desk.now_ms = 10  # and expire was not called yet
    desk.send(LoggedMessage(0, group=b"a"))
    assert desk.receive() == []
    desk.advance(0)
    assert desk.offsets() == [0, 1]


def test_the_nameless_group_is_a_group() -> None:
    desk = Desk(fifo_queue(delays=True))
    desk.send(LoggedMessage(0, due_ms=EPOCH_MS + 500))
    desk.send_plain(2)
    assert desk.receive() == []
    desk.advance(500)
    assert desk.offsets() == [0, 1, 2]


def test_r58_r59_order_and_outstanding_batch_survive_a_failover() -> None:
    desk = Desk(fifo_queue(visibility_ms=1_000))
    desk.send(*grouped("aab"))
    first, second = desk.receive(2)
    desk.advance(900)
    desk.crash()
    assert desk.offsets(10, visibility_ms=9_000) == [2], "group a is still out"
    desk.advance(999)
    assert desk.receive() == [], "the whole timeout starts again at the takeover"
    assert desk.ask(Ack(SOURCE, (first,))) == (None,), "the receipt is of the current delivery still"
    desk.advance(1)
    (again,) = desk.receive()
    assert (again.offset, again.delivery) == (second.offset, 2)


def test_a_group_that_is_done_costs_nothing() -> None:
    desk = Desk(fifo_queue(), checked=False)
    for number in range(50):
        desk.send(*[LoggedMessage(0, group=b"%d-%d" % (number, at)) for at in range(20)])
        desk.ask(Ack(SOURCE, tuple(desk.receive(20))))
    assert len(desk.shard._board.partitions[SOURCE].lanes) == 1


# --- deduplication ---------------------------------------------------------------------------------------------


def stamped(dedup_id: bytes, at_ms: int) -> LoggedMessage:
    return LoggedMessage(0, group=b"g", dedup_id=dedup_id, timestamp_ms=EPOCH_MS + at_ms)


def find(desk: Desk, dedup_id: bytes, at_ms: int) -> int | None:
    found: int | None = desk.ask(FindDuplicate(SOURCE, dedup_id, EPOCH_MS + at_ms))
    return found


def test_r59_the_second_within_five_minutes_is_not_delivered() -> None:
    desk = Desk(fifo_queue())
    desk.send(stamped(b"x", 0), stamped(b"x", 1), stamped(b"y", 2), stamped(b"x", DEDUP_WINDOW_MS - 1))
    desk.send(stamped(b"x", DEDUP_WINDOW_MS))
    assert desk.offsets() == [0, 2, 4]
    assert find(desk, b"x", DEDUP_WINDOW_MS + 5) == 4
    assert find(desk, b"z", 0) is None


def test_r59_an_id_counts_after_its_message_is_deleted_and_after_a_failover() -> None:
    desk = Desk(fifo_queue())
    desk.send(stamped(b"x", 0))
    desk.ask(Ack(SOURCE, tuple(desk.receive())))
    desk.crash(compact_to=len(desk.journal))
    assert find(desk, b"x", 1_000) == 0
    desk.send(stamped(b"x", 1_000))
    assert desk.receive() == []


def test_r59_only_the_logs_clock_counts() -> None:
    desk = Desk(fifo_queue())
    desk.send(stamped(b"x", 0))
    desk.advance(10 * DEDUP_WINDOW_MS)
    desk.send(stamped(b"x", 1_000))
    assert desk.offsets() == [0]


def test_the_index_is_forgotten_after_the_window() -> None:
    desk = Desk(fifo_queue(), checked=False)
    for number in range(100):
        desk.send(stamped(b"%d" % number, number * DEDUP_WINDOW_MS // 10))
    index = desk.shard._board.partitions[SOURCE].dedup
    assert len(index) <= 11
    pages = {record.key for record in desk.journal if record.key[:1] == b"U"}
    live = {record.key: record.value for record in desk.journal if record.key in pages}
    assert sum(value is not None for value in live.values()) <= 11


def test_reading_again_does_not_forget_what_was_seen_later() -> None:
    """The id was used at 0, and again after the window; 0 is read again after a failover, 1 is done and is not."""
    desk = Desk(fifo_queue())
    desk.send(stamped(b"x", 0), stamped(b"x", DEDUP_WINDOW_MS))
    handles = desk.receive()
    desk.ask(Ack(SOURCE, (handles[1],)))
    desk.crash()
    assert desk.status(0).state is MessageState.ACQUIRED, "and it is no duplicate of the later one"
    desk.send(stamped(b"x", DEDUP_WINDOW_MS + 1))
    desk.ask(Ack(SOURCE, (Handle(0, 1, handles[0].epoch),)))
    assert desk.receive() == []


def test_deduplication_without_order() -> None:
    desk = Desk(QueueConfig(dedup_window_ms=1_000))
    desk.send(stamped(b"x", 0), stamped(b"x", 1))
    assert desk.offsets() == [0]
    desk.ask(SeekSource(SOURCE, 0))
    assert desk.offsets() == [0], "and a seek finds the same duplicates"
