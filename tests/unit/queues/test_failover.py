"""R57, R58 and the journal: what survives, what restarts, and that neither journal nor memory grows without end."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from queue_desk import EPOCH_MS, SOURCE, Desk

from headrace.core.errors import ErrorKind
from headrace.core.plan import JournalRecord
from headrace.queues import draft as draft_module
from headrace.queues.commands import Ack, Extend, LoggedMessage, MessageState, Receive, Release
from headrace.queues.config import QueueConfig
from headrace.queues.journal import CHECKPOINT, DELTA


@pytest.fixture
def small_checkpoints(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(draft_module, "CHECKPOINT_DELTAS", 10)
    monkeypatch.setattr(draft_module, "PART_BYTES", 64)
    monkeypatch.setattr(draft_module, "_CHECKPOINT_BYTES_PER_DELTA", 1_000_000)
    yield


def compacted(journal: list[JournalRecord]) -> dict[bytes, bytes]:
    live = {record.key: record.value for record in journal}
    return {key: value for key, value in live.items() if value is not None}


def test_r58_a_journaled_lease_restarts_in_full_at_takeover() -> None:
    desk = Desk(QueueConfig(journaled_leases=True, visibility_ms=1_000))
    desk.send_plain(2)
    handles = desk.receive()
    desk.ask(Extend(SOURCE, (handles[1],), 5_000))
    desk.advance(900)
    desk.crash()
    assert (desk.status(0).until_ms, desk.status(1).until_ms) == (1_900, 5_900)
    desk.advance(999)
    assert desk.receive() == []
    assert desk.ask(Ack(SOURCE, tuple(handles))) == (None, None)


def test_r58_a_rest_restarts_in_full_at_takeover() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(1)
    desk.ask(Release(SOURCE, tuple(desk.receive()), 1_000))
    desk.advance(900)
    desk.crash(compact_to=len(desk.journal))
    desk.advance(999)
    assert desk.receive() == []
    desk.advance(1)
    assert desk.receive()[0].delivery == 2


def test_a_lease_that_is_not_journaled_is_available_at_once() -> None:
    """As KIP-932: at least once; the old receipts are void (R56)."""
    desk = Desk(QueueConfig())
    desk.send_plain(2)
    desk.receive(1)
    desk.crash()
    assert desk.offsets() == [0, 1]


def test_delivery_counts_survive_a_failover_except_of_what_was_in_flight() -> None:
    desk = Desk(QueueConfig(visibility_ms=100))
    desk.send_plain(1)
    for _ in range(3):
        desk.receive()
        desk.advance(100)
    desk.receive()
    desk.crash()
    assert desk.receive()[0].delivery == 4, "the fourth was in flight and is not known"


def test_r56_a_receipt_of_a_delivery_that_ended_before_the_failover_is_void() -> None:
    """It would count as the latest (ack.py), but the journal need not know the latest."""
    desk = Desk(QueueConfig(visibility_ms=100))
    desk.send_plain(1)
    (handle,) = desk.receive()
    desk.advance(100)
    desk.crash()
    (result,) = desk.ask(Ack(SOURCE, (handle,)))
    assert result.kind is ErrorKind.RECEIPT_HANDLE_IS_INVALID
    assert desk.status(0).state is MessageState.AVAILABLE


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.usefixtures("small_checkpoints")
def test_r57_a_late_delete_works_across_a_failover_when_every_delivery_is_journaled(checkpoint: bool) -> None:
    """The journal knows the latest delivery, so its receipt still is the one: the delete that is confirmed has happened."""
    desk = Desk(QueueConfig(visibility_ms=100, journaled_leases=True))
    desk.send_plain(10)
    handles = desk.receive(1)
    desk.advance(100)
    if checkpoint:
        for handle in desk.receive(10)[1:]:
            desk.ask(Ack(SOURCE, (handle,)))
        desk.advance(100)
        handles = [handles[0]._replace(delivery=2)]
    desk.crash()
    assert desk.ask(Ack(SOURCE, tuple(handles))) == (None,)
    assert desk.status(0).state is MessageState.DONE


@pytest.mark.usefixtures("small_checkpoints")
def test_the_counts_of_what_is_in_flight_are_in_the_checkpoint() -> None:
    desk = Desk(QueueConfig(visibility_ms=100))
    desk.send_plain(50)
    desk.receive(1)
    desk.advance(100)
    assert desk.receive(1)[0].delivery == 2
    for _ in range(12):
        desk.ask(Ack(SOURCE, tuple(desk.receive(1))))
    desk.crash()
    assert desk.status(0).deliveries == 2


@pytest.mark.usefixtures("small_checkpoints")
def test_the_compacted_journal_is_bounded() -> None:
    desk = Desk(QueueConfig())
    sizes = []
    for _ in range(200):
        desk.send_plain(3)
        handles = desk.receive(3)
        desk.ask(Ack(SOURCE, (handles[0], handles[2])))
        desk.ask(Ack(SOURCE, (handles[1],)))
        sizes.append(len(compacted(desk.journal)))
    assert max(sizes) <= 10 + 2 * 3 + 1, "deltas of one interval, two checkpoints, the configuration"


@pytest.mark.usefixtures("small_checkpoints")
def test_a_checkpoint_that_shrinks_takes_its_old_parts_along() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(300)
    handles = desk.receive(300)
    for at in range(1, 300, 2):
        desk.ask(Ack(SOURCE, (handles[at],)))
    many = sum(key[:1] == CHECKPOINT for key in compacted(desk.journal))
    for at in range(0, 300, 2):
        desk.ask(Ack(SOURCE, (handles[at],)))
    desk.send_plain(30)
    for handle in desk.receive(30):
        desk.ask(Ack(SOURCE, (handle,)))
    few = sum(key[:1] == CHECKPOINT for key in compacted(desk.journal))
    assert many > 40 and few <= 4
    desk.crash(compact_to=len(desk.journal), keep_tombstone=lambda at: False)
    assert desk.shard.done_offset(SOURCE) == 330


@pytest.mark.usefixtures("small_checkpoints")
@pytest.mark.parametrize("cut", range(8))
def test_a_checkpoint_cut_in_the_middle_costs_nothing(cut: int) -> None:
    """Its parts are there or not; the one before it is whole, and so are the deltas since."""
    desk = Desk(QueueConfig())
    desk.send_plain(100)
    handles = desk.receive(100)
    at, checkpoints, tail = -1, 0, list[JournalRecord]()
    while checkpoints < 3:
        at += 2
        before = len(desk.journal)
        desk.ask(Ack(SOURCE, (handles[at],)))
        tail = desk.journal[before:]
        checkpoints += tail[0].key[:1] == CHECKPOINT
    assert len(tail) > 3 and tail[-1].key[:1] == DELTA
    del desk.journal[len(desk.journal) - len(tail) + min(cut, len(tail) - 1) :]
    desk.crash(compact_to=len(desk.journal))
    assert desk.status(at).state is MessageState.AVAILABLE, "it was never confirmed"
    assert all(desk.status(done).state is MessageState.DONE for done in range(1, at, 2))
    assert all(desk.status(left).state is MessageState.AVAILABLE for left in range(0, at, 2))


def test_a_delta_from_a_longer_interval_is_not_applied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot is not overwritten for a long time; its number says that the checkpoint has it."""
    monkeypatch.setattr(draft_module, "CHECKPOINT_DELTAS", 10)
    monkeypatch.setattr(draft_module, "_CHECKPOINT_BYTES_PER_DELTA", 1_000_000)
    desk = Desk(QueueConfig())
    desk.send_plain(40)
    (returned,) = desk.receive(1)
    for _ in range(8):
        desk.ask(Ack(SOURCE, tuple(desk.receive(1))))
    desk.ask(Release(SOURCE, (returned,), 0))
    monkeypatch.setattr(draft_module, "CHECKPOINT_DELTAS", 3)
    for _ in range(12):
        desk.ask(Ack(SOURCE, tuple(desk.receive(1))))
    desk.crash(compact_to=len(desk.journal))
    assert any(record.key.endswith(b"\0\0\0\x09") for record in desk.journal), "it is still there"
    assert desk.status(0).state is MessageState.DONE
    assert desk.shard.done_offset(SOURCE) == 20


