"""5.6 for queues: each cause by itself, named first where it is the one, and none on a healthy queue."""

from __future__ import annotations

from dataclasses import replace

from headrace.core.explain_queue import (
    RULES,
    BlockedFacts,
    HeldFacts,
    PushFacts,
    QueueFacts,
    explain_queue,
)


def queue(**changes: object) -> QueueFacts:
    facts = QueueFacts(
        name="jobs", ready=10, in_flight=3, delayed=0, paused=False, in_per_s=10.0, done_per_s=10.0, oldest_age_ms=900,
        max_deliveries=5, dead_letter="jobs-dead",
    )  # fmt: skip
    return replace(facts, **changes)  # type: ignore[arg-type]


def standing(**changes: object) -> QueueFacts:
    return queue(in_flight=0, in_per_s=0.0, done_per_s=0.0, oldest_age_ms=120_000, **changes)


def causes(facts: QueueFacts) -> list[str]:
    return [finding.cause for finding in explain_queue(facts)]


def test_a_healthy_queue_has_no_findings() -> None:
    assert causes(queue()) == []
    assert causes(standing(ready=0)) == []
    assert causes(queue(webhooks=(PushFacts("w", "active", "closed", ""),))) == []
    assert causes(queue(held=(HeldFacts("jobs/0/1", 1, "", 5_000),))) == []


def test_paused() -> None:
    assert causes(standing(paused=True)) == ["paused"]
    assert explain_queue(standing(paused=True))[0].command == "headrace queue set jobs --resume"


def test_nobody_receives() -> None:
    assert causes(standing()) == ["nobody_receives"]
    assert causes(replace(standing(), oldest_age_ms=5_000)) == [], "somebody may be about to"


def test_a_webhook_that_is_paused_or_whose_endpoint_fails() -> None:
    away = explain_queue(standing(webhooks=(PushFacts("w", "disabled", "closed", "answered 410"),)))
    assert [one.cause for one in away] == ["webhook"] and "disabled: answered 410" in away[0].sentence
    failing = explain_queue(standing(webhooks=(PushFacts("w", "active", "open", "status 503"),)))
    assert [one.cause for one in failing] == ["webhook"] and failing[0].evidence == "status 503"


def test_message_groups_that_wait_behind_one_message() -> None:
    groups = (BlockedFacts("a", 4, "l.fifo/0/0", 1, True), BlockedFacts("b", 2, "l.fifo/0/7", 6, False))
    (found,) = explain_queue(standing(blocked=groups))
    assert found.cause == "blocked" and "6 messages of 2 message groups" in found.sentence
    assert "group b: 2 behind l.fifo/0/7, delivered 6 ×, resting" in found.evidence
    assert causes(standing(ready=0, blocked=(BlockedFacts("a", 0, "l.fifo/0/0", 1, True),))) == []


def test_messages_that_are_delivered_again_and_again() -> None:
    poison = HeldFacts("jobs/0/9", 7, "worker-1", 4_000)
    (found,) = explain_queue(queue(held=(HeldFacts("jobs/0/1", 1, "", 9), poison)))
    assert found.cause == "failing" and "delivered 7 ×, held by worker-1" in found.evidence
    assert "jobs-dead" in found.next_step
    (found,) = explain_queue(queue(held=(poison,), dead_letter=""))
    assert "for ever" in found.next_step


def test_everything_that_is_left_is_in_somebodys_hands() -> None:
    held = (HeldFacts("jobs/0/1", 1, "", 60_000), HeldFacts("jobs/0/2", 1, "worker-1", 1_800_000))
    found = explain_queue(queue(ready=0, in_flight=2, in_per_s=0.0, done_per_s=0.0, held=held))
    assert [one.cause for one in found] == ["all_held"] and "30 min, held by worker-1" in found[0].evidence


def test_only_messages_that_wait_for_their_time() -> None:
    assert causes(standing(ready=0, delayed=5)) == ["only_later"]


def test_workers_slower_than_senders_and_those_that_catch_up() -> None:
    assert causes(queue(in_per_s=100.0, done_per_s=50.0)) == ["slower"]
    assert causes(queue(in_per_s=100.0, done_per_s=50.0, filtered=True)) == [], "not all of that is for it"
    (found,) = explain_queue(queue(ready=6_000, in_flight=0, in_per_s=0.0, done_per_s=100.0))
    assert found.cause == "catching_up" and "1 min" in found.sentence


def test_a_broker_that_is_not_well_comes_first() -> None:
    assert causes(standing(troubles=("the disk is full",)))[0] == "broker"
    assert causes(standing(ready=0, troubles=("the disk is full",))) == []


def test_every_rule_has_been_heard_here() -> None:
    assert len(RULES) == 10
