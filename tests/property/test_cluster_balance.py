"""F48: after `cluster rebalance` every broker has its share of replicas and of leaderships, over all topics and in each."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.balance import balance
from headrace.cluster.placement import Candidate, place

shapes = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 3)), min_size=1, max_size=10)
"""Partitions and replicas of each topic."""


def laid_out(topics: list[tuple[int, int]], brokers: list[Candidate]) -> dict[bytes, list[list[int]]]:
    return {
        bytes([number]) * 16: [
            list(row) for row in place(bytes([number]) * 16, range(count), min(factor, len(brokers)), brokers)
        ]
        for number, (count, factor) in enumerate(topics)
    }


def spans(counts: Counter[int], brokers: list[Candidate]) -> int:
    values = [counts[broker.id] for broker in brokers]
    return max(values) - min(values)


@given(shapes, st.integers(1, 6), st.integers(0, 2))
def test_f48_a_broker_that_joins_gets_its_share(
    shape: list[tuple[int, int]], count: int, joining: int
) -> None:
    before = [Candidate(number) for number in range(count)]
    topics = laid_out(shape, before)
    replicas_before = {
        (topic, number): set(row) for topic, rows in topics.items() for number, row in enumerate(rows)
    }
    brokers = [Candidate(number) for number in range(count + joining)]
    balance(topics, brokers)
    for (topic, number), old in replicas_before.items():
        row = topics[topic][number]
        assert len(row) == len(set(row)) == len(old)
    held = Counter(broker for rows in topics.values() for row in rows for broker in row)
    assert spans(held, brokers) <= 1
    for rows in topics.values():
        assert spans(Counter(broker for row in rows for broker in row), brokers) <= 1
    led = Counter(row[0] for rows in topics.values() for row in rows)
    assert max(led.values()) <= -(-led.total() // len(brokers)) + 1
    once = {topic: [list(row) for row in rows] for topic, rows in topics.items()}
    balance(topics, brokers)
    assert topics == once, "what is even stays as it is"


def test_f48_many_topics_of_one_partition_give_a_new_broker_leaderships_too() -> None:
    topics = laid_out([(1, 3)] * 14, [Candidate(number) for number in (1, 2, 3)])
    brokers = [Candidate(number) for number in (1, 2, 3, 4)]
    balance(topics, brokers)
    assert sorted(Counter(row[0] for rows in topics.values() for row in rows).values()) == [3, 3, 4, 4]
    assert sorted(Counter(b for rows in topics.values() for row in rows for b in row).values()) == [10, 10, 11, 11]  # fmt: skip


def test_f48_racks_are_kept_and_a_leader_that_is_away_keeps_its_place() -> None:
    brokers = [Candidate(1, "a"), Candidate(2, "b"), Candidate(4, "b")]
    topics = {b"t" * 16: [[1, 2], [1, 2], [3, 1], [1, 2]]}
    balance(topics, brokers)
    (rows,) = topics.values()
    assert all(1 in row for row in (rows[0], rows[1], rows[3])), "the only one in its rack"
    assert rows[2][0] == 3
    assert sum(row[1:] == [4] or row[:1] == [4] for row in rows) >= 1
