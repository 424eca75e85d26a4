"""The queue checker: each anomaly once, and the near misses that are legal."""

from __future__ import annotations

from typing import Any

from headrace.testing.dice import Dice
from headrace.testing.history import OperationOutcome
from headrace.testing.queue_checker import Clocks, DequeuedMessage, QueueHistory, QueueReport, check_queue

OK, FAIL, INFO = OperationOutcome.OK, OperationOutcome.FAIL, OperationOutcome.INFO
Q = "q"


class Story:
    def __init__(self) -> None:
        self.history = QueueHistory()
        self.receipts = 0

    def send(self, message: str, at: int = 0, outcome: OperationOutcome = OK, **options: Any) -> None:
        self.history.end(self.history.enqueue(Q, message, at, **options), outcome, at + 1)

    def receive(
        self, *messages: str, at: int, took: int = 1, visibility_ms: int = 30_000
    ) -> list[DequeuedMessage]:
        operation = self.history.receive(Q, visibility_ms, at)
        deliveries = []
        for message in messages:
            self.receipts += 1
            deliveries.append(DequeuedMessage(message, f"r{self.receipts}"))
        self.history.end(operation, OK, at + took, deliveries)
        return deliveries

    def delete(self, delivery: DequeuedMessage, at: int, outcome: OperationOutcome = OK) -> None:
        self.history.end(self.history.delete(Q, delivery, at), outcome, at + 1)

    def change(
        self, delivery: DequeuedMessage, visibility_ms: int, at: int, outcome: OperationOutcome = OK
    ) -> None:
        self.history.end(self.history.change_visibility(Q, delivery, visibility_ms, at), outcome, at + 1)

    def check(self, **options: Any) -> QueueReport:
        return check_queue(self.history.operations, **options)


def test_empty_history() -> None:
    assert Story().check().is_valid


def test_lost() -> None:
    story = Story()
    story.send("a")
    story.send("maybe", outcome=INFO)
    story.send("no", outcome=FAIL)
    assert [(a.name, a.message) for a in story.check().anomalies] == [("lost", "a")]
    assert story.check(remaining=["a"]).is_valid
    story.history.discard(Q, "a", 5)
    assert story.check().is_valid


def test_unexpected_recovered_and_duplicated() -> None:
    story = Story()
    story.send("maybe", outcome=INFO)
    story.send("no", outcome=FAIL)
    story.receive("maybe", "no", "what", at=10)
    story.receive("maybe", at=40_000)
    report = story.check()
    assert {(a.name, a.message) for a in report.anomalies} == {("unexpected", "no"), ("unexpected", "what")}
    assert (report.recovered, report.duplicated) == (1, 1)


def test_early_redelivery() -> None:
    story = Story()
    story.send("a")
    story.receive("a", at=10)
    story.receive("a", at=30_000)
    assert story.check().names() == {"early-redelivery"}


def test_redelivery_at_the_deadline_is_legal() -> None:
    story = Story()
    story.send("a")
    story.receive("a", at=10)
    story.receive("a", at=25_000, took=5_010)  # a long poll that may have been answered at the deadline
    assert story.check().is_valid


def test_early_redelivery_knows_extensions_and_releases() -> None:
    story = Story()
    story.send("a")
    (first,) = story.receive("a", at=0)
    story.change(first, 60_000, at=20_000)
    (second,) = story.receive("a", at=40_000)
    assert story.check().names() == {"early-redelivery"}
    story = Story()
    story.send("a")
    (first,) = story.receive("a", at=0)
    story.change(first, 0, at=10)
    (second,) = story.receive("a", at=20)
    story.change(second, 0, at=30, outcome=INFO)
    story.receive("a", at=40)
    assert story.check().is_valid


def test_resurrection() -> None:
    story = Story()
    story.send("a")
    (first,) = story.receive("a", at=0)
    story.delete(first, at=10)
    story.receive("a", at=50_000)
    assert story.check().names() == {"resurrection"}
    assert story.check(resurrection_window_ms=60_000).is_valid


