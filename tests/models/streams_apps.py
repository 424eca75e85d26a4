"""Topologies of streams applications, and heartbeats of their members, for tests of streams groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.groups.commands import ConfigsChanged
from headrace.groups.config import StreamsSettings
from headrace.groups.consumer.commands import TopicsChanged
from headrace.groups.streams.commands import StreamsGroupHeartbeat, TasksByRole
from headrace.groups.streams.topology import Copartition, InternalTopic, Subtopology, Topology
from headrace.groups.topics import TopicInfo

COUNT = Topology(
    0,
    (
        Subtopology("0", sources=("words",), repartition_sinks=("app-by-word-repartition",)),
        Subtopology(
            "1",
            repartition_sources=(InternalTopic("app-by-word-repartition"),),
            changelogs=(InternalTopic("app-counts-changelog", configs=(("cleanup.policy", "compact"),)),),
        ),
    ),
)
"""words are grouped anew (subtopology 0) and counted (subtopology 1)."""

JOIN = Topology(
    0,
    (
        Subtopology(
            "0",
            sources=("left", "right"),
            changelogs=(InternalTopic("app-join-changelog"),),
            copartitions=(Copartition((0, 1), ()),),
        ),
    ),
)

AT_ONCE = StreamsSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0)
INTERNAL = {"app-by-word-repartition": 4, "app-counts-changelog": 4}


def topic_infos(**counts: int) -> dict[str, TopicInfo]:
    named = {name.replace("_", "-"): count for name, count in counts.items()}
    infos = {name: TopicInfo(name.encode()[:16].ljust(16, b"."), count) for name, count in named.items()}
    infos["__consumer_offsets"] = TopicInfo(b"_" * 16, 50)
    return infos


def use_topics(world: Any, **counts: int) -> None:
    world.ask(lambda w: TopicsChanged(topic_infos(**counts), waiter=w))


def set_streams(world: Any, settings: StreamsSettings) -> None:
    config = replace(world.shard.table.config, streams=settings)
    world.ask(lambda w: ConfigsChanged(config, {}, waiter=w))


def beat(
    world: Any,
    member_id: str,
    epoch: int,
    group_id: str = "app",
    settings: StreamsSettings = AT_ONCE,
    **fields: Any,
) -> Any:
    set_streams(world, settings)
    return world.ask(lambda w: StreamsGroupHeartbeat(group_id, member_id, epoch, **fields, waiter=w))


def join(world: Any, member_id: str, topology: Topology = COUNT, **fields: Any) -> Any:
    fields.setdefault("process_id", f"process-of-{member_id}")
    fields.setdefault("rebalance_timeout_ms", 60_000)
    fields.setdefault("owned", TasksByRole())
    return beat(world, member_id, 0, topology=topology, **fields)
