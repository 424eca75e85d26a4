from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.http.admission import BodyBudget, BudgetTicket, ConnectionGate


def test_x14_caps_in_total_per_host_and_the_reserve() -> None:
    gate = ConnectionGate(max_total=4, max_per_host=2, reserved_for_loopback=1)
    assert [gate.admit(host) for host in ("a", "a", "a", "b", "c")] == [True, True, False, True, False]
    assert gate.admit("127.0.0.1"), "an operator gets in when strangers fill the rest"
    assert not gate.admit("::1")
    gate.release("a")
    gate.release("127.0.0.1")
    assert gate.total == 2
    assert gate.admit("c")


def test_a_body_larger_than_the_budget_runs_alone() -> None:
    budget = BodyBudget(10)
    assert budget.reserve(50)
    assert not budget.reserve(1)
    budget.release(50)
    assert budget.reserve(1)


@given(
    st.lists(st.tuples(st.sampled_from(["reserve", "release", "cancel"]), st.integers(1, 12)), max_size=60)
)
def test_x9_the_budget_holds_and_waiters_are_served_in_order(steps: list[tuple[str, int]]) -> None:
    budget = BodyBudget(20)
    held: list[int] = []
    waiting: list[tuple[int, BudgetTicket]] = []
    admitted: list[int] = []

    for number, (what, size) in enumerate(steps):
        if what == "reserve":
            if budget.reserve(size):
                held.append(size)
            else:

                def grant(number: int = number, size: int = size) -> None:
                    admitted.append(number)
                    held.append(size)

                waiting.append((number, budget.wait(size, grant)))
        elif what == "release" and held:
            budget.release(held.pop(size % len(held)))
        elif what == "cancel" and waiting:
            number_waiting, ticket = waiting[size % len(waiting)]
            if number_waiting not in admitted:
                budget.cancel(ticket)
                waiting = [item for item in waiting if item[1] is not ticket]
        waiting = [item for item in waiting if item[0] not in admitted]
        assert budget.used_bytes == sum(held) <= 20
        if waiting:
            assert budget.used_bytes + waiting[0][1].byte_count > 20, "room, and nobody let in"
    assert admitted == sorted(admitted)
