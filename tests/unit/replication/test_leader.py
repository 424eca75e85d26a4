"""The leader, rule by rule (R9-R19, R31)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from headrace.core.errors import ErrorKind
from headrace.log.epochs import LeaderEpochs
from headrace.replication.leader import (
    AdvanceHighWatermark,
    BrokerChanged,
    Diverging,
    FailWaiters,
    FollowerFetch,
    HigherEpochSeen,
    IsrChange,
    IsrCommitted,
    IsrRejected,
    IsrUnknown,
    Leader,
    Leadership,
    LeaseChanged,
    LocalAppended,
    LocalDurable,
    PartitionRead,
    ProposeIsr,
    RefuseFetch,
    RequirementsChanged,
    RereadPartition,
    Resign,
    Stalled,
    StepDown,
    Tick,
)

EPOCH = 5
REVISION = 100


class Bench:
    """A leader, broker 1, whose followers 2 and 3 are registered under epochs 20 and 30."""

    def __init__(self, *, end: int = 0, high_watermark: int = 0, **options: Any) -> None:
        options.setdefault("replicas", (1, 2, 3))
        options.setdefault("isr", options["replicas"])
        self.epochs = LeaderEpochs()
        for epoch, start in options.pop("epochs", [(EPOCH, end)]):
            self.epochs.assign(epoch, start)
        self.now_ms = 0
        self.leader = Leader(
            Leadership(broker_id=1, leader_epoch=EPOCH, revision=REVISION, lag_max_ms=10_000, **options),
            self.epochs,
            end_offset=end,
            durable_end=end,
            high_watermark=high_watermark,
            now_ms=0,
        )
        for broker in options["replicas"]:
            self.step(BrokerChanged(broker, broker * 10, live=True, rack=f"rack{broker}"))

    def step(self, event: Any) -> list[Any]:
        is_quiet = not self.leader.needs_ticks
        effects = list(self.leader.step(event, self.now_ms))
        # F27: whoever needs no ticks is not told of them.
        assert not (is_quiet and isinstance(event, Tick) and effects), effects
        return effects

    def write(self, end: int) -> list[Any]:
        return self.step(LocalAppended(end)) + self.step(LocalDurable(end))

    def fetch(
        self, follower: int, offset: int, *, life: int = 0, epoch: int = EPOCH, last: int = -1
    ) -> list[Any]:
        return self.step(FollowerFetch(follower, life or follower * 10, offset, last, epoch))

    def read(
        self, revision: int, isr: tuple[int, ...], elr: tuple[int, ...] = (), epoch: int = EPOCH
    ) -> list[Any]:
        return self.step(PartitionRead(revision, epoch, self.leader.replicas, isr, elr))


def proposals(effects: list[Any]) -> list[ProposeIsr]:
    return [effect for effect in effects if isinstance(effect, ProposeIsr)]


# -- R9, R31: epochs --------------------------------------------------------------------------------------------------


def test_r9_a_lower_epoch_is_fenced_and_teaches_nothing() -> None:
    bench = Bench()
    bench.write(10)
    assert bench.fetch(2, 10, epoch=EPOCH - 1) == [RefuseFetch(ErrorKind.FENCED_LEADER_EPOCH)]
    assert bench.fetch(3, 10) == []
    assert bench.leader.high_watermark == 0


def test_r31_a_higher_epoch_ends_the_leadership_in_the_same_step() -> None:
    bench = Bench()
    bench.write(10)
    effects = bench.fetch(2, 10, epoch=EPOCH + 1)
    assert effects == [
        RefuseFetch(ErrorKind.UNKNOWN_LEADER_EPOCH),
        FailWaiters(ErrorKind.NOT_LEADER_OR_FOLLOWER),
        StepDown("epoch 6 has begun"),
        RereadPartition(),
    ]
    assert bench.leader.stepped_down
    assert bench.fetch(3, 10) == [RefuseFetch(ErrorKind.NOT_LEADER_OR_FOLLOWER)]
    assert bench.write(20) == []
    assert bench.leader.acks_all_refusal() is ErrorKind.NOT_LEADER_OR_FOLLOWER
    assert bench.leader.acks_some_refusal() is ErrorKind.NOT_LEADER_OR_FOLLOWER
    assert bench.leader.read_refusal() is ErrorKind.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    "event", [HigherEpochSeen(EPOCH + 1), PartitionRead(200, EPOCH + 1, (1, 2, 3), (2, 3), ())]
)
def test_r31_whoever_tells_it(event: Any) -> None:
    bench = Bench()
    assert StepDown("epoch 6 has begun") in bench.step(event)


def test_r31_a_lower_epoch_does_not() -> None:
    bench = Bench()
    assert bench.step(HigherEpochSeen(EPOCH)) == []
    assert bench.read(200, (2, 3), epoch=EPOCH - 1) == []
    assert bench.leader.isr == (1, 2, 3)


@pytest.mark.parametrize(
    ("epoch", "refusal"),
    [
        (-1, None),
        (EPOCH, None),
        (EPOCH - 1, ErrorKind.FENCED_LEADER_EPOCH),
        (EPOCH + 1, ErrorKind.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_r9_for_clients(epoch: int, refusal: ErrorKind | None) -> None:
    assert Bench().leader.epoch_refusal(epoch) is refusal


# -- R12, R13: the high watermark -------------------------------------------------------------------------------------


def test_r12_everyone_in_the_isr_must_have_it() -> None:
    bench = Bench()
    bench.write(10)
    assert bench.fetch(2, 10) == []
    assert bench.fetch(3, 4) == [AdvanceHighWatermark(4)]
    assert bench.fetch(3, 10) == [AdvanceHighWatermark(10)]


def test_r12_the_leader_counts_what_it_has_synced() -> None:
    bench = Bench(replicas=(1, 2))
    bench.step(LocalAppended(10))
    assert bench.fetch(2, 10) == []
    assert bench.step(LocalDurable(6)) == [AdvanceHighWatermark(6)]
    assert bench.step(LocalDurable(10)) == [AdvanceHighWatermark(10)]


def test_without_sync_the_leader_counts_what_it_has_written() -> None:
    bench = Bench(replicas=(1,), waits_for_sync=False)
    assert bench.step(LocalAppended(10)) == [AdvanceHighWatermark(10)]
    assert bench.step(LocalDurable(10)) == []


def test_alone_a_sync_is_a_commit() -> None:
    bench = Bench(replicas=(1,))
    assert bench.step(LocalAppended(10)) == []
    assert bench.step(LocalDurable(10)) == [AdvanceHighWatermark(10)]
    assert bench.step(LocalDurable(10)) == []


def test_a_new_leader_alone_commits_what_it_has_found() -> None:
    bench = Bench(replicas=(1,), end=8, high_watermark=3)
    assert bench.step(LocalDurable(8)) == []  # already moved when the bench told it of the brokers
    assert bench.leader.high_watermark == 8


def test_r12_too_small_an_isr_commits_nothing() -> None:
    bench = Bench(isr=(1, 2), elr=(), min_isr=3)
    bench.write(10)
    assert bench.fetch(2, 10) == []
    assert bench.leader.high_watermark == 0


def test_r12_min_isr_never_asks_for_more_than_there_are_replicas() -> None:
    bench = Bench(replicas=(1,), min_isr=2)
    assert bench.leader.acks_all_refusal() is None
    assert bench.write(3) == [AdvanceHighWatermark(3)]


def test_r12_a_fetch_of_another_life_forgets_the_old_one() -> None:
    """A broker that restarted may have lost what its earlier life had fetched."""
    bench = Bench(replicas=(1, 2))
    bench.write(10)
    bench.fetch(2, 4)
    bench.step(BrokerChanged(2, 25, live=True))
    assert bench.step(LocalDurable(10)) == []
    bench.write(12)
    assert bench.leader.high_watermark == 4
    assert bench.fetch(2, 10, life=20) == [RefuseFetch(ErrorKind.STALE_BROKER_EPOCH)]
    assert bench.fetch(2, 10, life=25) == [AdvanceHighWatermark(10)]


def test_the_high_watermark_never_falls() -> None:
    bench = Bench(replicas=(1, 2))
    bench.write(10)
    bench.fetch(2, 10)
    assert bench.fetch(2, 5) == []
    assert bench.leader.high_watermark == 10


def test_r13_a_member_proposed_to_join_is_waited_for() -> None:
    bench = Bench(isr=(1, 2))
    bench.write(10)
    bench.fetch(2, 10)
    (proposal,) = proposals(bench.fetch(3, 10))
    assert proposal == ProposeIsr((1, 2, 3), IsrChange.EXPAND, REVISION, {3: 30})
    bench.write(20)
    assert bench.fetch(2, 20) == []
    assert bench.fetch(3, 20) == [AdvanceHighWatermark(20)]


def test_r13_a_member_proposed_to_leave_is_waited_for() -> None:
    bench = Bench(isr=(1, 2, 3))
    bench.write(10)
    bench.fetch(2, 10)
    bench.now_ms = 20_000
    bench.fetch(2, 10)
    (proposal,) = bench.step(Tick())
    assert proposal == ProposeIsr((1, 2), IsrChange.SHRINK, REVISION, {})
    assert bench.leader.high_watermark == 0
    assert bench.step(IsrCommitted(101, (1, 2), ())) == [AdvanceHighWatermark(10)]


def test_r13_one_proposal_at_a_time() -> None:
    bench = Bench(isr=(1,), min_isr=1)
    assert len(proposals(bench.fetch(2, 0))) == 1
    assert bench.fetch(3, 0) == []
    effects = bench.step(IsrCommitted(101, (1, 2), ()))
    assert proposals(effects) == [ProposeIsr((1, 2, 3), IsrChange.EXPAND, 101, {3: 30})]


# -- R14, R15, R16: who is in sync ------------------------------------------------------------------------------------


def test_r14_not_below_the_high_watermark() -> None:
    bench = Bench(isr=(1, 2))
    bench.write(10)
    bench.fetch(2, 10)
    assert bench.fetch(3, 9) == []
    assert len(proposals(bench.fetch(3, 10))) == 1


def test_r14_not_below_the_start_of_the_epoch() -> None:
    """A new leader's high watermark may be old; what it found in its log may all be committed."""
    bench = Bench(end=10, high_watermark=4, isr=(1, 2))
    assert bench.fetch(3, 9) == []
    assert len(proposals(bench.fetch(3, 10))) == 1


