"""Codec: topics, groups and the cluster."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.http.contract import Param, Schema


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
    unknown_partitions: int | msgspec.UnsetType = msgspec.UNSET
    """Without a leader: what lies there is not in these numbers."""
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


class GroupPartition(msgspec.Struct, kw_only=True):
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
    partitions: list[GroupPartition]


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


class GroupExplanation(msgspec.Struct, kw_only=True):
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
    partitions: int
    """That have a replica here."""
    partitions_led: int
    in_per_s: float | None
    """Null: it does not answer."""
    in_bytes_per_s: int | None
    out_bytes_per_s: int | None
    free_bytes: int | None
    cpu: float | None
    """Of one core, in the last second; a broker uses one."""
    loop_lag_ms: int | None
    """The longest that its event loop was late in the last ten seconds."""
    sync_p99_ms: float | None
    """Of the last minute, at most so long; null too when nothing was synced."""
    coordinator: str | None
    """embedded or etcd."""
    coordinator_silence_ms: int | None
    """Since when it has not answered this broker; 0 while it does."""
    version: str | None
    began_ms: int | None


class TroubledPartition(msgspec.Struct, kw_only=True):
    state: Literal["no-leader", "behind", "moving"]
    topic: str
    partition: int
    replicas: list[int]
    leader: int
    in_sync: list[int]
    removing: list[int]
    adding: list[int]


class TroubledPage(msgspec.Struct, kw_only=True):
    items: list[TroubledPartition]
    next_cursor: str | None
    total: int


class AwayBroker(msgspec.Struct, kw_only=True):
    id: int
    partitions: int
    """That have a replica there."""
    only_there: int
    """Of these, those without a leader meanwhile."""


class ShownCluster(msgspec.Struct, kw_only=True):
    cluster_id: str
    answered_by: int
    controller: int | None
    brokers: list[ShownBroker]
    away: list[AwayBroker]
    """Brokers that hold partitions and are not there."""
    topics: int
    under_replicated_partitions: int
    offline_partitions: int


SORTED: Schema = {"type": "string", "pattern": "^-?[a-z_]{1,20}$", "examples": ["name", "-in"]}
IF_MATCH = Param("If-Match", "the ETag of what you looked at; changed since, it is refused (412)")
