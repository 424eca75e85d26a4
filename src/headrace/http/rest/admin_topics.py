"""Door: topics themselves: list, create, look at, configure, grow, trim, delete.

GET|POST           /api/v1/topics
GET|PATCH|DELETE   /api/v1/topics/{topic}             PATCH {"configs": {"retention.ms": "…"|null}, "partitions": 6}; If-Match
POST               /api/v1/topics/{topic}/trim        {"partition": 0, "before_offset": 42}: forget what is below
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from headrace.broker.history import Lately, TopicNow
from headrace.broker.peers import Peers
from headrace.broker.topic_admin import TopicAdmin
from headrace.cluster.configs import Alteration, AlterOp, describe_topic
from headrace.cluster.image import ClusterImage
from headrace.cluster.rows import Topic
from headrace.cluster.topics import DEFAULT, CreateTopic
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.ids import TopicPartition, is_internal, topic_name_problem
from headrace.http.contract import FLAG, Contract, Param
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request, Response
from headrace.http.problem import problem
from headrace.http.rest.forms.administration import (
    IF_MATCH,
    SORTED,
    ListedTopic,
    ShownConfig,
    ShownPartition,
    ShownTopic,
    TopicPage,
    TopicSummary,
    Trimmed,
)
from headrace.http.rest.forms.queues import CHANGE_PROBLEMS, PAGE
from headrace.http.rest.paging import SortKeys, page, sorted_window
from headrace.http.rest.reading import answer, body_of
from headrace.http.rest.records import OffsetBounds, RecordReader
from headrace.http.whole import Whole
from headrace.security.rights import (
    CLUSTER,
    OWN,
    TOPIC,
    alter,
    alter_configs,
    create,
    delete,
    describe,
    describe_configs,
    either,
    needs,
)
from headrace.wire.api import ApiKey
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

Count = Annotated[int, Meta(ge=1, le=1_000)]
"""Of partitions. A request has a deadline, and ten thousand of them take a small machine longer; Kafka's admin clients may."""
Configs = dict[str, str | None]
TRIM_VERSION = 2


class NewTopic(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=249)]
    partitions: Count | None = None
    """None: as the broker is configured."""
    replication_factor: Annotated[int, Meta(ge=1, le=100)] | None = None
    configs: Configs = {}


class TopicChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    configs: Configs = {}
    """Null takes a config back to its default."""
    partitions: Count | None = None