@pytest.mark.parametrize("event", [BrokerChanged(3, 30, live=False), BrokerChanged(3, 35, live=True)])
def test_r14_not_fenced_nor_from_another_life(event: BrokerChanged) -> None:
    bench = Bench(isr=(1, 2))
    bench.step(event)
    assert proposals(bench.fetch(3, 0)) == []


def test_r14_not_without_a_fetch_in_this_epoch() -> None:
    bench = Bench(isr=(1, 2))
    assert bench.step(Tick()) == []


def test_a_follower_nobody_told_us_of_is_refused() -> None:
    assert Bench().fetch(9, 0) == [RefuseFetch(ErrorKind.NOT_LEADER_OR_FOLLOWER)]


def test_r15_slow_followers_leave_by_time_not_by_lag() -> None:
    bench = Bench(replicas=(1, 2))
    bench.write(1000)
    bench.fetch(2, 0)
    bench.now_ms = 9_000
    assert bench.step(Tick()) == []
    bench.now_ms = 10_001
    assert proposals(bench.step(Tick())) == [ProposeIsr((1,), IsrChange.SHRINK, REVISION, {})]


def test_r15_a_follower_that_keeps_pace_with_a_busy_leader_stays() -> None:
    """It never reaches the end, but each time has what was there at its last fetch."""
    bench = Bench(replicas=(1, 2))
    for second in range(1, 40):
        bench.now_ms = second * 1_000
        bench.write(second * 100)
        bench.fetch(2, (second - 1) * 100)
        assert proposals(bench.step(Tick())) == []


