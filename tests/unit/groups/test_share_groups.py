"""Share groups' membership (KIP-932): heartbeats, epochs, the simple assignor, describe, reload."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import ErrorKind
from headrace.groups.commands import (
    DeleteGroups,
    DeleteOffsets,
    ListGroups,
    OffsetToCommit,
    TxnCommitOffsets,
)
from headrace.groups.consumer.assignors import GroupReader
from headrace.groups.consumer.commands import ConsumerGroupHeartbeat, TopicsChanged
from headrace.groups.share.assignor import assign_simple
from headrace.groups.share.commands import ShareGroupDescribe, ShareGroupHeartbeat
from headrace.groups.topics import TopicIndex, TopicInfo

T, U = b"t" * 16, b"u" * 16


def use_topics(world: Any, **counts: int) -> None:
    topics = {name: TopicInfo((name * 16).encode(), count) for name, count in counts.items()}
    world.ask(lambda w: TopicsChanged(topics, waiter=w))


def beat(world: Any, member_id: str, epoch: int, **fields: Any) -> Any:
    return world.ask(lambda w: ShareGroupHeartbeat("g", member_id, epoch, **fields, waiter=w))


def join(world: Any, member_id: str, *topics: str, **fields: Any) -> Any:
    return beat(world, member_id, 0, topics=topics or ("t",), **fields)


@pytest.fixture
def shares(world: Any) -> Any:
    use_topics(world, t=4)
    return world


def test_a_member_joins_shares_and_leaves(shares: Any) -> None:
    first = join(shares, "a")
    assert (first.error, first.member_id, first.member_epoch, first.heartbeat_interval_ms, first.assignment) == (
        ErrorKind.NONE, "a", 1, 5_000, ((T, (0, 1, 2, 3)),),
    )  # fmt: skip
    second = join(shares, "b")
    assert (second.member_epoch, second.assignment) == (2, ((T, (2, 3)),)), (
        "at once: nobody has to let go first"
    )
    told = beat(shares, "a", 1)
    assert (told.member_epoch, told.assignment) == (2, ((T, (0, 1)),))
    assert beat(shares, "a", 2).assignment is None
    left = beat(shares, "b", -1)
    assert (left.error, left.member_epoch) == (ErrorKind.NONE, -1)
    assert beat(shares, "a", 2).assignment == ((T, (0, 1, 2, 3)),)


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields"),
    [
        ("", 0, {"topics": ("t",)}),
        ("x" * 37, 0, {"topics": ("t",)}),
        ("a", 0, {}),
        ("a", 0, {"topics": ()}),
        ("a", 0, {"topics": ("t",), "rack_id": ""}),
        ("a", -2, {}),
        ("a", 0, {"topics": ("t",), "client_id": "x" * 40_000}),
    ],
)
def test_malformed_requests(shares: Any, member_id: str, epoch: int, fields: Any) -> None:
    answer = beat(shares, member_id, epoch, **fields)
    assert answer.error is ErrorKind.INVALID_REQUEST and answer.message
    empty = shares.ask(lambda w: ShareGroupHeartbeat("", "a", 0, topics=("t",), waiter=w))
    assert empty.error is ErrorKind.INVALID_REQUEST


def test_strangers(shares: Any) -> None:
    assert beat(shares, "a", 1).error is ErrorKind.GROUP_ID_NOT_FOUND
    assert beat(shares, "a", -1).error is ErrorKind.GROUP_ID_NOT_FOUND
    join(shares, "a")
    assert beat(shares, "b", 1).error is ErrorKind.UNKNOWN_MEMBER_ID
    assert beat(shares, "b", -1).error is ErrorKind.UNKNOWN_MEMBER_ID


def test_epochs(shares: Any) -> None:
    join(shares, "a")
    join(shares, "b")
    beat(shares, "a", 1)
    assert beat(shares, "a", 1).member_epoch == 2, "the answer with epoch 2 may have been lost"
    assert beat(shares, "a", 3).error is ErrorKind.FENCED_MEMBER_EPOCH
    join(shares, "c")
    beat(shares, "a", 2)
    assert beat(shares, "a", 1).error is ErrorKind.FENCED_MEMBER_EPOCH
    assert join(shares, "a").error is ErrorKind.NONE


def test_a_full_group_and_unknown_topics(make_world: Any) -> None:
    world = make_world(share_max_size=1)
    assert join(world, "a").error is ErrorKind.COORDINATOR_LOAD_IN_PROGRESS
    use_topics(world, t=1)
    assert join(world, "a", "absent").assignment == ()
    assert join(world, "b").error is ErrorKind.GROUP_MAX_SIZE_REACHED


def test_topics_and_subscriptions_change(shares: Any) -> None:
    join(shares, "a", "t", "u")
    use_topics(shares, t=4, u=1)
    assert beat(shares, "a", 1).assignment == ((T, (0, 1, 2, 3)), (U, (0,)))
    answer = beat(shares, "a", 2, topics=("u",))
    assert (answer.member_epoch, answer.assignment) == (3, ((U, (0,)),))
    assert beat(shares, "a", 3, topics=("u",), rack_id="r").member_epoch == 3


def test_a_silent_member_is_out(shares: Any) -> None:
    join(shares, "a")
    join(shares, "b")
    shares.advance(44_999)
    beat(shares, "a", 1)
    shares.advance(1)
    assert beat(shares, "a", 2).assignment == ((T, (0, 1, 2, 3)),)
    assert beat(shares, "b", 2).error is ErrorKind.UNKNOWN_MEMBER_ID


def test_describe_list_and_delete(shares: Any) -> None:
    join(shares, "a", rack_id="r", client_id="c", client_host="/h")
    found = shares.ask(lambda w: ShareGroupDescribe(("g", "nowhere", ""), waiter=w))
    group = found[0]
    assert (group.state, group.group_epoch, group.target_epoch, group.assignor) == ("Stable", 1, 1, "simple")
    assert group.members == (("a", "r", 1, "c", "/h", ("t",), ((T, "t", (0, 1, 2, 3)),)),)
    assert [g.error for g in found[1:]] == [ErrorKind.GROUP_ID_NOT_FOUND, ErrorKind.INVALID_GROUP_ID]
    assert [tuple(g) for g in shares.ask(lambda w: ListGroups(waiter=w))] == [
        ("g", "share", "Stable", "share")
    ]
    (refused,) = shares.ask(lambda w: DeleteGroups(("g",), waiter=w))
    assert refused.error is ErrorKind.NON_EMPTY_GROUP
    beat(shares, "a", -1)
    shares.advance(30 * 86_400_000)
    assert shares.group().is_empty, "an empty share group stays: its queue may not be empty"
    shares.ask(lambda w: DeleteGroups(("g",), waiter=w))
    shares.restart()
    assert not shares.shard.table.groups


def test_other_protocols_stay_out(shares: Any) -> None:
    join(shares, "a")
    assert shares.answers[shares.join()].error is ErrorKind.INCONSISTENT_GROUP_PROTOCOL
    consumer = shares.ask(
        lambda w: ConsumerGroupHeartbeat(
            "g", "c", 0, rebalance_timeout_ms=1, owned=(), topics=("t",), waiter=w
        )
    )
    assert consumer.error is ErrorKind.GROUP_ID_NOT_FOUND
    assert shares.beat("a", 1) is ErrorKind.UNKNOWN_MEMBER_ID
    assert shares.answers[shares.sync("a", 1)].error is ErrorKind.UNKNOWN_MEMBER_ID
    assert shares.leave("a").members[0].error is ErrorKind.UNKNOWN_MEMBER_ID
    offset = OffsetToCommit("t", 0, 1)
    assert shares.commit(offset).error is ErrorKind.GROUP_ID_NOT_FOUND
    txn = shares.ask(lambda w: TxnCommitOffsets("g", 1, 0, (offset,), waiter=w))
    assert txn.error is ErrorKind.GROUP_ID_NOT_FOUND
    dropped = shares.ask(lambda w: DeleteOffsets("g", (("t", 0),), waiter=w))
    assert dropped.error is ErrorKind.GROUP_ID_NOT_FOUND
    shares.stable("x", group_id="classic")
    classic = shares.ask(lambda w: ShareGroupHeartbeat("classic", "a", 0, topics=("t",), waiter=w))
    assert classic.error is ErrorKind.GROUP_ID_NOT_FOUND


def test_reload(shares: Any) -> None:
    join(shares, "a", "t", "u", rack_id="r", client_id="c")
    join(shares, "b")
    join(shares, "gone")
    beat(shares, "gone", -1)
    before = shares.group()
    shares.restart()
    after = shares.group()
    for name in ("epoch", "target_epoch", "fingerprint", "members", "targets"):
        assert getattr(after, name) == getattr(before, name), name
    use_topics(shares, t=4)
    assert shares.group().epoch == before.epoch
    shares.advance(44_999)
    assert set(shares.group().members) == {"a", "b"}
    shares.advance(1)
    assert shares.group().is_empty


# --- the simple assignor -------------------------------------------------------------------------------------

COUNTS = st.fixed_dictionaries({name: st.integers(1, 6) for name in "tuv"})
SUBSCRIPTIONS = st.lists(st.sets(st.sampled_from("tuv"), min_size=1), min_size=1, max_size=9)


@given(COUNTS, SUBSCRIPTIONS, st.integers(0, 3), st.integers(0, 3))
def test_everything_is_read_and_everybody_has_work(
    counts: dict[str, int], subscriptions: list[set[str]], leaving: int, joining: int
) -> None:
    index = TopicIndex({name: TopicInfo((name * 16).encode(), count) for name, count in counts.items()})
    readers = [GroupReader(f"m{i}", None, None, frozenset(topics)) for i, topics in enumerate(subscriptions)]
    before = assign_simple(readers, {}, index)
    assert assign_simple(readers, before, index) == before, "nothing changed, nothing moves"
    later = readers[min(leaving, len(readers) - 1) :]
    later += [GroupReader(f"n{i}", None, None, frozenset("t")) for i in range(joining)]
    for group, result in ((readers, before), (later, assign_simple(later, before, index))):
        for name, count in counts.items():
            topic_id = (name * 16).encode()
            members = [r.member_id for r in group if name in r.topics]
            given_out = {m: [p for t, p in result[m] if t == topic_id] for m in result}
            assert all(not parts for m, parts in given_out.items() if m not in members)
            if not members:
                continue
            readers_of = [sum(p in given_out[m] for m in members) for p in range(count)]
            assert min(readers_of) >= 1, "a partition nobody reads"
            sizes = [len(given_out[m]) for m in members]
            assert min(sizes) >= 1, "a member without work"
            assert max(sizes) - min(sizes) <= 1 and max(readers_of) - min(readers_of) <= 1
