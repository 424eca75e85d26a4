"""Door: consumer groups: list, look at with their lag, seek, delete.

GET                /api/v1/groups
GET|DELETE         /api/v1/groups/{group}
POST               /api/v1/groups/{group}/seek        {"topic": "t", "to": "start|end|-10|+10|@time|42", "dry_run": true}

A group lives with its coordinator, on any broker, so it is asked with the Kafka protocol that every administrator uses.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from headrace.broker import coordinators
from headrace.broker.coordinators import Coordinators
from headrace.broker.history import GroupNow
from headrace.broker.peers import Peers
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.ports import Clock
from headrace.groups.subscription import parse_assignment
from headrace.http.contract import Contract, Param
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request, Response
from headrace.http.rest.forms.administration import (
    SORTED,
    GroupPage,
    GroupPartition,
    GroupSummary,
    ListedGroup,
    Owned,
    SeekResult,
    ShownGroup,
    ShownMember,
    Sought,
)
from headrace.http.rest.forms.queues import CHANGE_PROBLEMS, PAGE
from headrace.http.rest.paging import page, sorted_window
from headrace.http.rest.reading import answer, body_of, invalid
from headrace.http.rest.records import READ_COMMITTED, READ_UNCOMMITTED, OffsetBounds, RecordReader
from headrace.http.whole import Whole
from headrace.records.positions import Anchor, Position, parse_target
from headrace.security.access import Access
from headrace.security.rights import CLUSTER, GROUP, OWN, TOPIC, Operation, delete, describe, needs, read
from headrace.wire.api import ApiKey
from headrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.messages.list_groups import ListedGroup as FoundGroup
from headrace.wire.messages.list_groups import ListGroupsRequest
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

MAX_AGES = 20
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Partitions whose oldest unread message is looked at, those with the largest lag first."""