def test_a_delete_that_is_unknown_or_stale_proves_nothing() -> None:
    story = Story()
    story.send("a")
    (first,) = story.receive("a", at=0)
    story.delete(first, at=10, outcome=INFO)
    story.receive("a", at=50_000)
    story.delete(first, at=60_000)  # the handle of the delivery before
    story.receive("a", at=100_000)
    assert story.check().is_valid


def test_a_receive_that_was_under_way_when_the_delete_came_is_no_resurrection() -> None:
    story = Story()
    story.send("a")
    (first,) = story.receive("a", at=0, visibility_ms=5)
    receive = story.history.receive(Q, 30_000, 6)
    story.delete(first, at=7)
    story.history.end(receive, OK, 9, [DequeuedMessage("a", "r9")])
    assert story.check().is_valid


def test_fifo_violation_when_a_later_message_comes_first() -> None:
    story = Story()
    story.send("a", group="g")
    story.send("b", group="g")
    story.receive("b", at=10)
    story.receive("a", at=20)
    report = story.check()
    assert [(a.name, a.message, a.detail["overtook"]) for a in report.anomalies] == [
        ("fifo-violation", "b", "a")
    ]


def test_fifo_violation_while_the_one_before_is_out() -> None:
    story = Story()
    story.send("a", group="g")
    story.send("b", group="g")
    story.receive("a", at=10)
    story.receive("b", at=20)
    assert story.check().names() == {"fifo-violation"}


def test_fifo_violation_inside_one_answer() -> None:
    story = Story()
    story.send("a", group="g")
    story.send("b", group="g")
    story.receive("b", "a", at=10)
    assert story.check().names() == {"fifo-violation"}


def test_fifo_in_order() -> None:
    story = Story()
    story.send("a", group="g")
    story.send("b", group="g")
    story.send("c", group="g")
    story.send("other", group="h")
    first, _ = story.receive("a", "b", at=10)
    story.receive("other", at=15)
    story.delete(first, at=20)
    (second,) = story.receive("b", at=40_000)
    story.delete(second, at=40_010)
    story.history.discard(Q, "b", 40_020)
    story.receive("c", at=40_030)
    assert story.check().is_valid


def test_concurrent_sends_have_no_order() -> None:
    story = Story()
    one = story.history.enqueue(Q, "a", 0, group="g")
    two = story.history.enqueue(Q, "b", 0, group="g")
    story.history.end(one, OK, 1)
    story.history.end(two, OK, 1)
    (first,) = story.receive("b", at=10)
    story.delete(first, at=11)
    story.receive("a", at=12)
    assert story.check().is_valid


def test_early_delivery() -> None:
    story = Story()
    story.send("a", at=0, delay_ms=5_000)
    story.receive("a", at=4_000)
    assert story.check().names() == {"early-delivery"}
    story = Story()
    story.send("a", at=0, delay_ms=5_000)
    story.receive("a", at=4_000, took=1_500)
    assert story.check().is_valid


def test_dedup_violation() -> None:
    story = Story()
    story.send("a", at=0, dedup_id="d")
    story.send("b", at=299_000, dedup_id="d")
    story.receive("a", "b", at=299_500)
    assert story.check().names() == {"dedup-violation"}


def test_dedup_swallows_the_second_and_forgets_after_five_minutes() -> None:
    story = Story()
    story.send("a", at=0, dedup_id="d")
    story.send("b", at=1_000, dedup_id="d")
    story.send("c", at=302_000, dedup_id="d")
    story.receive("a", at=2_000)
    story.receive("c", at=303_000)
    report = story.check()
    assert report.is_valid
    assert report.deduplicated == 1


def test_dedup_does_not_excuse_a_loss() -> None:
    story = Story()
    story.send("a", at=0, dedup_id="d")
    story.send("b", at=1_000, dedup_id="d")
    assert [a.message for a in story.check().anomalies] == ["a", "b"]
    assert "lost: 'a'" in story.check().describe()