def test_r15_after_a_stall_the_followers_are_excused() -> None:
    bench = Bench(replicas=(1, 2))
    bench.write(10)
    bench.now_ms = 3_600_000
    assert bench.step(Stalled()) == [RereadPartition()]
    assert proposals(bench.step(Tick())) == []
    bench.now_ms += 10_001
    assert len(proposals(bench.step(Tick()))) == 1


def test_a_caught_up_follower_of_an_idle_partition_stays() -> None:
    bench = Bench(replicas=(1, 2))
    bench.fetch(2, 0)
    bench.now_ms = 3_600_000
    assert bench.step(Tick()) == []


def test_r16_a_refusal_rolls_back_and_reads_again() -> None:
    bench = Bench(isr=(1, 2), replicas=(1, 2, 3))
    bench.write(10)
    bench.fetch(3, 10)
    assert bench.fetch(2, 10) == [AdvanceHighWatermark(10)]
    bench.write(20)
    bench.fetch(2, 20)
    assert bench.step(IsrRejected(REVISION)) == [RereadPartition(), AdvanceHighWatermark(20)]
    assert bench.fetch(3, 20) == []  # not before we know what was wrong
    assert bench.step(Tick()) == [RereadPartition()]
    bench.read(REVISION, (1, 2))
    assert len(proposals(bench.step(Tick()))) == 1


