"""The sticky task assignor (KIP-1071, F37)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.streams.assignor import assign_sticky
from headrace.groups.streams.members import Role, Task
from headrace.groups.streams.topology import ConfiguredTopology, InternalTopic, Notice, Status, Subtopology


def configured(stateless: int, stateful: int) -> ConfiguredTopology:
    subtopologies = Subtopology("0", ("s",)), Subtopology("1", ("s",), changelogs=(InternalTopic("c"),))
    return ConfiguredTopology({"0": stateless, "1": stateful}, subtopologies)


GROUPS = st.dictionaries(st.sampled_from("abcdefg"), st.sampled_from(["p", "q", "r"]), min_size=1)


def check(result: Any, processes: dict[str, str], counts: tuple[int, int], standbys: int) -> None:
    active = [task[1:] for tasks in result.values() for task in tasks if task.role is Role.ACTIVE]
    assert sorted(active) == sorted(("01"[at], n) for at in (0, 1) for n in range(counts[at])), (
        "each active task has one member"
    )
    loads = [sum(task.role is Role.ACTIVE for task in tasks) for tasks in result.values()]
    assert max(loads) - min(loads) <= 1
    copies: dict[tuple[str, int], list[str]] = {}
    for member_id, tasks in result.items():
        for task in tasks:
            copies.setdefault((task.subtopology, task.partition), []).append(processes[member_id])
    possible = min(standbys + 1, len(set(processes.values())))
    for (subtopology, _), found in copies.items():
        assert len(set(found)) == len(found), "a process has a task twice"
        assert len(found) == (possible if subtopology == "1" else 1)


@given(GROUPS, GROUPS, st.integers(0, 9), st.integers(0, 9), st.integers(0, 2))
def test_balanced_complete_and_never_twice_in_a_process(
    before: dict[str, str], after: dict[str, str], stateless: int, stateful: int, standbys: int
) -> None:
    first = assign_sticky(before, {}, configured(stateless, stateful), standbys)
    check(first, before, (stateless, stateful), standbys)
    second = assign_sticky(after, first, configured(stateless, stateful), standbys)
    check(second, after, (stateless, stateful), standbys)
    third = assign_sticky(after, second, configured(stateless, stateful), standbys)
    for member_id, tasks in second.items():
        active = {task for task in tasks if task.role is Role.ACTIVE}
        assert active == {task for task in third[member_id] if task.role is Role.ACTIVE}, "they stay"


def test_who_has_the_state_gets_the_task() -> None:
    topology = configured(0, 4)
    both = assign_sticky({"a": "p", "b": "q"}, {}, topology, 1)
    alone = assign_sticky({"b": "q", "c": "r"}, both, topology, 1)
    kept = {task for task in both["b"] if task.role is Role.ACTIVE}
    assert kept <= alone["b"]
    moved = {Task(Role.ACTIVE, *task[1:]) for task in both["b"] if task.role is Role.STANDBY}
    assert alone["c"] & moved == {task for task in alone["c"] if task.role is Role.ACTIVE}


def test_nothing_while_the_topics_are_not_there() -> None:
    problem = Notice(Status.MISSING_SOURCE_TOPICS, "")
    assert assign_sticky({"a": "p"}, {}, ConfiguredTopology({}, (), problem=problem), 0) == {"a": frozenset()}
