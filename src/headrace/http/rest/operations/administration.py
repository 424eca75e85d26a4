"""Codec: topics, groups and the cluster."""

from __future__ import annotations

import msgspec

from headrace.http.openapi import FLAG, Operation, Operations, Param, Schema
from headrace.http.rest.admin_topics import NewTopic, TopicChange, Trim
from headrace.http.rest.groups import Seek
from headrace.http.rest.operations.queues import CHANGE_PROBLEMS, PAGE


class TopicSummary(msgspec.Struct, kw_only=True):
    name: str
    id: str
    partition_count: int
    replication_factor: int
    internal: bool
    overrides: dict[str, str]
    """Configs that differ from the broker's."""


class ListedTopic(TopicSummary, kw_only=True):
    """What `with` asks for is this broker's: of the partitions that it leads, and of the groups that it coordinates."""

    in_per_s: float | msgspec.UnsetType = msgspec.UNSET
    in_bytes_per_s: float | msgspec.UnsetType = msgspec.UNSET
    out_bytes_per_s: float | msgspec.UnsetType = msgspec.UNSET
    last_write_ms: int | msgspec.UnsetType | None = msgspec.UNSET
    """Null: not since the broker began."""
    messages: int | msgspec.UnsetType = msgspec.UNSET
    bytes: int | msgspec.UnsetType = msgspec.UNSET
    groups: int | msgspec.UnsetType = msgspec.UNSET
    kind: str | msgspec.UnsetType = msgspec.UNSET
    """topic, queue, view, delayed or internal."""


class TopicPage(msgspec.Struct, kw_only=True):
    items: list[ListedTopic]
    next_cursor: str | None
    total: int
    """On all pages."""


class ShownPartition(msgspec.Struct, kw_only=True):
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    start_offset: int | None
    end_offset: int | None


class ShownConfig(msgspec.Struct, kw_only=True):
    value: str | None
    source: str
    read_only: bool


class ShownTopic(TopicSummary, kw_only=True):
    partitions: list[ShownPartition]
    configs: dict[str, ShownConfig]


class Trimmed(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    start_offset: int


class GroupSummary(msgspec.Struct, kw_only=True):
    name: str
    state: str
    type: str
    protocol_type: str


class ListedGroup(GroupSummary, kw_only=True):
    """With `with=lag`, of groups that the broker which answers coordinates; null of others."""

    lag: int | msgspec.UnsetType | None = msgspec.UNSET
    members: int | msgspec.UnsetType | None = msgspec.UNSET
    out_per_s: float | msgspec.UnsetType | None = msgspec.UNSET
    topics: list[str] | msgspec.UnsetType | None = msgspec.UNSET
    last_commit_ms: int | msgspec.UnsetType | None = msgspec.UNSET
    """When it last committed something new; null: not since the broker began."""


class GroupPage(msgspec.Struct, kw_only=True):
    items: list[ListedGroup]
    next_cursor: str | None
    total: int


class Owned(msgspec.Struct, kw_only=True):
    topic: str
    partitions: list[int]


class ShownMember(msgspec.Struct, kw_only=True):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[Owned]


class Standing(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    lag: int | None


class ShownGroup(GroupSummary, kw_only=True):
    lag: int
    oldest_unread_ms: int | None
    """When the oldest message that it has not read was written; null when it is not behind."""
    members: list[ShownMember]
    partitions: list[Standing]


class Sought(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    from_offset: int | None
    to_offset: int


class SeekResult(msgspec.Struct, kw_only=True):
    group: str
    dry_run: bool
    partitions: list[Sought]


class Explained(msgspec.Struct, kw_only=True):
    cause: str
    sentence: str
    evidence: str
    next_step: str
    command: str
    since_ms: int | None


class Explanation(msgspec.Struct, kw_only=True):
    group: str
    lag: int
    sentence: str
    findings: list[Explained]
    """The most telling first; empty: nothing is known that would hold it up."""


class ShownBroker(msgspec.Struct, kw_only=True):
    id: int
    kafka: str
    http: str
    rack: str | None
    partitions_led: int


class ShownCluster(msgspec.Struct, kw_only=True):
    cluster_id: str
    answered_by: int
    controller: int | None
    brokers: list[ShownBroker]
    topics: int
    under_replicated_partitions: int
    offline_partitions: int


SORTED: Schema = {"type": "string", "pattern": "^-?[a-z_]{1,20}$", "examples": ["name", "-in"]}
IF_MATCH = Param("If-Match", "the ETag of what you looked at; changed since, it is refused (412)")

OPERATIONS: Operations = {
    ("GET", "/api/v1/topics"): Operation(
        "List topics", "topics", {200: TopicPage},
        query=(
            Param("internal", "the broker's own, too", FLAG),
            Param("with", "numbers of the shown ones: rates, sizes, readers; several with commas"),
            Param("sort", "name, in, out, messages, bytes, last_write or partitions; - before it turns it round", SORTED),
            *PAGE,
        ),
        problems=(400,),
    ),
    ("POST", "/api/v1/topics"): Operation(
        "Create a topic", "topics", {201: ShownTopic}, body=(NewTopic,), problems=(400, 409)
    ),
    ("GET", "/api/v1/topics/{topic}"): Operation("Look at a topic", "topics", {200: ShownTopic}),
    ("PATCH", "/api/v1/topics/{topic}"): Operation(
        "Configure or grow a topic", "topics", {200: ShownTopic}, body=(TopicChange,), headers=(IF_MATCH,),
        problems=(*CHANGE_PROBLEMS, 412),
    ),
    ("DELETE", "/api/v1/topics/{topic}"): Operation("Delete a topic", "topics", {204: None}),
    ("POST", "/api/v1/topics/{topic}/trim"): Operation(
        "Forget what is below an offset", "topics", {200: Trimmed}, body=(Trim,)
    ),
    ("GET", "/api/v1/groups"): Operation(
        "List groups", "groups", {200: GroupPage}, problems=(400,),
        query=(
            Param("with", "lag: how far behind, and how fast"),
            Param("sort", "name, lag, members or out; - before it turns it round", SORTED),
            *PAGE,
        ),
    ),
    ("GET", "/api/v1/groups/{group}/explain"): Operation(
        "Why a group is behind", "groups", {200: Explanation}, "Rules over what the brokers know; no guessing."
    ),
    ("GET", "/api/v1/groups/{group}"): Operation("Look at a group and its lag", "groups", {200: ShownGroup}),
    ("DELETE", "/api/v1/groups/{group}"): Operation(
        "Delete a group", "groups", {204: None}, "Only while it has no members.", problems=CHANGE_PROBLEMS
    ),
    ("POST", "/api/v1/groups/{group}/seek"): Operation(
        "Move a group's offsets", "groups", {200: SeekResult}, "Only while it has no members; `dry_run` shows what would happen.",
        body=(Seek,), problems=CHANGE_PROBLEMS,
    ),
    ("GET", "/api/v1/cluster"): Operation("The cluster in one look", "cluster", {200: ShownCluster}, problems=()),
}  # fmt: skip