def test_a_large_state_is_not_rewritten_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_module, "CHECKPOINT_DELTAS", 10)
    desk = Desk(QueueConfig(), checked=False)
    desk.send_plain(20_000)
    handles = desk.receive(20_000)
    desk.ask(Ack(SOURCE, tuple(handles[1:18_000:2])))
    for at in range(0, 4_000, 2):
        desk.ask(Ack(SOURCE, (handles[at],)))
    checkpoint_bytes = sum(len(r.value or b"") for r in desk.journal if r.key[:1] == CHECKPOINT)
    assert checkpoint_bytes < 3 * 150_000


def test_records_of_a_newer_broker_are_passed_over() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(2)
    desk.ask(Ack(SOURCE, tuple(desk.receive(1))))
    desk.journal += [
        JournalRecord(b"Z???", b"?"),
        JournalRecord(desk.journal[-1].key[:-4] + b"\0\0\0\x09", b"\x63"),
    ]
    desk.crash()
    assert desk.offsets() == [1]


def test_a_backlog_of_ten_million_costs_what_is_in_flight() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        desk = Desk(QueueConfig(), checked=False)
        desk.log[SOURCE] = range(10_000_000)  # type: ignore[assignment]
        desk.announce()
        desk.receive(10)
        cost = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    counts = desk.shard.counts(SOURCE)
    assert counts is not None and counts.visible == 10_000_000 - 10
    assert cost < 200_000


def test_long_leases_that_are_acked_at_once_do_not_pile_up() -> None:
    desk = Desk(QueueConfig(visibility_ms=12 * 3600 * 1000), checked=False)
    desk.send_plain(20_001)
    held = desk.receive(1)
    for _ in range(10_000):
        desk.ask(Ack(SOURCE, tuple(desk.receive(2))))
    partition = desk.shard._board.partitions[SOURCE]
    assert len(partition.deadlines) < 2_100
    for _ in range(10_000):
        desk.ask(Extend(SOURCE, tuple(held), 12 * 3600 * 1000))
    assert len(partition.deadlines) < 2_100


def test_journaled_leases_do_not_remember_owners() -> None:
    desk = Desk(QueueConfig(journaled_leases=True))
    desk.send_plain(1)
    desk.ask(Receive(SOURCE, 1, owner="m"))
    assert desk.status(0).owner == "m"
    desk.crash()
    assert desk.status(0).owner == ""


def test_first_receive_and_detail_survive_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_module, "CHECKPOINT_DELTAS", 2)
    desk = Desk(QueueConfig(delays=True))
    desk.send(*[LoggedMessage(0)] * 6, LoggedMessage(0, due_ms=EPOCH_MS + 99))
    desk.advance(5)
    desk.ask(Release(SOURCE, tuple(desk.receive(1)), 50))
    for _ in range(4):
        desk.ask(Ack(SOURCE, tuple(desk.receive(1))))
    desk.crash(compact_to=len(desk.journal))
    desk.advance(50)
    assert desk.ask(Receive(SOURCE, 1)).runs[0].first_received_ms == EPOCH_MS + 5
