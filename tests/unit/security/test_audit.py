"""A64, P17: the audit counts everything, says repeats once a minute, is bounded, and what does not fit is counted."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headrace.security.audit import ACTING, FOLD_MS, MOST_WAITING, AuditEvent, AuditTrail


class Clock:
    def __init__(self) -> None:
        self.at_ms = 0

    def now_ms(self) -> int:
        return self.at_ms

    def wall_ms(self) -> int:
        return 1_000_000 + self.at_ms


def audit() -> tuple[AuditTrail, Clock]:
    clock = Clock()
    made = AuditTrail(clock, 7)
    made.is_on = True
    return made, clock


def lines(of: AuditTrail) -> list[dict[str, object]]:
    return [json.loads(line) for line in of.peek(MOST_WAITING)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, FOLD_MS)), max_size=60))
def test_p17_counts_are_equal_whatever_the_order_and_the_time(said: Sequence[tuple[str, int]]) -> None:
    made, clock = audit()
    for name, later_ms in said:
        clock.at_ms += later_ms
        made.note(AuditEvent(event="denied", name=name))
    clock.at_ms += FOLD_MS
    made.fold()
    counts = {name: sum(int(str(line.get("count", 1))) for line in lines(made) if line["name"] == name) for name in "abc"}  # fmt: skip
    assert counts == {name: sum(each == name for each, _ in said) for name in "abc"}


def test_a64_a_repeat_is_one_line_with_a_count_and_the_rule_is_asked_for_once() -> None:
    made, clock = audit()
    asked: list[int] = []

    def rule() -> str:
        asked.append(1)
        return "no right allows it"

    for _ in range(1_000):
        made.note(AuditEvent(event="denied", principal="User:x", name="t"), rule)
    assert len(made) == 1 and len(asked) == 1
    clock.at_ms = FOLD_MS
    made.fold()
    first, rest = lines(made)
    assert first["rule"] == "no right allows it" and "count" not in first and rest["count"] == 999
    made.forget(2)
    assert not len(made)


def test_a64_the_buffer_is_bounded_and_what_does_not_fit_is_counted() -> None:
    made, _ = audit()
    for number in range(MOST_WAITING + 50):
        made.note(AuditEvent(event="denied", name=str(number)))
    assert len(made) == MOST_WAITING and made.dropped == 50


def test_a64_in_mode_open_only_changes_are_told_and_by_whom() -> None:
    made, _ = audit()
    made.is_on = False
    made.logged_in("User:x", "h", "token")
    made.note(AuditEvent(event="denied"))
    assert not len(made)
    ACTING.set("User:root")
    made.changed("security mode enforced")
    assert lines(made) == [
        {"at_ms": 1_000_000, "broker": 7, "event": "change", "principal": "User:root", "text": "security mode enforced"}
    ]  # fmt: skip


def test_x28_text_of_clients_forges_no_line() -> None:
    made, _ = audit()
    made.login_failed('a"}\n{"event":"login","principal":"User:admin"}', "h", "wrong")
    (line,) = made.peek(1)
    assert b"\n" not in line and json.loads(line)["event"] == "login_failed"
