"""The follower, rule by rule (R9, R11, R20-R26)."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import ErrorKind
from headrace.log.epochs import LeaderEpochs
from headrace.replication.follower import (
    AdvanceLogStart,
    Appended,
    AppendRecords,
    Diverged,
    Fetched,
    FetchFailed,
    FetchPlan,
    Follower,
    GoOffline,
    LeaderChanged,
    OutOfRange,
    RefreshMetadata,
    RestartAt,
    SetHighWatermark,
    Synced,
    Truncated,
    TruncateTo,
)


def follower(end: int = 0, *, epochs: tuple[tuple[int, int], ...] = (), **options: Any) -> Follower:
    cache = LeaderEpochs()
    for epoch, start in epochs:
        cache.assign(epoch, start)
    options.setdefault("durable_end", end)
    options.setdefault("last_epoch", epochs[-1][0] if epochs else -1)
    options.setdefault("high_watermark", 0)
    options.setdefault("log_start_offset", 0)
    made = Follower(cache, end_offset=end, **options)
    made.step(LeaderChanged(1, 7))
    return made


def plan_of(made: Follower) -> FetchPlan:
    plan = made.next_fetch()
    assert plan is not None
    return plan


def test_it_asks_for_its_end_with_its_last_epoch() -> None:
    """R22: (fetch offset, last fetched epoch, current leader epoch)."""
    assert follower(10, epochs=((3, 0),)).next_fetch() == FetchPlan(1, 7, 10, 3)
    assert follower().next_fetch() == FetchPlan(1, 7, 0, -1)


def test_without_a_leader_it_asks_nobody() -> None:
    made = follower()
    made.step(LeaderChanged(-1, 8))
    assert made.next_fetch() is None


def test_a_fetch_confirms_only_what_is_synced() -> None:
    """The leader counts the fetch offset as held for good; with headrace.flush=commit it must be."""
    made = follower()
    made.step(Fetched(plan_of(made), True, 0, 0))
    made.step(Appended(5, 7))
    assert made.next_fetch() is None
    made.step(Synced(4))
    assert made.next_fetch() is None
    made.step(Synced(5))
    assert made.next_fetch() == FetchPlan(1, 7, 5, 7)
    lazy = follower(waits_for_sync=False)
    lazy.step(Fetched(plan_of(lazy), True, 0, 0))
    lazy.step(Appended(5, 7))
    assert lazy.next_fetch() == FetchPlan(1, 7, 5, 7)


def test_r20_the_high_watermark_follows_up_to_the_own_end() -> None:
    made = follower(10, epochs=((3, 0),), high_watermark=4)
    assert made.step(Fetched(plan_of(made), False, 25, 0)) == [SetHighWatermark(10)]
    assert made.step(Fetched(plan_of(made), False, 25, 0)) == []


def test_r20_the_high_watermark_may_fall() -> None:
    made = follower(10, epochs=((3, 0),), high_watermark=10)
    assert made.step(Fetched(plan_of(made), False, 6, 0)) == [SetHighWatermark(6)]


def test_r20_a_checkpoint_beyond_the_log_counts_up_to_its_end() -> None:
    assert follower(10, epochs=((3, 0),), high_watermark=15).high_watermark == 10


def test_records_are_appended_before_anything_else_is_asked() -> None:
    made = follower()
    plan = plan_of(made)
    assert made.step(Fetched(plan, True, 3, 0)) == [AppendRecords()]
    assert made.next_fetch() is None
    assert made.step(Fetched(plan, True, 3, 0)) == []  # the same answer again
    assert made.step(Appended(5, 7)) == [SetHighWatermark(3)]


def test_r9_answers_of_an_old_leader_are_ignored() -> None:
    made = follower(10, epochs=((3, 0),))
    old = plan_of(made)
    made.step(LeaderChanged(2, 8))
    assert made.step(Fetched(old, True, 10, 0)) == []
    assert made.step(Diverged(old, 3, 5)) == []
    assert made.step(OutOfRange(old, 50)) == []
    assert made.step(FetchFailed(old, ErrorKind.NOT_LEADER_OR_FOLLOWER)) == []
    assert made.step(LeaderChanged(1, 7)) == []
    assert made.leader == 2


def test_r25_answers_for_another_offset_are_ignored() -> None:
    made = follower()
    plan = plan_of(made)
    made.step(Fetched(plan, True, 0, 0))
    made.step(Appended(5, 7))
    made.step(Synced(5))
    assert made.step(Fetched(plan, True, 5, 0)) == []
    again = plan_of(made)
    made.step(Fetched(again, True, 5, 0))
    made.step(Appended(8, 7))
    made.step(Synced(8))
    assert made.step(Fetched(again, True, 8, 0)) == [], "of the same epoch, but of where the log ended before"


def test_the_log_start_follows_the_leader() -> None:
    made = follower(10, epochs=((3, 0),))
    assert made.step(Fetched(plan_of(made), False, 0, 6)) == [AdvanceLogStart(6)]
    assert made.step(Fetched(plan_of(made), False, 0, 6)) == []


@pytest.mark.parametrize(
    ("answer", "point"),
    [
        ((3, 12), 12),  # the leader has less of the epoch
        ((2, 9), 8),  # we have less of it
        ((2, 5), 5),
        ((4, 30), 20),  # an epoch between two of ours: our largest below it ends at 20
        ((0, 0), 0),
        ((-1, -1), 0),  # the leader knows nothing of it
    ],
)
def test_r22_it_truncates_to_what_both_call_that_epoch(answer: tuple[int, int], point: int) -> None:
    made = follower(25, epochs=((2, 0), (3, 8), (6, 20)))
    assert made.step(Diverged(plan_of(made), *answer)) == [TruncateTo(point)]
    assert made.next_fetch() is None
    made.step(Truncated(point, 2 if point else -1))
    assert plan_of(made).fetch_offset == point


def test_r20_truncation_takes_the_high_watermark_along() -> None:
    made = follower(25, epochs=((2, 0),), high_watermark=25)
    made.step(LeaderChanged(1, 9, unclean_epoch=9))
    assert made.step(Diverged(plan_of(made), 2, 12)) == [TruncateTo(12)]
    assert made.step(Truncated(12, 2)) == [SetHighWatermark(12)]


def test_r24_below_the_high_watermark_it_goes_offline_and_keeps_its_bytes() -> None:
    made = follower(25, epochs=((2, 0),), high_watermark=13)
    (effect,) = made.step(Diverged(plan_of(made), 2, 12))
    assert isinstance(effect, GoOffline) and "below our high watermark 13" in effect.reason
    assert made.offline
    assert made.next_fetch() is None
    assert made.step(LeaderChanged(2, 9)) == []


def test_r24_exactly_at_the_high_watermark_is_fine() -> None:
    made = follower(25, epochs=((2, 0),), high_watermark=12)
    assert made.step(Diverged(plan_of(made), 2, 12)) == [TruncateTo(12)]


def test_r27_after_an_unclean_election_it_may_lose() -> None:
    made = follower(25, epochs=((2, 0),), high_watermark=20)
    made.step(LeaderChanged(3, 9, unclean_epoch=8))
    assert made.step(Diverged(plan_of(made), 2, 12)) == [TruncateTo(12)]


def test_r24_an_unclean_election_it_has_lived_through_is_no_excuse() -> None:
    made = follower(25, epochs=((2, 0),), high_watermark=20)
    made.step(LeaderChanged(3, 9, unclean_epoch=8))
    made.step(Fetched(plan_of(made), False, 20, 0))  # agrees with a leader after it
    made.step(LeaderChanged(4, 10, unclean_epoch=8))
    assert isinstance(made.step(Diverged(plan_of(made), 2, 12))[0], GoOffline)


def test_r24_one_that_was_down_during_an_unclean_election_may_lose() -> None:
    cache = LeaderEpochs()
    cache.assign(2, 0)
    made = Follower(cache, end_offset=25, durable_end=25, last_epoch=2, high_watermark=20, log_start_offset=0)
    made.step(LeaderChanged(3, 9, unclean_epoch=5))
    assert made.step(Diverged(plan_of(made), 2, 12)) == [TruncateTo(12)]


def test_r22_an_answer_that_makes_no_sense_stops_it() -> None:
    made = follower(10, epochs=((2, 0),))
    assert isinstance(made.step(Diverged(plan_of(made), 2, 10))[0], GoOffline)


def test_r26_out_of_range_begins_anew_at_the_leaders_start() -> None:
    made = follower(10, epochs=((2, 0),), high_watermark=10)
    assert made.step(OutOfRange(plan_of(made), 50)) == [RestartAt(50)]
    assert made.next_fetch() is None
    made.step(Truncated(50, -1))
    assert made.next_fetch() == FetchPlan(1, 7, 50, -1)


def test_r26_past_the_leaders_end_only_epochs_may_decide() -> None:
    made = follower(10, epochs=((2, 0),))
    assert isinstance(made.step(OutOfRange(plan_of(made), 0))[0], GoOffline)


@pytest.mark.parametrize(
    "kind",
    [
        ErrorKind.FENCED_LEADER_EPOCH,
        ErrorKind.UNKNOWN_LEADER_EPOCH,
        ErrorKind.NOT_LEADER_OR_FOLLOWER,
        ErrorKind.NETWORK_EXCEPTION,
    ],
)
def test_refusals_ask_for_fresh_metadata(kind: ErrorKind) -> None:
    made = follower()
    assert made.step(FetchFailed(plan_of(made), kind)) == [RefreshMetadata()]
    assert made.next_fetch() is not None
