"""The queue checker: each anomaly once, and the near misses that are legal."""

from __future__ import annotations

from typing import Any

from headrace.testing.dice import Dice
from headrace.testing.history import Outcome
from headrace.testing.queue_checker import Delivery, QueueHistory, QueueReport, check_queue

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO
Q = "q"


class Story:
    def __init__(self) -> None:
        self.history = QueueHistory()
        self.receipts = 0

    def send(self, message: str, at: int = 0, outcome: Outcome = OK, **options: Any) -> None:
        self.history.end(self.history.enqueue(Q, message, at, **options), outcome, at + 1)

    def receive(self, *messages: str, at: int, took: int = 1, visibility_ms: int = 30_000) -> list[Delivery]:
        operation = self.history.receive(Q, visibility_ms, at)
        deliveries = []
        for message in messages:
            self.receipts += 1
            deliveries.append(Delivery(message, f"r{self.receipts}"))
        self.history.end(operation, OK, at + took, deliveries)
        return deliveries

    def delete(self, delivery: Delivery, at: int, outcome: Outcome = OK) -> None:
        self.history.end(self.history.delete(Q, delivery, at), outcome, at + 1)

    def change(self, delivery: Delivery, visibility_ms: int, at: int, outcome: Outcome = OK) -> None:
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
    story.history.end(receive, OK, 9, [Delivery("a", "r9")])
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
        leases: dict[str, Delivery] = {}
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
                    queue[delivery.message] = now + 30_000
                    leases[delivery.message] = delivery
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