def test_a_correct_queue_never_alarms() -> None:
    """A perfect queue with leases, delays, releases and deletes, driven at random: nothing to report."""
    for seed in range(30):
        dice = Dice(seed)
        story = Story()
        now, count = 0, 0
        queue: dict[str, int] = {}  # message -> visible from
        leases: dict[str, DequeuedMessage] = {}
        for _ in range(80):
            now += dice.between(1, 15_000)
            what = dice.pick(("send", "receive", "delete", "release"))
            if what == "send":
                count += 1
                delay = dice.pick((0, 5_000))
                outcome = dice.pick((OK, FAIL, INFO))
                story.send(f"m{count}", at=now, outcome=outcome, delay_ms=delay)
                if outcome is OK or (outcome is INFO and dice.chance(0.5)):
                    queue[f"m{count}"] = now + delay
            elif what == "receive":
                ready = [message for message, at in queue.items() if at <= now]
                for delivery in story.receive(*ready[:3], at=now):
                    message = str(delivery.message)
                    queue[message] = now + 30_000
                    leases[message] = delivery
            elif leases:
                message = dice.pick(sorted(leases))
                if message in queue and what == "delete":
                    story.delete(leases.pop(message), at=now)
                    del queue[message]
                elif message in queue:
                    story.change(leases.pop(message), 0, at=now)
                    queue[message] = now
        report = story.check(remaining=list(queue))
        assert report.is_valid, report.describe()


# -- what excuses a queue, and the nearest history that does not -------------------------------------------------------


def overlapping(story: Story, early: int, late: int) -> tuple[DequeuedMessage, DequeuedMessage]:
    """Two receives of "a" from 0 on: one with a short lease is answered at 10, one with a long lease at 20. Their delivery
    numbers say which was first."""
    story.send("a")
    short, long = story.history.receive(Q, 5, 0), story.history.receive(Q, 30_000, 0)
    first, second = DequeuedMessage("a", "short", early), DequeuedMessage("a", "long", late)
    story.history.end(short, OK, 10, [first])
    story.history.end(long, OK, 20, [second])
    return first, second


def test_receives_that_overlap_may_have_come_in_either_order() -> None:
    story = Story()
    story.send("a")
    long, short = story.history.receive(Q, 30_000, 0), story.history.receive(Q, 5, 0)
    story.history.end(long, OK, 10, [DequeuedMessage("a", "long")])
    story.history.end(short, OK, 20, [DequeuedMessage("a", "short")])
    assert story.check().is_valid, "the short lease may have been the first, and over"


def test_a_change_answered_while_the_message_is_handed_out_again_may_have_prolonged_the_newer_lease() -> None:
    """F39: an older receipt may keep a message longer for whoever has it now (queue seed 9600010)."""
    for change_first in (False, True):
        story = Story()
        story.send("a")
        receive, old = story.history.receive(Q, 1_000, 0), DequeuedMessage("a", "old", 1)
        story.history.end(receive, OK, 10, [old])
        if change_first:
            story.change(old, 60_000, at=500)
        again = story.history.receive(Q, 1_000, 2_000)
        if not change_first:
            story.change(old, 60_000, at=2_001)
        story.history.end(again, OK, 2_010, [DequeuedMessage("a", "new", 2)])
        assert story.check().names() == ({"early-redelivery"} if change_first else set())


def test_receives_that_overlap_are_early_when_neither_order_is_legal() -> None:
    story = Story()
    story.send("a")
    one, other = story.history.receive(Q, 30_000, 0), story.history.receive(Q, 30_000, 0)
    story.history.end(one, OK, 10, [DequeuedMessage("a", "one")])
    story.history.end(other, OK, 20, [DequeuedMessage("a", "other")])
    assert story.check().names() == {"early-redelivery"}


def test_delivery_numbers_say_which_of_two_overlapping_receives_was_first() -> None:
    story = Story()
    overlapping(story, 1, 2)
    assert story.check().is_valid
    story = Story()
    overlapping(story, 2, 1)
    assert story.check().names() == {"early-redelivery"}, "the long lease was first"


