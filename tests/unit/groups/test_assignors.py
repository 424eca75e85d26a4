"""Assignors: everything assigned once, balanced as well as can be, and sticky."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.consumer.assignors import GroupReader, assign_range, assign_uniform
from headrace.groups.topics import TopicIndex, TopicInfo

NAMES = "tuvw"


def topic_id(name: str) -> bytes:
    return (name * 16).encode()[:16]


def index_of(counts: dict[str, int]) -> TopicIndex:
    return TopicIndex({name: TopicInfo(topic_id(name), count) for name, count in counts.items()})


def reader(
    member_id: str, topics: str, instance_id: str | None = None, rack: str | None = None
) -> GroupReader:
    return GroupReader(member_id, instance_id, rack, frozenset(topics))


COUNTS = st.fixed_dictionaries({name: st.integers(1, 7) for name in NAMES})
SUBSCRIPTIONS = st.lists(
    st.sets(st.sampled_from(NAMES), min_size=1).map(sorted).map("".join), min_size=1, max_size=6
)


def check_whole(
    result: dict[str, frozenset[tuple[bytes, int]]], readers: list[GroupReader], index: TopicIndex
) -> None:
    wanted = {
        (topic_id(t), p) for r in readers for t in r.topics for p in range(index.topics[t].partition_count)
    }
    given_out = [part for parts in result.values() for part in parts]
    assert len(given_out) == len(set(given_out)), "R55: a partition was given out twice"
    assert set(given_out) == wanted
    for r in readers:
        assert all(index.by_id[topic] in r.topics for topic, _ in result[r.member_id]), "not subscribed"


@given(COUNTS, SUBSCRIPTIONS)
def test_range_gives_contiguous_shares_of_every_topic(
    counts: dict[str, int], subscriptions: list[str]
) -> None:
    index, readers = index_of(counts), [reader(f"m{i}", topics) for i, topics in enumerate(subscriptions)]
    result = assign_range(readers, {}, index)
    check_whole(result, readers, index)
    for name in NAMES:
        shares = [sorted(p for t, p in parts if t == topic_id(name)) for parts in result.values()]
        assert all(share == list(range(share[0], share[-1] + 1)) for share in shares if share)
        sizes = [len(share) for r, share in zip(readers, shares, strict=True) if name in r.topics]
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_range_co_partitions_and_puts_static_members_first() -> None:
    index = index_of({"t": 4, "u": 4})
    readers = [reader("zz", "tu", "a"), reader("b", "tu"), reader("aa", "tu", "b")]
    result = assign_range(readers, {}, index)
    for parts in result.values():
        assert {p for t, p in parts if t == topic_id("t")} == {p for t, p in parts if t == topic_id("u")}
    assert (topic_id("t"), 0) in result["zz"] and (topic_id("t"), 3) in result["b"]
    renamed = assign_range([reader("other", "tu", "a"), *readers[1:]], {}, index)
    assert renamed["other"] == result["zz"] and renamed["b"] == result["b"]


@given(COUNTS, st.integers(1, 6), st.integers(0, 3), st.integers(0, 3))
def test_uniform_balances_within_one_and_moves_nothing_in_vain(
    counts: dict[str, int], members: int, leaving: int, joining: int
) -> None:
    index = index_of(counts)
    before_readers = [reader(f"m{i}", "tuv") for i in range(members)]
    before = assign_uniform(before_readers, {}, index)
    check_whole(before, before_readers, index)
    after_readers = before_readers[min(leaving, members - 1) :] + [
        reader(f"n{i}", "tuv") for i in range(joining)
    ]
    after = assign_uniform(after_readers, before, index)
    check_whole(after, after_readers, index)
    for result in (before, after):
        sizes = [len(parts) for parts in result.values()]
        assert max(sizes) - min(sizes) <= 1
    share = sum(len(parts) for parts in after.values()) // len(after_readers)
    for r in after_readers:
        old, new = before.get(r.member_id, frozenset()), after[r.member_id]
        lost = old - new
        assert not lost or len(new) == max(len(new), share) >= share, "revoked below its share"
        assert not (lost and new - old), "gave one partition up for another"
        if len(old) <= share:
            assert not lost, "a member within its share was revoked"


@given(COUNTS, SUBSCRIPTIONS)
def test_uniform_is_as_even_as_subscriptions_allow(counts: dict[str, int], subscriptions: list[str]) -> None:
    index, readers = index_of(counts), [reader(f"m{i}", topics) for i, topics in enumerate(subscriptions)]
    result = assign_uniform(readers, {}, index)
    check_whole(result, readers, index)
    # No chain of hand-overs could even two members out: among members connected by what they read, nobody has two
    # partitions more than somebody who could take one.
    load = {member: len(parts) for member, parts in result.items()}
    for start in readers:
        reachable, queue = {start.member_id}, [start.member_id]
        while queue:
            giver = queue.pop()
            topics = {index.by_id[t] for t, _ in result[giver]}
            for r in readers:
                if r.member_id not in reachable and topics & r.topics:
                    reachable.add(r.member_id)
                    queue.append(r.member_id)
        assert all(load[member] >= load[start.member_id] - 1 for member in reachable)


@given(COUNTS, SUBSCRIPTIONS)
def test_uniform_keeps_what_is_balanced(counts: dict[str, int], subscriptions: list[str]) -> None:
    index, readers = index_of(counts), [reader(f"m{i}", topics) for i, topics in enumerate(subscriptions)]
    once = assign_uniform(readers, {}, index)
    assert assign_uniform(readers, once, index) == once


def test_uniform_prefers_the_rack_of_a_replica() -> None:
    racks = tuple(frozenset({"east" if p % 2 else "west"}) for p in range(4))
    index = TopicIndex({"t": TopicInfo(topic_id("t"), 4, racks), "u": TopicInfo(topic_id("u"), 1, racks[:1])})
    even = assign_uniform([reader("e", "t", rack="east"), reader("w", "t", rack="west")], {}, index)
    assert {p for _, p in even["e"]} == {1, 3} and {p for _, p in even["w"]} == {0, 2}
    uneven = assign_uniform(
        [reader("e", "t", rack="east"), reader("w", "t", rack="west"), reader("u", "u")], {}, index
    )
    assert {p for _, p in uneven["e"]} == {1, 3} and {p for _, p in uneven["w"]} == {0, 2}


def test_nobody_and_nothing() -> None:
    assert assign_uniform([], {}, index_of({})) == {}
    assert assign_uniform([reader("a", "")], {}, index_of({})) == {"a": frozenset()}
    assert assign_range([reader("a", "")], {}, index_of({})) == {"a": frozenset()}


def test_a_large_group_is_assigned_in_no_time() -> None:
    index = index_of({"t": 2_000, "u": 500})
    readers = [reader(f"m{i:04}", "tu" if i % 3 else "t") for i in range(300)]
    first = assign_uniform(readers, {}, index)
    second = assign_uniform([*readers, reader("new", "tu")], first, index)
    moved = sum(len(first[r.member_id] - second[r.member_id]) for r in readers)
    assert moved <= len(second["new"]) + 1
