"""SyncGroup, Heartbeat and LeaveGroup of classic groups; sessions."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import ErrorKind
from headrace.groups.commands import MemberIdentity
from headrace.groups.facts import Assigned


@pytest.fixture
def syncing(make_world: Any) -> Any:
    """Generation 1 of m1 (leads) and m2 has started and nobody has synced."""
    world = make_world(initial_rebalance_delay_ms=1_000)
    world.join()
    world.join()
    world.advance(2_000)
    assert world.group().state.value == "CompletingRebalance"
    return world


def test_the_leaders_assignment_answers_everybody(syncing: Any) -> None:
    follower = syncing.sync("m2", 1)
    assert follower not in syncing.answers
    leader = syncing.sync("m1", 1, assignments=(("m1", b"one"), ("m2", b"two"), ("ghost", b"three")))
    assert syncing.answers[leader].assignment == b"one"
    answer = syncing.answers[follower]
    assert (answer.assignment, answer.protocol_type, answer.protocol_name) == (b"two", "consumer", "range")


def test_r54_assignments_are_journaled_before_they_are_handed_out(syncing: Any) -> None:
    syncing.sync("m1", 1)
    durable = [fact for fact in syncing.last.facts if fact.durable]
    assert [type(fact) for fact in durable] == [Assigned]
    assert durable[0].snapshot.generation == 1


def test_a_member_without_an_assignment_gets_an_empty_one(syncing: Any) -> None:
    syncing.sync("m1", 1, assignments=(("m1", b"all"),))
    assert syncing.answers[syncing.sync("m2", 1)].assignment == b""


@pytest.mark.parametrize(
    ("member_id", "generation", "fields", "error"),
    [
        ("stranger", 1, {}, ErrorKind.UNKNOWN_MEMBER_ID),
        ("m1", 2, {}, ErrorKind.ILLEGAL_GENERATION),
        ("m1", 0, {}, ErrorKind.ILLEGAL_GENERATION),
        ("m1", 1, {"protocol_type": "connect"}, ErrorKind.INCONSISTENT_GROUP_PROTOCOL),
        ("m1", 1, {"protocol_name": "sticky"}, ErrorKind.INCONSISTENT_GROUP_PROTOCOL),
        ("m1", 1, {"group_id": "nowhere"}, ErrorKind.UNKNOWN_MEMBER_ID),
    ],
)
def test_refusals(syncing: Any, member_id: str, generation: int, fields: Any, error: ErrorKind) -> None:
    assert syncing.answers[syncing.sync(member_id, generation, **fields)].error is error


def test_matching_protocols_pass(syncing: Any) -> None:
    syncing.sync("m1", 1, protocol_type="consumer", protocol_name="range")
    assert syncing.group().state.value == "Stable"


def test_a_sync_during_the_join_phase(world: Any) -> None:
    leader, follower = world.stable("a", "b")
    world.join(leader)
    assert world.answers[world.sync(follower, 2)].error is ErrorKind.REBALANCE_IN_PROGRESS


def test_a_second_sync_sends_the_first_away(syncing: Any) -> None:
    first = syncing.sync("m2", 1)
    second = syncing.sync("m2", 1)
    assert syncing.answers[first].error is ErrorKind.REBALANCE_IN_PROGRESS
    syncing.sync("m1", 1)
    assert syncing.answers[second].error is ErrorKind.NONE


def test_who_does_not_sync_in_time_is_out(syncing: Any) -> None:
    parked = syncing.sync("m2", 1)
    for _ in range(11):
        syncing.advance(5_000)
        syncing.beat("m1", 1)
    assert parked not in syncing.answers, "a leader that heartbeats and never assigns"
    syncing.advance(5_000)
    assert syncing.answers[parked].error is ErrorKind.REBALANCE_IN_PROGRESS
    assert list(syncing.group().members) == ["m2"]


def test_a_follower_that_never_syncs_is_out_of_a_stable_group(syncing: Any) -> None:
    syncing.sync("m1", 1)
    for _ in range(12):
        syncing.advance(5_000)
        syncing.beat("m1", 1)
        syncing.beat("m2", 1)
    assert list(syncing.group().members) == ["m1"]


# --- heartbeats and sessions ---------------------------------------------------------------------------------


def test_heartbeat_answers_by_state(syncing: Any) -> None:
    assert syncing.beat("m1", 1) is ErrorKind.NONE
    assert syncing.beat("m1", 7) is ErrorKind.ILLEGAL_GENERATION
    assert syncing.beat("stranger", 7) is ErrorKind.UNKNOWN_MEMBER_ID
    assert syncing.beat("m1", 1, group_id="nowhere") is ErrorKind.UNKNOWN_MEMBER_ID
    assert syncing.beat("m1", 1, group_id="") is ErrorKind.INVALID_GROUP_ID
    syncing.sync("m1", 1)
    syncing.sync("m2", 1)
    assert syncing.beat("m2", 1) is ErrorKind.NONE
    syncing.join("m1")
    assert syncing.beat("m2", 1) is ErrorKind.REBALANCE_IN_PROGRESS


def test_a_silent_member_is_removed_and_the_others_rebalance(world: Any) -> None:
    leader, follower = world.stable("a", "b")
    world.advance(9_999)
    assert world.beat(leader, 2) is ErrorKind.NONE
    world.advance(1)
    assert world.beat(leader, 2) is ErrorKind.REBALANCE_IN_PROGRESS
    assert world.beat(follower, 2) is ErrorKind.UNKNOWN_MEMBER_ID


def test_heartbeats_during_a_rebalance_keep_a_member_alive(world: Any) -> None:
    leader, follower = world.stable("a", "b")
    world.join(leader)
    for _ in range(5):
        world.advance(9_000)
        assert world.beat(follower, 2) is ErrorKind.REBALANCE_IN_PROGRESS
    assert follower in world.group().members


def test_a_parked_member_can_not_be_silent(world: Any) -> None:
    leader, follower = world.stable("a", "b", rebalance_timeout_ms=120_000)
    parked = world.join(leader, rebalance_timeout_ms=120_000)
    for _ in range(6):
        world.advance(9_000)
        world.beat(follower, 2)
    assert parked not in world.answers and leader in world.group().members
    world.join(follower)
    world.advance(9_999)
    assert leader in world.group().members, "its session starts with our answer"
    world.advance(1)
    assert leader not in world.group().members


def test_all_members_silent_at_once_leave_an_empty_group(world: Any) -> None:
    world.stable("a", "b")
    world.advance(10_000)
    group = world.group()
    assert (group.state.value, group.generation, group.protocol_type) == ("Empty", 3, "consumer")


# --- leaving -------------------------------------------------------------------------------------------------


def test_leaving_answers_each_member(world: Any) -> None:
    leader, follower = world.stable("a", "b")
    left = world.leave(follower, "stranger")
    assert [m.error for m in left.members] == [ErrorKind.NONE, ErrorKind.UNKNOWN_MEMBER_ID]
    assert world.beat(leader, 2) is ErrorKind.REBALANCE_IN_PROGRESS


def test_leaving_an_unknown_group(world: Any) -> None:
    assert [m.error for m in world.leave("x", group_id="nowhere").members] == [ErrorKind.UNKNOWN_MEMBER_ID]


def test_the_last_awaited_member_leaves(world: Any) -> None:
    leader, follower = world.stable("a", "b")
    parked = world.join(leader)
    world.leave(follower)
    assert world.answers[parked].generation == 3


def test_leaving_answers_what_was_parked(world: Any) -> None:
    leader, _ = world.stable("a", "b")
    parked = world.join(leader)
    world.leave(leader)
    assert world.answers[parked].error is ErrorKind.UNKNOWN_MEMBER_ID


def test_leaving_with_a_reserved_id(world: Any) -> None:
    world.join(member_id_required=True)
    assert world.leave("m1").members[0].error is ErrorKind.NONE
    assert not world.group().reserved


def test_a_list_empties_the_group(world: Any) -> None:
    members = world.stable("a", "b", "c")
    left = world.leave(*(MemberIdentity(m, None, "the consumer is being closed") for m in members))
    assert {m.error for m in left.members} == {ErrorKind.NONE}
    assert world.group().state.value == "Empty"