class Place(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    topic: Annotated[str, Meta(min_length=1, max_length=249)]
    partition: Annotated[int, Meta(ge=0, le=1_000_000)]
    offset: Annotated[int, Meta(ge=0, le=2**62)]


class Seek(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    topic: Annotated[str, Meta(min_length=1, max_length=249)] | None = None
    """None, with `offsets` or for every topic that the group has committed."""
    to: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    """start, end, an offset, -N from the end, +N from where the group is, or @ and a time."""
    partition: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """None: all of them."""
    offsets: Annotated[list[Place], Meta(min_length=1, max_length=10_000)] | None = None
    """Instead of `to`: exactly these, as `from_offset` of an earlier seek said; that is how one is undone."""
    dry_run: bool = False


class GroupStanding(NamedTuple):
    group: FoundGroup
    members: list[ShownMember]
    committed: dict[TopicPartition, int]
    bounds: dict[TopicPartition, OffsetBounds]


class GroupDoor(Door):
    def __init__(
        self,
        clock: Clock,
        image: ClusterImage,
        coordinators: Coordinators,
        peers: Peers,
        reader: RecordReader,
        whole: Whole,
    ) -> None:
        self._clock = clock
        self._whole = whole
        self._image = image
        self._coordinators = coordinators
        self._peers = peers
        self._reader = reader

    async def _ask(self, group: str, key: int, version: int, request: object) -> Any:
        coordinator = await self._coordinators.find(group, coordinators.GROUP)
        return await self._peers.call(coordinator.id, key, version, request)

    # -- what there is -------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/api/v1/groups",
        OWN.showing(describe(CLUSTER), describe(GROUP)),
        Contract(
            "List groups",
            "groups",
            {200: GroupPage},
            problems=(400,),
            query=(
                Param("with", "lag: how far behind, and how fast"),
                Param("sort", "name, lag, members or out; - before it turns it round", SORTED),
                *PAGE,
            ),
        ),
    )
    async def _list(self, request: Request) -> Answer:
        everything = request.sees(CLUSTER, "")
        found = {
            group.group_id: group
            for group in await self._listed()
            if everything or request.sees(GROUP, group.group_id)
        }
        nothing = GroupNow()
        groups = (await self._whole.look()).groups
        names, cursor, total = sorted_window(
            request,
            found,
            {
                "lag": lambda name: groups.get(name, nothing).lag,
                "members": lambda name: groups.get(name, nothing).members,
                "out": lambda name: groups.get(name, nothing).out_per_s,
            },
        )
        wanted = request.query.get("with", "").split(",")
        rows = [ListedGroup(**asdict(_summary(found[name]))) for name in names]
        if "lag" in wanted:
            for row in rows:
                _add_numbers(row, request, groups.get(row.name))
        return page(request, rows, cursor, total)

    async def _listed(self) -> list[FoundGroup]:
        """Of every broker that answers: one that is away takes no list with it."""
        asked = [
            self._peers.call(node.id, ApiKey.LIST_GROUPS, 5, ListGroupsRequest([], []))
            for node in self._image.live_brokers()
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        problems = [found for found in answers if isinstance(found, BaseException)]
        if problems and len(problems) == len(answers):
            raise problems[0]
        return [group for found in answers if not isinstance(found, BaseException) for group in found.groups]

    async def _known(self, name: str) -> FoundGroup:
        for group in await self._listed():
            if group.group_id == name:
                return group
        raise HeadraceError(
            ErrorKind.GROUP_ID_NOT_FOUND,
            f'there is no group called "{name}"',
            "GET /api/v1/groups lists them.",
        )

    async def standing(self, request: Request) -> GroupStanding:
        """Everything about where a group stands, of the topics that the caller may see (A44). Raises GROUP_ID_NOT_FOUND."""
        name = request.params["group"]
        group = await self._known(name)
        members = await self._members(group)
        for member in members:
            member.assignment = [owned for owned in member.assignment if request.sees(TOPIC, owned.topic)]
        committed = await self._committed(name)
        committed = {tp: offset for tp, offset in committed.items() if request.sees(TOPIC, tp.topic)}
        read = {tp.topic for tp in committed} | {
            owned.topic for member in members for owned in member.assignment
        }
        bounds = await self._bounds(
            TopicPartition(topic, number)
            for topic in sorted(read)
            if self._image.topic(topic) is not None
            for number in self._reader.partitions(topic)
        )
        return GroupStanding(group, members, committed, bounds)

    @route(
        "GET",
        "/api/v1/groups/{group}",
        needs(describe(GROUP, "{group}")).showing(describe(TOPIC)),
        Contract("Look at a group and its lag", "groups", {200: ShownGroup}),
    )
    async def _describe(self, request: Request) -> Answer:
        group, members, committed, bounds = await self.standing(request)
        rows = [_row(tp, committed.get(tp), bounds.get(tp)) for tp in sorted({*committed, *bounds})]
        return answer(
            ShownGroup(
                **asdict(_summary(group)),
                lag=sum(row.lag or 0 for row in rows),
                oldest_unread_ms=await self._oldest_unread(rows),
                members=members,
                partitions=rows,
            )
        )

    async def _oldest_unread(self, rows: list[GroupPartition]) -> int | None:
        """When the oldest message that the group has not read was written: its lag in time."""
        behind = sorted((row for row in rows if row.lag), key=lambda row: -(row.lag or 0))[:MAX_AGES]
        found: list[int] = []
        for row in behind:
            try:
                tp = TopicPartition(row.topic, row.partition)
                chunk = await self._reader.read(tp, row.committed_offset or 0, 1)
            except HeadraceError:
                continue
            found += [record.timestamp for record in chunk.records[:1]]
        return min(found, default=None)

    async def _members(self, group: FoundGroup) -> list[ShownMember]:
        name = group.group_id
        if group.group_type.lower() == "consumer":
            request = ConsumerGroupDescribeRequest([name])
            (described,) = (await self._ask(name, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request)).groups
            return [
                _member(
                    member,
                    member.instance_id,
                    [(entry.topic_name, entry.partitions) for entry in member.assignment.topic_partitions],
                )
                for member in described.members
            ]
        if group.group_type.lower() == "share":
            return []
        (classic,) = (await self._ask(name, ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest([name]))).groups
        members = []
        for member in classic.members:
            owned = parse_assignment(bytes(member.member_assignment)) or ()
            members.append(
                _member(member, member.group_instance_id, [(topic, list(rows)) for topic, rows in owned])
            )
        return members

    async def _committed(self, name: str) -> dict[TopicPartition, int]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None)])
        response = await self._ask(name, ApiKey.OFFSET_FETCH, 8, request)
        (found,) = response.groups
        if found.error_code:
            raise HeadraceError(ErrorKind(found.error_code), f'the offsets of "{name}" can\'t be read now')
        return {
            TopicPartition(topic.name, row.partition_index): row.committed_offset
            for topic in found.topics
            for row in topic.partitions
            if row.committed_offset >= 0
        }

    async def stable_ends(self, standing: GroupStanding) -> dict[TopicPartition, int]:
        """As far as a reader of committed records gets now."""
        return {
            tp: bounds.end for tp, bounds in (await self._bounds(standing.bounds, READ_COMMITTED)).items()
        }

    async def _bounds(
        self, places: Iterable[TopicPartition], isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, OffsetBounds]:
        wanted = list(places)
        asked = (self._reader.bounds(tp, isolation) for tp in wanted)
        found = await asyncio.gather(*asked, return_exceptions=True)
        return {
            tp: bounds for tp, bounds in zip(wanted, found, strict=True) if isinstance(bounds, OffsetBounds)
        }

    # -- changes -------------------------------------------------------------------------------------------------------

    @route(
        "POST",
        "/api/v1/groups/{group}/seek",
        needs(read(GROUP, "{group}")).showing(read(TOPIC)),
        Contract(
            "Move a group's offsets",
            "groups",
            {200: SeekResult},
            "Only while it has no members; `dry_run` shows what would happen.",
            body=(Seek,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _seek(self, request: Request) -> Answer:
        name = request.params["group"]
        wanted = body_of(request, Seek)
        before = await self._committed(name)
        if request.access is not None:
            before = _readable(request.access, wanted, before)
        targets = await self._targets(wanted, before)
        if not wanted.dry_run:
            await self._commit(name, targets)
        rows = [
            Sought(topic=tp.topic, partition=tp.partition, from_offset=before.get(tp), to_offset=offset)
            for tp, offset in targets.items()
        ]
        return answer(SeekResult(group=name, dry_run=wanted.dry_run, partitions=rows))

    async def _targets(self, wanted: Seek, before: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        if wanted.offsets is not None:
            if wanted.to is not None or wanted.topic is not None:
                raise invalid("give either offsets, or to (and perhaps a topic)")
            exact = {TopicPartition(one.topic, one.partition): one.offset for one in wanted.offsets}
            bounds = await self._bounds(exact)
            for tp in exact:
                self._reader.partitions(*tp)
            return {
                tp: min(max(offset, bounds[tp].start), bounds[tp].end)
                for tp, offset in exact.items()
                if tp in bounds
            }
        if wanted.to is None:
            raise invalid(
                "say where to: start, end, an offset, -N from the end, +N from where it is, or @ and a time"
            )
        try:
            to = parse_target(wanted.to, self._clock.wall_ms())
        except ValueError as problem:
            raise invalid(str(problem)) from None
        if wanted.topic is not None:
            topics = [wanted.topic]
        else:
            # One that is gone can't be moved on; what was committed for it is still there.
            topics = sorted({tp.topic for tp in before if self._image.topic(tp.topic) is not None})
        if not topics:
            raise HeadraceError(
                ErrorKind.GROUP_ID_NOT_FOUND,
                "this group has committed nothing",
                "Say where it should start, with a topic.",
            )
        chosen = -1 if wanted.partition is None else wanted.partition
        places = [
            TopicPartition(topic, number)
            for topic in topics
            for number in self._reader.partitions(topic, chosen)
        ]
        found = await asyncio.gather(*(self._target(tp, to, before.get(tp)) for tp in places))
        return dict(zip(places, found, strict=True))

    async def _target(self, tp: TopicPartition, to: Position, committed: int | None) -> int:
        start, end = await self._reader.bounds(tp, READ_UNCOMMITTED)
        at_time = (
            await self._reader.offset_for_time(tp, to.value, READ_UNCOMMITTED)
            if to.anchor is Anchor.SINCE
            else None
        )
        return to.offset(start, end, committed=committed, at_time=at_time)

    async def _commit(self, name: str, targets: dict[TopicPartition, int]) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for tp, offset in targets.items():
            row = OffsetCommitRequestPartition(tp.partition, offset, -1, "")
            topics.setdefault(tp.topic, []).append(row)
        request = OffsetCommitRequest(
            name, -1, "", topics=[OffsetCommitRequestTopic(topic, topic_id=b"\0" * 16, partitions=rows) for topic, rows in topics.items()]
        )  # fmt: skip
        response = await self._ask(name, ApiKey.OFFSET_COMMIT, 7, request)
        for topic in response.topics:
            for row in topic.partitions:
                if row.error_code:
                    kind = ErrorKind(row.error_code)
                    hint = "A group can be moved while it has no members: stop its consumers first."
                    raise HeadraceError(kind, f"{topic.name}-{row.partition_index} was not moved", hint)

    @route(
        "DELETE",
        "/api/v1/groups/{group}",
        needs(delete(GROUP, "{group}")),
        Contract(
            "Delete a group", "groups", {204: None}, "Only while it has no members.", problems=CHANGE_PROBLEMS
        ),
    )
    async def _delete(self, request: Request) -> Answer:
        name = request.params["group"]
        await self._known(name)
        response = await self._ask(name, ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest([name]))
        (result,) = response.results
        if result.error_code:
            raise HeadraceError(ErrorKind(result.error_code), f'group "{name}" was not deleted')
        return Response(b"", 204, "")


def _readable(access: Access, wanted: Seek, before: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Of what a group has committed, what the caller may read. What is named and may not be read is not there (A44)."""
    named = [one.topic for one in wanted.offsets or ()] + ([wanted.topic] if wanted.topic is not None else [])
    for topic in named:
        if access.refuses(Operation.READ, TOPIC, topic):
            raise HeadraceError(
                ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
                f'there is no "{topic}", or you do not have access to it',
            )
    return {
        tp: offset for tp, offset in before.items() if not access.refuses(Operation.READ, TOPIC, tp.topic)
    }


def state_name(kafkas: str) -> str:
    """PreparingRebalance as all of REST and the CLI write states: preparing-rebalance (F54)."""
    return _WORD.sub("-", kafkas).lower()


def _add_numbers(row: ListedGroup, request: Request, now: GroupNow | None) -> None:
    """As its coordinator sampled them; None where that broker did not answer."""
    row.lag = None if now is None else now.lag
    row.members = None if now is None else now.members
    row.out_per_s = None if now is None else round(now.out_per_s, 2)
    row.topics = None if now is None else sorted(topic for topic in now.topics if request.sees(TOPIC, topic))
    row.last_commit_ms = None if now is None else now.moved_ms or None


def _summary(group: FoundGroup) -> GroupSummary:
    return GroupSummary(
        name=group.group_id,
        state=state_name(group.group_state),
        type=group.group_type.lower() or "classic",
        protocol_type=group.protocol_type,
    )


class _Member(Protocol):
    """Of a group of either protocol."""

    member_id: str
    client_id: str
    client_host: str


def _member(member: _Member, instance_id: str | None, owned: list[tuple[str, list[int]]]) -> ShownMember:
    return ShownMember(
        member_id=member.member_id,
        instance_id=instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=[Owned(topic=topic, partitions=partitions) for topic, partitions in owned],
    )


def _row(tp: TopicPartition, committed: int | None, bounds: OffsetBounds | None) -> GroupPartition:
    lag = None
    if committed is not None and bounds is not None:
        lag = max(0, bounds.end - max(committed, bounds.start))
    return GroupPartition(
        topic=tp.topic,
        partition=tp.partition,
        committed_offset=committed,
        end_offset=bounds.end if bounds is not None else None,
        lag=lag,
    )
