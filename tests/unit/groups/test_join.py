"""JoinGroup of dynamic members: ids, votes, delays, sizes (kafka.md 6.1)."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import ErrorKind
from headrace.core.limits import (
    MAX_GROUP_METADATA_BYTES,
    MAX_MEMBER_PROTOCOLS,
    MAX_PROTOCOL_METADATA_BYTES,
)
from headrace.groups.commands import Protocol
from headrace.groups.facts import GenerationStarted, GroupOpened


def test_kip_394_a_new_member_is_sent_away_with_its_id_once(world: Any) -> None:
    first = world.answers[world.join(member_id_required=True)]
    assert (first.error, first.member_id) == (ErrorKind.MEMBER_ID_REQUIRED, "m1")
    second = world.answers[world.join("m1", member_id_required=True)]
    assert second.error is ErrorKind.NONE
    assert (second.generation, second.leader, second.member_id) == (1, "m1", "m1")
    assert [m.member_id for m in second.members] == ["m1"]


def test_a_reserved_id_that_is_not_used_is_forgotten(world: Any) -> None:
    world.join(member_id_required=True)
    world.advance(9_999)
    assert world.group().reserved
    world.advance(1)
    assert not world.group().reserved
    assert world.answers[world.join("m1")].error is ErrorKind.UNKNOWN_MEMBER_ID


def test_a_reserved_id_that_goes_away_disturbs_nobody(world: Any) -> None:
    (member,) = world.stable("a")
    for _ in range(2):
        world.join(member_id_required=True)
    world.leave(world.answers[world.join(member_id_required=True)].member_id)
    for _ in range(4):
        world.advance(5_000)
        assert world.beat(member, 1) is ErrorKind.NONE
    assert not world.group().reserved


def test_a_reserved_id_holds_a_rebalance_back(world: Any) -> None:
    (leader,) = world.stable("a")
    world.join(member_id_required=True)
    parked = world.join(leader)
    assert parked not in world.answers, "the newcomer is on its way"
    world.advance(10_000)
    assert world.answers[parked].generation == 2


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorKind.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorKind.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 30 * 60_000 + 1}, ErrorKind.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorKind.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorKind.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, ErrorKind.UNKNOWN_MEMBER_ID),
    ],
)
def test_malformed_joins_change_nothing(world: Any, fields: dict[str, Any], error: ErrorKind) -> None:
    assert world.answers[world.join(**fields)].error is error
    assert not world.last.facts and not world.shard.table.groups


def test_an_empty_group_id_beats_every_other_complaint(world: Any) -> None:
    refused = world.answers[world.join(group_id="", session_timeout_ms=1)]
    assert refused.error is ErrorKind.INVALID_GROUP_ID


def test_protocol_type_and_protocols_must_fit_the_group(world: Any) -> None:
    world.stable("a", protocols=(Protocol("range", b""), Protocol("sticky", b"")))
    connect = world.answers[world.join(protocol_type="connect")]
    assert connect.error is ErrorKind.INCONSISTENT_GROUP_PROTOCOL
    alien = world.answers[world.join(protocols=(Protocol("roundrobin", b""),))]
    assert alien.error is ErrorKind.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocols=(Protocol("sticky", b""),)) not in world.answers


def test_each_member_votes_among_what_all_support(world: Any) -> None:
    every = {name: Protocol(name, name.encode()) for name in ("range", "sticky", "cooperative")}
    (leader,) = world.stable("a", protocols=(every["cooperative"], every["range"], every["sticky"]))
    second = world.join(protocols=(every["sticky"], every["range"]))
    third = world.join(protocols=(every["sticky"], every["range"]))
    first = world.join(leader, protocols=(every["cooperative"], every["range"], every["sticky"]))
    assert {world.answers[w].protocol_name for w in (first, second, third)} == {"sticky"}
    assert [m.metadata for m in world.answers[first].members] == [b"sticky"] * 3
    assert world.answers[second].members == ()


def test_the_first_generation_waits_for_company(make_world: Any) -> None:
    world = make_world(initial_rebalance_delay_ms=3_000)
    first = world.join(rebalance_timeout_ms=7_000)
    world.advance(2_999)
    second = world.join(rebalance_timeout_ms=7_000)
    world.advance(2_999)
    assert first not in world.answers, "extended, because somebody came"
    third = world.join(rebalance_timeout_ms=7_000)
    world.advance(1_002)
    assert {world.answers[w].generation for w in (first, second, third)} == {1}, (
        "never longer than the timeout"
    )
    assert world.now_ms == 1_000 + 7_000


def test_the_first_generation_does_not_wait_when_nobody_else_comes(make_world: Any) -> None:
    world = make_world(initial_rebalance_delay_ms=3_000)
    only = world.join()
    world.advance(2_999)
    assert only not in world.answers
    world.advance(1)
    assert world.answers[only].generation == 1


def test_who_does_not_rejoin_in_time_is_out(world: Any) -> None:
    leader, other = world.stable("a", "b", session_timeout_ms=60_000, rebalance_timeout_ms=20_000)
    rejoined = world.join(leader, session_timeout_ms=60_000, rebalance_timeout_ms=20_000)
    world.advance(19_999)
    assert rejoined not in world.answers
    world.advance(1)
    assert [m.member_id for m in world.answers[rejoined].members] == [leader]
    assert world.beat(other, 3) is ErrorKind.UNKNOWN_MEMBER_ID


def test_a_follower_that_missed_its_answer_gets_it_again(world: Any) -> None:
    _, follower = world.stable("a", "b")
    generation = world.group().generation
    again = world.answers[world.join(follower)]
    assert (again.error, again.generation, again.members) == (ErrorKind.NONE, generation, ())
    assert world.group().state.value == "Stable"


def test_changed_metadata_or_a_rejoining_leader_rebalances(world: Any) -> None:
    leader, follower = world.stable("a", "b")
    changed = world.join(follower, protocols=(Protocol("range", b"more topics"),))
    assert changed not in world.answers
    assert world.beat(leader, world.group().generation) is ErrorKind.REBALANCE_IN_PROGRESS
    world.join(leader)
    assert world.answers[changed].error is ErrorKind.NONE
    assert world.group().state.value == "CompletingRebalance"


def test_a_join_during_the_sync_phase(world: Any) -> None:
    leader, follower = world.stable("a", "b")
    world.join(leader)
    world.join(follower)
    generation = world.group().generation
    again = world.answers[world.join(leader)]
    assert (again.generation, len(again.members)) == (generation, 2), (
        "same metadata: the same answer, list included"
    )
    parked_sync = world.sync(follower, generation)
    world.join(leader, protocols=(Protocol("range", b"changed"),))
    assert world.answers[parked_sync].error is ErrorKind.REBALANCE_IN_PROGRESS


def test_group_max_size(make_world: Any) -> None:
    world = make_world(max_size=2)
    leader, follower = world.stable("a", "b")
    refused = world.answers[world.join()]
    assert refused.error is ErrorKind.GROUP_MAX_SIZE_REACHED
    assert world.join(leader) not in world.answers, "members may rejoin a full group"
    world.join(follower)
    assert world.group().generation == 3


def test_reserved_ids_are_bounded_too(make_world: Any) -> None:
    world = make_world(max_size=2)
    answers = [world.answers[world.join(member_id_required=True)].error for _ in range(3)]
    assert answers == [ErrorKind.MEMBER_ID_REQUIRED] * 2 + [ErrorKind.GROUP_MAX_SIZE_REACHED]


def test_a_new_member_is_parked_for_five_minutes_at_most(world: Any) -> None:
    (leader,) = world.stable("a", session_timeout_ms=30 * 60_000, rebalance_timeout_ms=30 * 60_000)
    newcomer = world.join()
    world.advance(5 * 60_000 - 1)
    assert newcomer not in world.answers
    world.advance(1)
    assert world.answers[newcomer].error is ErrorKind.UNKNOWN_MEMBER_ID
    assert list(world.group().members) == [leader]


def test_a_second_join_of_the_same_member_sends_the_first_away(world: Any) -> None:
    leader, _ = world.stable("a", "b")
    first = world.join(leader)
    second = world.join(leader)
    assert world.answers[first].error is ErrorKind.REBALANCE_IN_PROGRESS
    assert second not in world.answers


def test_kip_429_two_rounds_are_not_merged(world: Any) -> None:
    leader, follower = world.stable("a", "b")
    for expected in (3, 4):
        parked = world.join(leader)
        world.join(follower)
        assert world.answers[parked].generation == expected
        world.sync(leader, expected)
        world.sync(follower, expected)


def test_r54_the_generation_is_journaled_before_anybody_hears_of_it(world: Any) -> None:
    waiter = world.join()
    kinds = [type(fact) for fact in world.last.facts if fact.durable]
    assert kinds == [GroupOpened, GenerationStarted]
    assert [reply.waiter for reply in world.last.replies] == [waiter]


def test_a_group_keeps_8_mib_of_its_members_words_f21(world: Any) -> None:
    """A4: each member may say 64 KiB for each protocol, but not all of them for ever more."""
    largest = Protocol("range", b"x" * MAX_PROTOCOL_METADATA_BYTES)
    waiters = [
        world.join(protocols=(largest,))
        for _ in range(MAX_GROUP_METADATA_BYTES // MAX_PROTOCOL_METADATA_BYTES + 1)
    ]
    assert world.answers[waiters[-1]].error is ErrorKind.GROUP_MAX_SIZE_REACHED
    assert world.group().metadata_bytes <= MAX_GROUP_METADATA_BYTES
    known = world.answers[waiters[0]].member_id
    again = world.join(known, protocols=(largest,))
    refused = again in world.answers and world.answers[again].error is ErrorKind.GROUP_MAX_SIZE_REACHED
    assert not refused, "who is in is not shut out by its own words"


def test_a_member_offers_a_bounded_number_of_protocols_f21(world: Any) -> None:
    many = tuple(Protocol(f"p{number}", b"") for number in range(MAX_MEMBER_PROTOCOLS + 1))
    assert world.answers[world.join(protocols=many)].error is ErrorKind.INVALID_REQUEST
