"""What happened lately, in fixed memory: the same within some seconds is one line with a count."""

from __future__ import annotations

from headrace.core.happenings import FOLD_MS, MOST_NAMES, Happenings


def test_the_same_within_some_seconds_is_one_line() -> None:
    happenings = Happenings()
    for number in range(1_000):
        happenings.note(number, "leader-elected", "info", "partition", f"t-{number}", "is led by broker 2")
    happenings.note(1_000, "broker-down", "error", "broker", "1", "has gone")
    happenings.note(1_001, "leader-elected", "info", "partition", "t-1000", "is led by broker 2")
    newest, folded = happenings.rows()
    assert newest.kind == "broker-down"
    assert (folded.count, len(folded.names), folded.at_ms, folded.last_ms) == (1_001, MOST_NAMES, 0, 1_001)
    assert happenings.number == 1_002


def test_later_it_is_another_line_and_the_same_thing_is_counted_once() -> None:
    happenings = Happenings()
    for at_ms in (0, FOLD_MS, 2 * FOLD_MS + 1):
        happenings.note(at_ms, "isr-shrunk", "warning", "partition", "t-0", "is not in sync at broker 3")
    assert [(row.at_ms, row.count) for row in happenings.rows()] == [(2 * FOLD_MS + 1, 1), (0, 1)]


def test_what_is_too_much_pushes_out_the_oldest() -> None:
    happenings = Happenings(most=10)
    for number in range(30):
        happenings.note(number, f"kind-{number}", "info", "topic", "t", "was created")
    assert [row.kind for row in happenings.rows()] == [f"kind-{number}" for number in range(29, 19, -1)]