def test_receives_that_do_not_overlap_are_in_their_order_whatever_their_numbers() -> None:
    story = Story()
    story.send("a")
    for at, number in ((0, 2), (100, 1)):
        receive = story.history.receive(Q, 30_000, at)
        story.history.end(receive, OK, at + 1, [DequeuedMessage("a", f"r{number}", number)])
    assert story.check().names() == {"early-redelivery"}


def resurrected(own: int, other: int, *, deleted_at: int) -> QueueReport:
    """A delete by the short of two overlapping receives, and a delivery after it."""
    story = Story()
    first, _ = overlapping(story, own, other)
    story.delete(first, at=deleted_at)
    receive = story.history.receive(Q, 30_000, 60_000)
    story.history.end(receive, OK, 60_001, [DequeuedMessage("a", "last", max(own, other) + 1)])
    return story.check()


def test_a_delete_may_be_too_late_for_a_delivery_that_overlaps_and_may_be_the_later_one() -> None:
    assert resurrected(1, 2, deleted_at=30).is_valid


def test_a_delete_by_the_later_of_two_overlapping_deliveries_counts() -> None:
    assert "resurrection" in resurrected(2, 1, deleted_at=30).names()


def one_delete(numbers: tuple[int, int], *, deleted_at: int, clocks: Clocks = Clocks()) -> QueueReport:  # noqa: B008
    """Received at 0 for ten seconds, deleted, received again."""
    story = Story()
    story.send("a")
    receive = story.history.receive(Q, 10_000, 0)
    story.history.end(receive, OK, 1, [DequeuedMessage("a", "own", numbers[0])])
    story.delete(DequeuedMessage("a", "own", numbers[0]), at=deleted_at)
    receive = story.history.receive(Q, 10_000, 60_000)
    story.history.end(receive, OK, 60_001, [DequeuedMessage("a", "again", numbers[1])])
    return story.check(clocks=clocks)


def test_a_delivery_that_nobody_saw_may_have_been_out_before_the_delete() -> None:
    assert one_delete((1, 3), deleted_at=20_000).is_valid


def test_without_a_gap_in_the_numbers_no_delivery_was_out_before_the_delete() -> None:
    assert one_delete((1, 2), deleted_at=20_000).names() == {"resurrection"}
    assert one_delete((0, 0), deleted_at=20_000).names() == {"resurrection"}, "numbers are not known"


def test_while_its_lease_surely_ran_no_gap_excuses_a_delete() -> None:
    assert one_delete((1, 3), deleted_at=9_000).names() == {"resurrection"}
    fast = Clocks(0, 2.0)
    assert one_delete((1, 3), deleted_at=9_000, clocks=fast).is_valid, "the lease may have been five seconds"
    assert one_delete((1, 3), deleted_at=4_000, clocks=fast).names() == {"resurrection"}


def test_a_stale_delete_does_not_let_the_next_of_the_group_pass() -> None:
    """R56 and R59 together: it was answered, and deleted nothing."""

    def play(*, is_stale: bool) -> QueueReport:
        story = Story()
        story.send("a", group="g")
        story.send("b", group="g")
        (first,) = story.receive("a", at=10, visibility_ms=5)
        if is_stale:
            story.receive("a", at=20)
        story.delete(first, at=30)
        story.receive("b", at=40)
        return story.check()

    assert play(is_stale=False).is_valid
    assert play(is_stale=True).names() == {"fifo-violation"}


def test_which_of_two_overlapping_deliveries_was_stale_is_known_by_their_numbers() -> None:
    for early, late, is_valid in ((1, 2, False), (2, 1, True), (0, 0, True)):
        story = Story()
        story.send("a")
        one, other = story.history.receive(Q, 5, 0), story.history.receive(Q, 5, 0)
        first = DequeuedMessage("a", "one", early)
        story.history.end(one, OK, 10, [first])
        story.history.end(other, OK, 20, [DequeuedMessage("a", "other", late)])
        story.delete(first, at=30)
        assert story.check(drained=True).is_valid is is_valid, "gone by the receipt that was not the latest"


