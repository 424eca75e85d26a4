"""KIP-345 static membership and KIP-814 skipped assignment."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import ErrorKind
from headrace.groups.commands import MemberIdentity, Protocol
from headrace.groups.facts import Assigned

TIMES = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 20_000}


@pytest.fixture
def pair(make_world: Any) -> Any:
    """A stable group of two static members: instance a leads as m1, instance b follows as m2."""
    world = make_world(initial_rebalance_delay_ms=1_000)
    world.join(instance_id="a", **TIMES)
    world.join(instance_id="b", **TIMES)
    world.advance(2_000)
    world.sync("m1", 1, assignments=(("m1", b"for a"), ("m2", b"for b")))
    world.sync("m2", 1)
    assert world.group().state.value == "Stable"
    return world


def test_a_static_member_needs_no_second_join(make_world: Any) -> None:
    world = make_world()
    answer = world.answers[world.join(instance_id="a", member_id_required=True)]
    assert (answer.error, answer.member_id, answer.generation) == (ErrorKind.NONE, "m1", 1)


def test_a_restarted_follower_takes_its_place_without_a_rebalance(pair: Any) -> None:
    back = pair.answers[pair.join(instance_id="b", **TIMES)]
    assert (back.error, back.generation, back.member_id, back.leader) == (ErrorKind.NONE, 1, "m3", "m1")
    assert pair.beat("m1", 1, "a") is ErrorKind.NONE
    assert pair.answers[pair.sync("m3", 1, instance_id="b")].assignment == b"for b"
    assert [type(f) for f in pair.last.facts if f.durable] == []


def test_the_new_member_id_is_journaled_before_it_is_told(pair: Any) -> None:
    pair.join(instance_id="b", **TIMES)
    assert any(isinstance(fact, Assigned) for fact in pair.last.facts)
    pair.restart()
    assert list(pair.group().members) == ["m1", "m3"]


def test_the_old_member_id_is_fenced_everywhere(pair: Any) -> None:
    pair.join(instance_id="b", **TIMES)
    assert pair.beat("m2", 1, "b") is ErrorKind.FENCED_INSTANCE_ID
    assert pair.answers[pair.sync("m2", 1, instance_id="b")].error is ErrorKind.FENCED_INSTANCE_ID
    assert pair.answers[pair.join("m2", instance_id="b", **TIMES)].error is ErrorKind.FENCED_INSTANCE_ID
    assert pair.commit(member_id="m2", generation=1, instance_id="b").error is ErrorKind.FENCED_INSTANCE_ID
    left = pair.leave(MemberIdentity("m2", "b"))
    assert left.members[0].error is ErrorKind.FENCED_INSTANCE_ID


def test_kip_814_a_restarted_leader_is_told_to_skip_the_assignment(pair: Any) -> None:
    back = pair.answers[pair.join(instance_id="a", supports_skip_assignment=True, **TIMES)]
    assert (back.leader, back.member_id, back.skip_assignment) == ("m3", "m3", True)
    assert [m.instance_id for m in back.members] == ["a", "b"]


def test_a_restarted_leader_of_old_is_told_that_another_leads(pair: Any) -> None:
    back = pair.answers[pair.join(instance_id="a", supports_skip_assignment=False, **TIMES)]
    assert (back.leader, back.member_id, back.skip_assignment, back.members) == ("m1", "m3", False, ())
    assert pair.group().leader == "m3"


def test_a_change_of_protocol_rebalances(make_world: Any) -> None:
    world = make_world()
    both = (Protocol("range", b""), Protocol("sticky", b""))
    world.join(instance_id="a", protocols=both, **TIMES)
    world.sync("m1", 1)
    back = world.answers[world.join(instance_id="a", protocols=(Protocol("sticky", b""),), **TIMES)]
    assert (back.generation, back.protocol_name) == (2, "sticky")


def test_a_take_over_while_the_old_one_is_parked(pair: Any) -> None:
    parked = pair.join("m1", instance_id="a", **TIMES)
    assert parked not in pair.answers
    again = pair.join(instance_id="a", **TIMES)
    assert pair.answers[parked].error is ErrorKind.FENCED_INSTANCE_ID
    assert again not in pair.answers, "b has not rejoined"
    pair.join("m2", instance_id="b", **TIMES)
    assert pair.answers[again].generation == 2


def test_a_take_over_during_the_sync_phase_rebalances(pair: Any) -> None:
    pair.join("m1", instance_id="a", **TIMES)
    pair.join("m2", instance_id="b", **TIMES)
    parked = pair.sync("m2", 2, instance_id="b")
    pair.join(instance_id="b", **TIMES)
    assert pair.answers[parked].error is ErrorKind.FENCED_INSTANCE_ID
    assert pair.group().state.value == "PreparingRebalance"


def test_a_silent_static_member_stays_until_its_session_ends(pair: Any) -> None:
    pair.advance(15_000)
    assert pair.beat("m1", 1, "a") is ErrorKind.NONE
    parked = pair.join("m1", instance_id="a", **TIMES)
    pair.advance(14_000)
    assert parked not in pair.answers
    pair.advance(3_000)
    assert pair.answers[parked].generation == 2
    assert list(pair.group().members) == ["m1"]


def test_a_rebalance_ends_without_a_static_member_that_keeps_its_place(pair: Any) -> None:
    pair.beat("m2", 1, "b")
    parked = pair.join("m1", instance_id="a", session_timeout_ms=30_000, rebalance_timeout_ms=10_000)
    pair.advance(10_000)
    assert parked not in pair.answers, "the phase lasts as long as the slowest member asked for"
    pair.advance(10_000)
    assert [m.instance_id for m in pair.answers[parked].members] == ["a", "b"]


def test_when_only_static_members_are_missing_the_rebalance_waits(pair: Any) -> None:
    pair.leave("m1")  # a dynamic leave by id: b is asked to rejoin and does not
    assert pair.group().state.value == "PreparingRebalance"
    pair.advance(20_000)
    assert list(pair.group().members) == ["m2"], "no member is back, and none may be thrown out yet"
    pair.advance(10_000)
    assert pair.group().state.value == "Empty"


def test_an_administrator_removes_by_instance_id(pair: Any) -> None:
    left = pair.leave(MemberIdentity("", "b"), MemberIdentity("", "nobody"))
    assert [m.error for m in left.members] == [ErrorKind.NONE, ErrorKind.UNKNOWN_MEMBER_ID]
    assert list(pair.group().members) == ["m1"]


def test_an_unknown_instance_is_an_unknown_member(pair: Any) -> None:
    assert pair.beat("m1", 1, "c") is ErrorKind.UNKNOWN_MEMBER_ID