def test_r16_an_unknown_outcome_keeps_everyone_waited_for() -> None:
    bench = Bench(isr=(1, 2))
    bench.write(10)
    bench.fetch(3, 10)
    bench.fetch(2, 10)
    bench.write(20)
    bench.fetch(2, 20)
    assert bench.step(IsrUnknown(REVISION)) == [RereadPartition()]
    assert bench.leader.high_watermark == 10
    # Still unchanged: the lost transaction may yet arrive, so the partition is written again to settle it.
    assert bench.read(REVISION, (1, 2)) == []
    assert bench.step(Tick()) == [ProposeIsr((1, 2), IsrChange.SETTLE, REVISION, {})]
    assert bench.leader.high_watermark == 10
    assert AdvanceHighWatermark(20) in bench.step(IsrCommitted(101, (1, 2), ()))


def test_r16_a_refused_settlement_proves_nothing_about_the_lost_proposal() -> None:
    bench = Bench(isr=(1, 2))
    bench.fetch(3, 0)
    bench.step(IsrUnknown(REVISION))
    bench.read(REVISION, (1, 2))
    bench.step(Tick())
    bench.write(20)
    bench.fetch(2, 20)
    bench.step(IsrRejected(REVISION))
    assert bench.leader.high_watermark == 0
    assert bench.read(102, (1, 2, 3)) == []
    assert bench.fetch(3, 20) == [AdvanceHighWatermark(20)]


def test_answers_to_older_proposals_are_ignored() -> None:
    bench = Bench(isr=(1,), min_isr=1)
    bench.fetch(2, 0)
    bench.read(101, (1,))  # someone else wrote; the proposal compared 100 and can't happen
    assert bench.step(IsrRejected(REVISION)) == []
    assert bench.step(IsrUnknown(REVISION)) == []
    assert bench.step(IsrCommitted(REVISION, (1, 2), ())) == []
    assert bench.leader.isr == (1,)


def test_the_watch_may_be_faster_than_the_answer() -> None:
    bench = Bench(isr=(1, 2))
    bench.fetch(3, 0)
    bench.read(101, (1, 2, 3))
    assert bench.leader.isr == (1, 2, 3)
    assert bench.step(IsrCommitted(101, (1, 2, 3), ())) == []


def test_an_older_reading_changes_nothing() -> None:
    bench = Bench()
    assert bench.read(REVISION - 1, (1,)) == []
    assert bench.leader.isr == (1, 2, 3)


# -- R17, R18: acks ---------------------------------------------------------------------------------------------------


def test_r17_refused_before_the_append() -> None:
    bench = Bench(isr=(1,), elr=(2,), min_isr=2)
    assert bench.leader.acks_all_refusal() is ErrorKind.NOT_ENOUGH_REPLICAS
    bench.step(RequirementsChanged(1, 1, True))
    assert bench.leader.acks_all_refusal() is None