def test_a_fast_clock_excuses_a_short_lease_and_no_shorter_one() -> None:
    for again_at, is_valid in ((16_000, True), (14_000, False)):
        story = Story()
        story.send("a")
        story.receive("a", at=0)
        story.receive("a", at=again_at)
        assert story.check(clocks=Clocks(0, 2.0)).is_valid is is_valid
        assert not story.check(clocks=Clocks(0)).is_valid, "a wall clock that jumps excuses nothing (R58)"
        assert not story.check(clocks=Clocks(20_000, 2.0)).is_valid, "they were true then"


def test_wrong_clocks_excuse_delays_and_deduplication_from_when_they_are_wrong() -> None:
    story = Story()
    story.send("late", at=0, delay_ms=5_000)
    story.receive("late", at=4_000)
    story.send("a", at=5_000, dedup_id="d")
    story.send("b", at=6_000, dedup_id="d")
    story.receive("a", "b", at=7_000)
    assert story.check(clocks=Clocks(3_000)).is_valid
    assert story.check(clocks=Clocks(5_000)).names() == {"early-delivery"}
    assert story.check(clocks=Clocks(60_000)).names() == {"early-delivery", "dedup-violation"}


def test_wrong_clocks_may_deduplicate_after_the_window_and_excuse_no_loss() -> None:
    story = Story()
    story.send("a", at=0, dedup_id="d")
    story.send("b", at=400_000, dedup_id="d")
    story.receive("a", at=1)
    assert story.check(clocks=Clocks(399_000)).is_valid
    assert story.check(clocks=Clocks(500_000)).names() == {"lost"}, "long after the window, by true clocks"
    story = Story()
    story.send("a", at=0, dedup_id="d")
    assert story.check(clocks=Clocks(0)).names() == {"lost"}, "there is no twin"


def test_a_send_that_nobody_answered_may_arrive_after_its_twin_has_been_forgotten() -> None:
    """Unless it was delivered before: then it had arrived."""
    for delivered_at, names in ((400_000, set()), (100_000, {"dedup-violation"})):
        story = Story()
        story.send("a", at=0, outcome=INFO, dedup_id="d")
        story.send("b", at=1_000, dedup_id="d")
        story.receive("b", at=2_000, visibility_ms=1_000_000)
        story.receive("a", at=delivered_at)
        assert story.check().names() == names


def test_a_send_may_be_taken_for_a_late_twin() -> None:
    for delivered_at, names in ((400_000, set()), (10_000, {"lost"})):
        story = Story()
        story.send("a", at=0, outcome=INFO, dedup_id="d")
        story.send("b", at=390_000, dedup_id="d")
        story.receive("a", at=delivered_at)
        assert story.check().names() == names


def test_a_group_goes_on_when_a_message_may_have_died_and_not_before() -> None:
    """Dead letters are looked at now and then; what is found there died after its last lease."""

    def play(*, next_at: int, again_at: int | None = None, seen_late: bool = True) -> QueueReport:
        story = Story()
        story.send("a", group="g")
        story.send("b", group="g")
        story.receive("a", at=10)
        story.receive("b", at=next_at)
        if again_at is not None:
            story.receive("a", at=again_at)
        story.history.discard(Q, "a", 90_000, seen_late=seen_late)
        return story.check()

    assert play(next_at=40_000).is_valid
    assert play(next_at=20_000).names() == {"fifo-violation"}, "while its last lease ran"
    assert play(next_at=40_000, again_at=50_000).names() == {"fifo-violation"}, "it was not dead yet"
    assert play(next_at=40_000, seen_late=False).names() == {"fifo-violation"}, "it was there until then"


def test_entries_of_a_batch_are_in_order() -> None:
    def play(behind: str | None) -> QueueReport:
        story = Story()
        one = story.history.enqueue(Q, "a", 0, group="g")
        two = story.history.enqueue(Q, "b", 0, group="g", behind=behind)
        story.history.end(one, OK, 1)
        story.history.end(two, OK, 1)
        story.receive("b", "a", at=10)
        return story.check()

    assert play(None).is_valid
    assert play("a").names() == {"fifo-violation"}
