"""A follower of more partitions than one Fetch may name asks for all of them in turn (A3, F20)."""

from __future__ import annotations

from headrace.broker.replicator import take_turn


def test_everybody_has_their_turn_f20() -> None:
    line = dict.fromkeys("abcde")
    assert [take_turn(line, 2) for _ in range(4)] == [["a", "b"], ["c", "d"], ["e", "a"], ["b", "c"]]
    assert sorted(line) == list("abcde")


def test_few_are_always_asked_for_f20() -> None:
    line = dict.fromkeys("ab")
    assert [take_turn(line, 2) for _ in range(2)] == [["a", "b"], ["a", "b"]]