class Trim(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    partition: Annotated[int, Meta(ge=0, le=1_000_000)]
    before_offset: Annotated[int, Meta(ge=-1, le=2**62)]
    """-1: everything that is there."""


class AdminTopicDoor(Door):
    def __init__(
        self,
        image: ClusterImage,
        topics: TopicAdmin,
        peers: Peers,
        reader: RecordReader,
        whole: Whole,
        is_queue: Callable[[str], bool],
    ) -> None:
        self._whole = whole
        self._is_queue = is_queue
        self._image = image
        self._topics = topics
        self._peers = peers
        self._reader = reader

    def _topic(self, request: Request) -> Topic:
        name = request.params["topic"]
        topic = self._image.topic(name)
        if topic is None:
            raise Unknown(
                ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
                f'there is no topic called "{name}"',
                "GET /api/v1/topics lists them.",
            )
        return topic

    def _users_topic(self, request: Request) -> Topic:
        """The broker's own topics are its memory: nobody changes them from outside (X17)."""
        topic = self._topic(request)
        _refuse_internal(topic.name)
        return topic

    # -- what there is -------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/api/v1/topics",
        OWN.showing(describe(TOPIC)),
        Contract(
            "List topics",
            "topics",
            {200: TopicPage},
            query=(
                Param("internal", "the broker's own, too", FLAG),
                Param("with", "numbers of the shown ones: rates, sizes, readers; several with commas"),
                Param(
                    "sort",
                    "name, in, out, messages, bytes, last_write or partitions; - before it turns it round",
                    SORTED,
                ),
                *PAGE,
            ),
            problems=(400,),
        ),
    )
    async def _list(self, request: Request) -> Answer:
        image = self._image
        internal = "internal" in request.query
        wanted = [word for word in request.query.get("with", "").split(",") if word]
        # Names alone are known here; numbers are those of the whole cluster.
        lately = await self._whole.look() if wanted or "sort" in request.query else Lately()
        names, cursor, total = sorted_window(
            request,
            (
                name
                for name, topic in image.topics.items()
                if (internal or not topic.internal) and request.sees(TOPIC, name)
            ),
            self._sort_keys(lately),
        )
        found = [topic for name in names if (topic := image.topic(name)) is not None]
        rows = [ListedTopic(**asdict(_summary(topic))) for topic in found]
        for topic, row in zip(found, rows, strict=True):
            self._add_numbers(row, topic, wanted, lately)
        return page(request, rows, cursor, total)

    def _sort_keys(self, lately: Lately) -> SortKeys:
        nothing = TopicNow()
        return {
            "in": lambda name: lately.topics.get(name, nothing).in_per_s,
            "out": lambda name: lately.topics.get(name, nothing).out_bytes_per_s,
            "messages": lambda name: lately.topics.get(name, nothing).messages,
            "bytes": lambda name: lately.topics.get(name, nothing).size_bytes,
            "last_write": lambda name: lately.topics.get(name, nothing).last_write_ms,
            "partitions": lambda name: len(self._image.topics[name].partitions),
        }

    def _add_numbers(self, row: ListedTopic, topic: Topic, wanted: list[str], lately: Lately) -> None:
        """As the brokers that lead its partitions sampled them."""
        now = lately.topics.get(topic.name, TopicNow())
        if "rates" in wanted:
            row.in_per_s = round(now.in_per_s, 2)
            row.in_bytes_per_s = round(now.in_bytes_per_s)
            row.out_bytes_per_s = round(now.out_bytes_per_s)
            row.last_write_ms = now.last_write_ms or None
        if "sizes" in wanted:
            row.messages, row.bytes = now.messages, now.size_bytes
            row.unknown_partitions = sum(state is not None and state.leader < 0 for state in topic.partitions)
        if "readers" in wanted:
            row.groups = sum(topic.name in group.topics for group in lately.groups.values())
            row.kind = self._kind(topic)

    def _kind(self, topic: Topic) -> str:
        if topic.internal:
            return "internal"
        if topic.view is not None:
            return "view"
        if self._is_queue(topic.name):
            return "queue"
        return "delayed" if topic.config.delay_enabled else "topic"

    @route(
        "GET",
        "/api/v1/topics/{topic}",
        needs(describe(TOPIC, "{topic}")).showing(describe_configs(TOPIC)),
        Contract("Look at a topic", "topics", {200: ShownTopic}),
    )
    async def _describe(self, request: Request) -> Answer:
        topic = self._topic(request)
        return answer(await self._shown(topic), headers=(("etag", _etag(topic)),))

    async def _shown(self, topic: Topic) -> ShownTopic:
        places = [TopicPartition(topic.name, number) for number in range(len(topic.partitions))]
        bounds = await asyncio.gather(*(self._bounds(tp) for tp in places))
        return ShownTopic(
            **asdict(_summary(topic)),
            partitions=[
                ShownPartition(
                    partition=tp.partition,
                    leader=state.leader if state is not None else -1,
                    replicas=list(state.replicas) if state is not None else [],
                    isr=list(state.isr) if state is not None else [],
                    start_offset=bound.start if bound is not None else None,
                    end_offset=bound.end if bound is not None else None,
                )
                for tp, state, bound in zip(places, topic.partitions, bounds, strict=True)
            ],
            configs={
                entry.name: ShownConfig(
                    value=entry.value, source=entry.source.name.lower(), read_only=entry.read_only
                )
                for entry in describe_topic(topic.configs, self._image.layers())
            },
        )

    async def _bounds(self, tp: TopicPartition) -> OffsetBounds | None:
        """None: its leader can't say right now. The rest of the topic can still be shown."""
        try:
            return await self._reader.bounds(tp)
        except HeadraceError:
            return None

    # -- changes -------------------------------------------------------------------------------------------------------

    @route(
        "POST",
        "/api/v1/topics",
        needs(either(create(CLUSTER), create(TOPIC, "body.name"))),
        Contract("Create a topic", "topics", {201: ShownTopic}, body=(NewTopic,), problems=(400, 409)),
    )
    async def _create(self, request: Request) -> Answer:
        wanted = body_of(request, NewTopic)
        trouble = topic_name_problem(wanted.name)
        if trouble is not None:
            raise HeadraceError(ErrorKind.INVALID_TOPIC_EXCEPTION, trouble)
        _refuse_internal(wanted.name)
        await self._topics.create(
            CreateTopic(
                wanted.name,
                DEFAULT if wanted.partitions is None else wanted.partitions,
                DEFAULT if wanted.replication_factor is None else wanted.replication_factor,
                configs=wanted.configs,
            )
        )
        topic = self._image.topic(wanted.name)
        assert topic is not None
        location = ("location", f"/api/v1/topics/{wanted.name}")
        return answer(await self._shown(topic), 201, (location, ("etag", _etag(topic))))

    @route(
        "PATCH",
        "/api/v1/topics/{topic}",
        needs(alter_configs(TOPIC, "{topic}"), alter(TOPIC, "{topic}")),
        Contract(
            "Configure or grow a topic",
            "topics",
            {200: ShownTopic},
            body=(TopicChange,),
            headers=(IF_MATCH,),
            problems=(*CHANGE_PROBLEMS, 412),
        ),
    )
    async def _change(self, request: Request) -> Answer:
        topic = self._users_topic(request)
        change = body_of(request, TopicChange)
        expected = request.header(b"if-match")
        if expected not in ("", "*", _etag(topic)):
            return problem(
                412,
                "PRECONDITION_FAILED",
                "the topic has been changed since you looked at it",
                hint="GET it again, and send its new ETag as If-Match",
                request_id=request.request_id,
                instance=request.path,
            )
        admin = self._topics
        if change.partitions is not None and change.partitions != len(topic.partitions):
            await admin.grow(topic.name, change.partitions)
        if change.configs:
            alterations = [
                Alteration(name, AlterOp.DELETE if value is None else AlterOp.SET, value)
                for name, value in change.configs.items()
            ]
            await admin.alter_configs(topic.name, alterations, replace=False)
        return await self._describe(request)

    @route(
        "DELETE",
        "/api/v1/topics/{topic}",
        needs(delete(TOPIC, "{topic}")),
        Contract("Delete a topic", "topics", {204: None}),
    )
    async def _delete(self, request: Request) -> Answer:
        await self._topics.delete(self._users_topic(request).name)
        return Response(b"", 204, "")

    @route(
        "POST",
        "/api/v1/topics/{topic}/trim",
        needs(delete(TOPIC, "{topic}")),
        Contract("Forget what is below an offset", "topics", {200: Trimmed}, body=(Trim,)),
    )
    async def _trim(self, request: Request) -> Answer:
        topic = self._users_topic(request)
        wanted = body_of(request, Trim)
        tp = TopicPartition(topic.name, wanted.partition)
        self._reader.partitions(*tp)
        leader = self._image.leader(*tp)
        if leader is None:
            raise HeadraceError(ErrorKind.LEADER_NOT_AVAILABLE, f"{tp} has no leader right now")
        entry = DeleteRecordsTopic(
            topic.name, [DeleteRecordsPartition(wanted.partition, wanted.before_offset)]
        )
        response: DeleteRecordsResponse = await self._peers.call(
            leader.id, ApiKey.DELETE_RECORDS, TRIM_VERSION, DeleteRecordsRequest([entry], 10_000), 15.0
        )
        row = response.topics[0].partitions[0]
        if row.error_code:
            raise HeadraceError(ErrorKind(row.error_code), f"{tp} can't be trimmed to {wanted.before_offset}")
        return answer(Trimmed(topic=topic.name, partition=wanted.partition, start_offset=row.low_watermark))


def _refuse_internal(name: str) -> None:
    if is_internal(name):
        raise HeadraceError(ErrorKind.INVALID_TOPIC_EXCEPTION, f"{name} is one of the broker's own")


def _summary(topic: Topic) -> TopicSummary:
    replicas = [len(state.replicas) for state in topic.partitions if state is not None]
    return TopicSummary(
        name=topic.name,
        id=topic.id.hex(),
        partition_count=len(topic.partitions),
        replication_factor=max(replicas, default=0),
        internal=topic.internal,
        overrides=dict(topic.configs),
    )


def _etag(topic: Topic) -> str:
    text = f"{topic.id.hex()} {len(topic.partitions)} {sorted(topic.configs.items())}"
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:16]}"'
