"""5.6: why a group is behind: each cause by itself, named first where it is the one, and none on a healthy group."""

from __future__ import annotations

from dataclasses import replace

from headrace.core.explain import RULES, GroupFacts, PartitionFacts, explain
from headrace.core.ids import TopicPartition

NOW = 10_000_000


def partition(number: int, committed: int | None = 0, end: int = 100, **changes: object) -> PartitionFacts:
    facts = PartitionFacts(TopicPartition("orders", number), committed, 0, end, end, "worker")
    return replace(facts, **changes)  # type: ignore[arg-type]


def group(*partitions: PartitionFacts, **changes: object) -> GroupFacts:
    facts = GroupFacts(
        name="billing", members=2, partitions=partitions, in_per_s=10.0, out_per_s=10.0, moved_ms=NOW - 1_000,
        since_ms=0, now_ms=NOW,
    )  # fmt: skip
    return replace(facts, **changes)  # type: ignore[arg-type]


def causes(facts: GroupFacts) -> list[str]:
    return [finding.cause for finding in explain(facts)]


def test_a_healthy_group_has_no_findings() -> None:
    for lag in (0, 3, 90):
        healthy = group(*(partition(number, committed=100 - lag) for number in range(4)))
        assert causes(healthy) == [], lag


def test_a_group_that_has_read_everything_has_none_even_without_members() -> None:
    done = group(partition(0, committed=100), members=0, in_per_s=0, out_per_s=0, moved_ms=None)
    assert causes(done) == []


def test_nobody_reads() -> None:
    facts = group(partition(0, owner=None), partition(1, owner=None), members=0, out_per_s=0.0)
    assert causes(facts)[0] == "nobody_reads"
    assert "200 messages wait" in explain(facts)[0].sentence


def test_members_joined_but_nobody_owns_a_partition() -> None:
    facts = group(partition(0, committed=100), partition(1, owner=None))
    assert causes(facts) == ["nobody_owns"] and "orders-1" in explain(facts)[0].evidence


def test_one_partition_has_nearly_all_of_it() -> None:
    facts = group(partition(0, committed=0, end=5_000), partition(1, committed=4_990, end=5_000))
    assert causes(facts) == ["one_partition"] and "99 %" in explain(facts)[0].sentence
    alone = group(partition(0, committed=0, end=5_000))
    assert "one_partition" not in causes(alone)


def test_consumers_slower_than_writers() -> None:
    many = group(*(partition(number) for number in range(8)), in_per_s=1200.0, out_per_s=800.0)
    (finding,) = explain(many)
    assert finding.cause == "slower" and "Start 1 more" in finding.next_step
    few = group(partition(0), partition(1), in_per_s=1200.0, out_per_s=800.0)
    (finding,) = explain(few)
    assert "would not help" in finding.next_step


def test_it_catches_up_and_says_when() -> None:
    facts = group(partition(0, end=3_600), partition(1, end=3_600), in_per_s=10.0, out_per_s=12.0)
    (finding,) = explain(facts)
    assert finding.cause == "catching_up" and "1 h" in finding.sentence


def test_stuck_at_one_offset() -> None:
    facts = group(
        partition(0, committed=42), partition(1, committed=100), moved_ms=NOW - 12 * 60_000, out_per_s=0.0
    )
    first = explain(facts)[0]
    assert first.cause == "stuck" and "12 min" in first.sentence and "-o 42" in first.command


def test_a_group_that_never_moved_is_stuck_since_the_broker_began() -> None:
    facts = group(partition(0), moved_ms=None, since_ms=NOW - 5 * 60_000, out_per_s=0.0)
    assert causes(facts)[0] == "stuck"
    fresh = group(partition(0), moved_ms=None, since_ms=NOW - 5_000, out_per_s=0.0)
    assert "stuck" not in causes(fresh)


def test_an_open_transaction_holds_records_back() -> None:
    facts = group(partition(0, committed=100, written=160))
    assert causes(facts) == ["open_transaction"] and "60 records" in explain(facts)[0].sentence


def test_committed_below_the_start_of_the_log() -> None:
    facts = group(partition(0, committed=10, start=60))
    assert causes(facts)[0] == "below_start" and "50 messages" in explain(facts)[0].sentence


def test_a_broker_in_trouble_comes_first() -> None:
    facts = group(partition(0), members=0, troubles=("disk: nearly full",))
    assert causes(facts)[:2] == ["broker", "nobody_reads"]


def test_what_has_no_commit_is_told_and_not_counted() -> None:
    facts = group(partition(0, committed=100), partition(1, committed=None))
    assert facts.lag == 0 and causes(facts) == ["no_commit"]
    assert "100 messages in them" in explain(facts)[0].sentence and "orders:1" in explain(facts)[0].command
    assert causes(group(partition(0, committed=None, end=0))) == []


def test_every_rule_can_speak() -> None:
    """So that none is dead code: each cause above is one rule's."""
    assert len(RULES) == 10
