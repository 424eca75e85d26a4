"""Purge, seek, retention, opening and closing, and changes of a queue's features."""

from __future__ import annotations

from queue_desk import EPOCH_MS, SOURCE, Desk

from headrace.core.errors import ErrorKind
from headrace.queues.commands import (
    Ack,
    Close,
    Configure,
    DataAvailable,
    DeadLettersWritten,
    LoggedMessage,
    MessageState,
    Open,
    Purge,
    Receive,
    RejectMessages,
    RemoveQueue,
    SeekSource,
    Source,
)
from headrace.queues.config import QueueConfig


def test_purge_takes_everything_also_what_is_in_flight_or_delayed_or_dying() -> None:
    desk = Desk(QueueConfig(delays=True, dead_letter="d"))
    desk.send(LoggedMessage(0), LoggedMessage(0), LoggedMessage(0, due_ms=EPOCH_MS + 50), LoggedMessage(0))
    handles = desk.receive(2)
    desk.ask(RejectMessages(SOURCE, (handles[1],)))
    desk.ask(Purge(SOURCE))
    assert desk.shard.done_offset(SOURCE) == 4
    desk.send_plain(1)
    desk.crash()
    desk.advance(100_000)
    assert desk.offsets() == [4]
    assert desk.ask(Ack(SOURCE, (handles[0],))) == (None,), "it is gone, so deleting it succeeds"
    assert desk.ask(DeadLettersWritten(SOURCE, (1,))) == ()


def test_purge_twice_within_a_minute() -> None:
    desk = Desk(QueueConfig())
    assert desk.ask(Purge(SOURCE, min_interval_ms=60_000)) is None
    desk.advance(59_999)
    assert desk.ask(Purge(SOURCE, min_interval_ms=60_000)).kind is ErrorKind.PURGE_QUEUE_IN_PROGRESS
    desk.advance(1)
    assert desk.ask(Purge(SOURCE, min_interval_ms=60_000)) is None


def test_seek_back_and_forth() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(4)
    desk.ask(Ack(SOURCE, tuple(desk.receive())))
    desk.ask(SeekSource(SOURCE, 2))
    assert desk.offsets() == [2, 3]
    desk.crash()
    assert desk.offsets() == [2, 3]
    desk.ask(SeekSource(SOURCE, 4))
    assert desk.receive() == []
    assert desk.ask(SeekSource(SOURCE, -1)).kind is ErrorKind.OFFSET_OUT_OF_RANGE


def test_what_retention_deleted_is_done() -> None:
    for config in (QueueConfig(), QueueConfig(fair=True, delays=True)):
        desk = Desk(config)
        desk.send(
            *[LoggedMessage(0, group=b"%d" % (at % 2)) for at in range(6)],
            LoggedMessage(0, due_ms=EPOCH_MS + 9),
        )
        desk.receive(2)
        desk.log_start[SOURCE] = 4
        desk.announce()
        assert desk.shard.done_offset(SOURCE) == 4
        assert sorted(desk.offsets()) == [4, 5] if config.indexed else [4, 5, 6]


def test_a_log_that_was_deleted_beyond_what_we_read() -> None:
    desk = Desk(QueueConfig(delays=True, window=2))
    desk.send(*[LoggedMessage(0)] * 9)
    desk.log_start[SOURCE] = 7
    desk.announce()
    assert desk.offsets() == [7, 8]


def test_nothing_new_is_no_fact() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(2)
    plan = desk.shard.decide(DataAvailable(SOURCE, 2), 0)
    assert not plan.facts and not plan.effects
    assert not desk.shard.decide(DataAvailable(SOURCE, 1), 0).facts, "the end does not go back"


def test_close_and_open_again_starts_afresh() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(3)
    desk.ask(Ack(SOURCE, tuple(desk.receive(2))))
    assert desk.ask(Close(SOURCE)) is None
    assert desk.ask(Close(SOURCE)) is None
    assert desk.ask(Receive(SOURCE, 1)).kind is ErrorKind.QUEUE_DOES_NOT_EXIST
    live = {record.key: record.value for record in desk.journal}
    assert [key for key, value in live.items() if value is not None and key[:1] != b"C"] == []
    desk.ask(Open(SOURCE, 1))
    desk.announce()
    desk.crash(compact_to=len(desk.journal), keep_tombstone=lambda at: False)
    assert desk.offsets() == [1, 2]


def test_a_removed_queue_leaves_nothing_behind() -> None:
    desk = Desk(QueueConfig(dedup_window_ms=1_000))
    desk.send(LoggedMessage(0, dedup_id=b"x", timestamp_ms=EPOCH_MS), LoggedMessage(0))
    desk.ask(Ack(SOURCE, tuple(desk.receive())))
    desk.ask(Open(Source("q", "u", 0), 0))
    assert desk.ask(RemoveQueue("q")) is None
    assert desk.ask(RemoveQueue("q")).kind is ErrorKind.QUEUE_DOES_NOT_EXIST
    assert {record.key: record.value for record in desk.journal if record.value is not None}.keys() <= {
        record.key for record in desk.journal if record.value is None
    }
    desk.crash(compact_to=len(desk.journal))
    assert desk.shard.sources() == []


def test_a_queue_that_gets_priorities_sorts_its_backlog_again() -> None:
    desk = Desk(QueueConfig(visibility_ms=1_000))
    desk.send(LoggedMessage(0), LoggedMessage(0, priority=9), LoggedMessage(0, priority=1), LoggedMessage(0))
    (first,) = desk.receive(1)
    desk.ask(Configure("q", QueueConfig(visibility_ms=1_000, priorities=True)))
    assert desk.offsets() == [1, 3, 2]
    assert desk.ask(Ack(SOURCE, (first,))) == (None,), "leases stay"
    desk.advance(1_000)
    desk.ask(Configure("q", QueueConfig(visibility_ms=1_000)))
    assert desk.offsets() == [1, 2, 3]


def test_a_lease_keeps_its_deadline_when_the_queue_changes() -> None:
    desk = Desk(QueueConfig(visibility_ms=1_000))
    desk.send_plain(3)
    desk.receive(2)
    desk.advance(400)
    desk.ask(Configure("q", QueueConfig(visibility_ms=5_000, fair=True)))
    assert desk.status(0).until_ms == desk.status(1).until_ms == 1_000
    desk.advance(600)
    assert desk.offsets() == [0, 1, 2]


def test_a_filter_leaves_out_ranges() -> None:
    desk = Desk(QueueConfig(filtered=True))
    desk.skipped[SOURCE] = {0, 1, 2, 4, 5, 7}
    desk.send_plain(8)
    assert desk.offsets() == [3, 6]
    assert desk.shard.done_offset(SOURCE) == 3
    desk.crash()
    assert desk.offsets() == [3, 6]


def test_a_window_bounds_what_is_known_and_is_refilled() -> None:
    desk = Desk(QueueConfig(fair=True, window=10), checked=False)
    desk.send(*[LoggedMessage(0, group=b"%d" % (at % 7)) for at in range(500)])
    partition = desk.shard._board.partitions[SOURCE]
    seen: set[int] = set()
    while handles := desk.receive(3):
        assert partition.lanes.ready_count <= 10
        seen |= {handle.offset for handle in handles}
        desk.ask(Ack(SOURCE, tuple(handles)))
    assert seen == set(range(500))
    assert desk.status(499).state is MessageState.DONE
