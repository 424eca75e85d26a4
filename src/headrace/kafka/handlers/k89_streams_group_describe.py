"""Door: StreamsGroupDescribe (89)."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.errors import ErrorKind
from headrace.groups.streams import commands
from headrace.groups.streams import topology as topologies
from headrace.kafka.call import Call
from headrace.kafka.describing import described
from headrace.kafka.handlers.k88_streams_group_heartbeat import task_ids
from headrace.kafka.operations import ON_GROUP
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TOPIC, describe, needs
from headrace.wire.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    Topology,
)
from headrace.wire.messages.streams_group_heartbeat import Endpoint, KeyValue, TopicInfo

KEY = 89
VERSIONS = (0, 0)
RIGHTS = needs(describe(GROUP, "group_ids[]")).showing(describe(TOPIC))
PARTS = (Parts("group_ids", "groups"),)


async def handle(call: Call[StreamsGroupDescribeRequest]) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(groups=await described(call, DescribedGroup, _describe))


async def _describe(call: Call[StreamsGroupDescribeRequest], group_id: str) -> DescribedGroup:
    (group,) = await call.services.groups.ask(group_id, commands.StreamsGroupDescribe((group_id,)))
    if group.error is not ErrorKind.NONE:
        return DescribedGroup(
            error_code=group.error.kafka_code,
            error_message=group.message,
            group_id=group_id,
            group_state=group.state,
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        topology=Topology(
            group.topology_epoch, [_subtopology(call, sub) for sub in group.subtopologies or ()]
        ),
        authorized_operations=call.bits(
            call.request.include_authorized_operations, ON_GROUP, GROUP, group_id
        ),
        members=[_member(member) for member in group.members],
    )


def _subtopology(call: Call[StreamsGroupDescribeRequest], sub: topologies.Subtopology) -> Subtopology:
    """Without the topics that the caller may not see (A44)."""

    def seen(names: Iterable[str]) -> list[str]:
        return sorted(name for name in names if call.sees(TOPIC, name))

    def shown(topics: Iterable[topologies.InternalTopic]) -> list[TopicInfo]:
        return [_topic(topic) for topic in sorted(topics) if call.sees(TOPIC, topic.name)]

    return Subtopology(
        sub.subtopology_id,
        seen(sub.sources),
        seen(sub.repartition_sinks),
        shown(sub.changelogs),
        shown(sub.repartition_sources),
    )


def _topic(topic: topologies.InternalTopic) -> TopicInfo:
    configs = [KeyValue(key, value) for key, value in topic.configs]
    return TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _member(member: commands.DescribedStreamsMember) -> Member:
    profile = member.profile
    return Member(
        member.member_id,
        member.member_epoch,
        None,
        profile.rack_id,
        profile.client_id,
        profile.client_host,
        profile.topology_epoch,
        profile.process_id,
        None if profile.endpoint is None else Endpoint(*profile.endpoint),
        [KeyValue(key, value) for key, value in profile.tags],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(member.target),
    )


def _assignment(tasks: commands.TasksByRole) -> Assignment:
    return Assignment(task_ids(tasks.active), task_ids(tasks.standby), task_ids(tasks.warmup))
