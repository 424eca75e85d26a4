"""DescribeGroups and ListGroups."""

from __future__ import annotations

from typing import Any

from headrace.core.errors import ErrorKind
from headrace.groups.commands import DescribeGroups, ListGroups, OffsetToCommit


def describe(world: Any, *group_ids: str, missing_is_error: bool = True) -> Any:
    return world.ask(lambda w: DescribeGroups(group_ids, missing_is_error, waiter=w))


def listed(world: Any, **filters: Any) -> list[tuple[str, ...]]:
    return [tuple(g) for g in world.ask(lambda w: ListGroups(**filters, waiter=w))]


def test_a_stable_group_shows_metadata_and_assignments(world: Any) -> None:
    world.stable("a", assignments={"m1": b"mine"})
    (group,) = describe(world, "g")
    assert (group.error, group.state, group.protocol_type, group.protocol_data) == (
        ErrorKind.NONE, "Stable", "consumer", "range",
    )  # fmt: skip
    (member,) = group.members
    assert member == ("m1", None, "client", "/127.0.0.1", b"meta", b"mine")


def test_between_generations_nothing_is_agreed_upon(world: Any) -> None:
    world.stable("a", "b")
    world.join("m1")
    (group,) = describe(world, "g")
    assert (group.state, group.protocol_data) == ("PreparingRebalance", "")
    assert {(m.metadata, m.assignment) for m in group.members} == {(b"", b"")}


def test_an_unknown_group_is_dead_and_since_version_6_an_error(world: Any) -> None:
    (old,) = describe(world, "nowhere", missing_is_error=False)
    assert (old.error, old.state) == (ErrorKind.NONE, "Dead")
    (new,) = describe(world, "nowhere")
    assert (new.error, new.state, new.message) == (
        ErrorKind.GROUP_ID_NOT_FOUND,
        "Dead",
        "Group nowhere not found.",
    )
    assert describe(world, "")[0].error is ErrorKind.INVALID_GROUP_ID


def test_a_simple_consumer_is_an_empty_group_without_a_type(world: Any) -> None:
    world.commit(OffsetToCommit("t", 0, 1))
    (group,) = describe(world, "g")
    assert (group.state, group.protocol_type, group.members) == ("Empty", "", ())
    assert listed(world) == [("g", "", "Empty", "classic")]


def test_lists_are_filtered_without_regard_to_case(world: Any) -> None:
    world.commit(OffsetToCommit("t", 0, 1), group_id="simple")
    world.stable("a", group_id="busy")
    assert [g[0] for g in listed(world)] == ["busy", "simple"]
    assert listed(world, states=frozenset({"stable"})) == [("busy", "consumer", "Stable", "classic")]
    assert [g[0] for g in listed(world, states=frozenset({"EMPTY", "Dead"}))] == ["simple"]
    assert len(listed(world, types=frozenset({"Classic"}))) == 2
    assert listed(world, types=frozenset({"consumer"})) == []
