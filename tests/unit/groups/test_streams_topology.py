"""Streams topologies with the topics that there are (KIP-1071, F37): tasks, internal topics, what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest
from streams_apps import COUNT, JOIN, topic_infos

from headrace.groups.streams.topology import (
    Copartition,
    InternalTopic,
    Status,
    Subtopology,
    Topology,
    complaint,
    configure,
)
from headrace.groups.topics import TopicIndex


def with_topics(topology: Topology, **counts: int) -> Any:
    return configure(topology, TopicIndex(topic_infos(**counts)))


def test_internal_topics_are_as_wide_as_what_feeds_them() -> None:
    found = with_topics(COUNT, words=4)
    assert found.problem.status is Status.MISSING_INTERNAL_TOPICS and not found.is_ready
    assert [(topic.name, topic.partitions) for topic in found.missing] == [
        ("app-by-word-repartition", 4),
        ("app-counts-changelog", 4),
    ]
    assert found.missing[1].configs == (("cleanup.policy", "compact"),)
    ready = with_topics(COUNT, words=4, app_by_word_repartition=4, app_counts_changelog=4)
    assert ready.is_ready and not ready.missing
    assert ready.tasks == {"0": 4, "1": 4} and ready.stateful == {"1"}


def test_missing_sources_come_first() -> None:
    found = with_topics(COUNT)
    assert found.problem.status is Status.MISSING_SOURCE_TOPICS and "words" in found.problem.detail
    assert not found.missing, "nothing is made for an application that can't start"


def test_an_internal_topic_of_another_width_is_refused() -> None:
    found = with_topics(COUNT, words=4, app_by_word_repartition=3, app_counts_changelog=4)
    assert found.problem.status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert "expected 4, found 3" in found.problem.detail


def test_joined_topics_need_equally_many_partitions() -> None:
    assert with_topics(JOIN, left=3, right=3, app_join_changelog=3).is_ready
    found = with_topics(JOIN, left=3, right=2)
    assert found.problem.status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert "left (3), right (2)" in found.problem.detail


def joined(fixed: int) -> Topology:
    """A source joined with a repartitioned one."""
    between = InternalTopic("between", fixed)
    return Topology(
        0,
        (
            Subtopology("0", sources=("wide",), repartition_sinks=("between",)),
            Subtopology("1", ("narrow",), (between,), copartitions=(Copartition((0,), (0,)),)),
        ),
    )


def test_a_repartition_topic_that_is_joined_gets_the_width_of_its_partner() -> None:
    found = with_topics(joined(0), wide=8, narrow=2)
    assert [(topic.name, topic.partitions) for topic in found.missing] == [("between", 2)]
    assert found.tasks == {"0": 8, "1": 2}
    wrong = with_topics(joined(5), wide=8, narrow=2)
    assert wrong.problem.status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert with_topics(joined(2), wide=8, narrow=2).tasks == {"0": 8, "1": 2}


def test_repartition_topics_of_repartition_topics() -> None:
    """Whatever the order they are named in."""
    chain = Topology(
        0,
        (
            Subtopology("2", repartition_sources=(InternalTopic("b"),)),
            Subtopology("1", repartition_sources=(InternalTopic("a"),), repartition_sinks=("b",)),
            Subtopology("0", sources=("s",), repartition_sinks=("a",)),
        ),
    )
    assert complaint(chain) is None
    assert with_topics(chain, s=6).tasks == {"0": 6, "1": 6, "2": 6}


def test_a_group_has_so_many_tasks() -> None:
    many = Topology(0, tuple(Subtopology(str(number), ("wide",)) for number in range(3)))
    assert with_topics(many, wide=3_333).is_ready
    found = with_topics(many, wide=3_334)
    assert (
        found.problem.status is Status.INCORRECTLY_PARTITIONED_TOPICS
        and "10002 tasks" in found.problem.detail
    )


def test_a_long_chain_is_gone_along_once() -> None:
    """A3: in whatever order the subtopologies come."""
    links = 4_000
    chain = [
        Subtopology(str(n), repartition_sources=(InternalTopic(str(n)),), repartition_sinks=(str(n + 1),))
        for n in range(links, 0, -1)
    ]
    topology = Topology(0, (*chain, Subtopology("first", ("s",), repartition_sinks=("1",))))
    assert complaint(topology) is None
    assert len(with_topics(topology, s=2).missing) == links


@pytest.mark.parametrize(
    ("subtopologies", "word"),
    [
        ((), "no subtopologies"),
        ((Subtopology("0"),), "reads no topic"),
        ((Subtopology("0", ("s",)), Subtopology("0", ("t",))), "one id"),
        ((Subtopology("0", ("s",), changelogs=(InternalTopic("c", 3),)),), "undefined partition count"),
        ((Subtopology("0", repartition_sources=(InternalTopic("r"),)),), "never written"),
        ((Subtopology("0", ("s",), copartitions=(Copartition((1,), ()),)),), "not there"),
        ((Subtopology("0", ("s",), (InternalTopic("r", 10**6),)),), "1000000 partitions"),
        (
            (Subtopology("0", repartition_sources=(InternalTopic("r"),), repartition_sinks=("r",)),),
            "loop",
        ),
    ],
)
def test_topologies_that_no_topics_could_make_work(subtopologies: Any, word: str) -> None:
    assert word in (complaint(Topology(0, subtopologies)) or "")