def test_r17_who_waits_fails_when_the_isr_becomes_too_small() -> None:
    bench = Bench(replicas=(1, 2), min_isr=2)
    effects = bench.read(101, (1,), (2,))
    assert effects == [FailWaiters(ErrorKind.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    assert bench.read(102, (1,), (2,)) == []


def test_c5_an_ack_means_two_data_centres() -> None:
    """min.insync.racks: two replicas in one rack are one data centre."""
    bench = Bench(isr=(1, 2), min_isr=2, min_racks=2, rack="east")
    bench.step(BrokerChanged(1, 10, live=True, rack="east"))
    bench.step(BrokerChanged(2, 20, live=True, rack="east"))
    bench.step(BrokerChanged(3, 30, live=True, rack="west"))
    bench.write(10)
    bench.fetch(2, 10)
    assert bench.leader.acks_all_refusal() is ErrorKind.NOT_ENOUGH_REPLICAS
    assert bench.leader.high_watermark == 0
    bench.fetch(3, 10)
    assert bench.step(IsrCommitted(101, (1, 2, 3), ())) == [AdvanceHighWatermark(10)]
    assert bench.leader.acks_all_refusal() is None


def test_c5_a_broker_without_a_rack_is_in_no_data_centre() -> None:
    bench = Bench(replicas=(1, 2), min_racks=2, rack=None)
    bench.step(BrokerChanged(1, 10, live=True))
    bench.step(BrokerChanged(2, 20, live=True))
    assert bench.leader.acks_all_refusal() is ErrorKind.NOT_ENOUGH_REPLICAS


def test_r18_resigning_fails_who_waits() -> None:
    bench = Bench()
    assert bench.step(Resign(ErrorKind.KAFKA_STORAGE_ERROR)) == [
        FailWaiters(ErrorKind.KAFKA_STORAGE_ERROR),
        StepDown("resigned"),
    ]
    assert bench.write(10) == []


# -- R7, R19: reading -------------------------------------------------------------------------------------------------


def test_r19_the_latest_offset_is_unknown_below_the_start_of_the_epoch() -> None:
    bench = Bench(end=10, high_watermark=4, replicas=(1, 2))
    assert bench.leader.latest_offset_refusal() is ErrorKind.OFFSET_NOT_AVAILABLE
    assert not bench.leader.knows_what_is_committed
    bench.fetch(2, 10)
    assert bench.leader.latest_offset_refusal() is None
    assert bench.leader.knows_what_is_committed


def test_r7_without_a_lease_only_acks_all_goes_on() -> None:
    """Its commit still needs every follower in this epoch; all else would be our word alone."""
    bench = Bench(isr=(1, 2))
    bench.step(LeaseChanged(held=False))
    assert bench.leader.read_refusal() is ErrorKind.NOT_LEADER_OR_FOLLOWER
    assert bench.leader.latest_offset_refusal() is ErrorKind.NOT_LEADER_OR_FOLLOWER
    assert bench.leader.acks_some_refusal() is ErrorKind.NOT_LEADER_OR_FOLLOWER
    assert bench.leader.acks_all_refusal() is None
    bench.write(10)
    assert proposals(bench.fetch(3, 10)) == []
    assert bench.fetch(2, 10) == [AdvanceHighWatermark(10)]
    bench.now_ms = 60_000
    bench.write(20)
    assert proposals(bench.step(Tick())) == []
    bench.step(LeaseChanged(held=True))
    assert bench.leader.read_refusal() is None
    assert len(proposals(bench.step(Tick()))) == 1


def test_f27_a_leader_without_followers_needs_no_ticks_unless_something_is_open() -> None:
    alone = Bench(replicas=(1,))
    assert not alone.leader.needs_ticks
    alone.now_ms = 3_600_000
    assert alone.step(Tick()) == []
    assert Bench(replicas=(1, 2)).leader.needs_ticks
    assert Bench(replicas=(1,), elr=(2,)).leader.needs_ticks


# -- R22: divergence --------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    fetch_offset: int
    last_epoch: int
    diverging: Diverging | None


@pytest.mark.parametrize(
    "case",
    [
        Case(0, -1, None),  # an empty follower
        Case(10, 2, None),  # exactly at the end of an epoch we know
        Case(7, 2, None),  # inside it
        Case(12, 2, Diverging(2, 10)),  # it has more of the epoch than we have
        Case(10, 3, Diverging(2, 10)),  # an epoch we never saw
        Case(25, 4, Diverging(4, 20)),
        Case(20, 4, None),
        Case(22, EPOCH, None),
        Case(26, EPOCH, Diverging(EPOCH, 25)),  # past our end
        Case(3, 0, None),  # before everything we know: our log starts there
        Case(9, 0, Diverging(0, 5)),
    ],
)
def test_r22_where_histories_part(case: Case) -> None:
    bench = Bench(end=25, epochs=[(2, 5), (4, 10), (EPOCH, 20)])
    expected = [] if case.diverging is None else [case.diverging]
    assert bench.fetch(2, case.fetch_offset, last=case.last_epoch) == expected


def test_r22_a_diverging_fetch_teaches_nothing() -> None:
    bench = Bench(end=10, epochs=[(2, 0), (EPOCH, 10)], replicas=(1, 2))
    bench.fetch(2, 12, last=3)
    bench.write(12)
    assert bench.leader.high_watermark == 0


# -- R28: the ELR -----------------------------------------------------------------------------------------------------


def test_r28_while_there_is_an_elr_nothing_is_committed_without_it() -> None:
    """min.insync.replicas was lowered: the ISR is large enough now, but the coordinator may still elect from the ELR."""
    bench = Bench(replicas=(1, 2), isr=(1,), elr=(2,), min_isr=2)
    effects = bench.step(RequirementsChanged(1, 1, True))
    assert proposals(effects) == [ProposeIsr((1,), IsrChange.CLEAR_ELR, REVISION, {})]
    assert bench.write(10) == []
    assert bench.step(IsrCommitted(101, (1,), ())) == [AdvanceHighWatermark(10)]


def test_r35_a_replica_that_left_and_came_back_starts_anew() -> None:
    bench = Bench()
    bench.write(10)
    bench.fetch(3, 10)
    bench.step(PartitionRead(101, EPOCH, (1, 2), (1, 2), ()))
    bench.step(PartitionRead(102, EPOCH, (1, 2, 3), (1, 2), ()))
    assert proposals(bench.step(Tick())) == []
    assert len(proposals(bench.fetch(3, 10))) == 1
