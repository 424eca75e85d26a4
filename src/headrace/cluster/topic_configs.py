"""Machine: the table of every topic config, and TopicConfig, the typed values the rest of the broker reads.

Invariant: the table and the fields of TopicConfig match one to one (a test holds it), and TopicConfig is computed
once per change, never on the produce or fetch path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from headrace.cluster.config_keys import (
    MAX_INT,
    MAX_LONG,
    ConfigKey,
    ConfigType,
    Importance,
    Synonym,
    at_least,
    between,
    masks,
    one_of,
    subset_of,
    throttled_replicas,
)
from headrace.core.limits import DEFAULT_MAX_MESSAGE_BYTES

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_STRING, _DOUBLE, _LIST = ConfigType.STRING, ConfigType.DOUBLE, ConfigType.LIST

DAY_MS: Final = 86_400_000
WEEK_MS: Final = 7 * DAY_MS


def _broker(*names: str) -> tuple[Synonym, ...]:
    return tuple(Synonym(name) for name in names)


_KEYS = (
    ConfigKey(
        "cleanup.policy", _LIST, "delete",
        "What happens to old data: delete drops whole segments by age and size, compact keeps the newest record of each "
        "key, both together do both; empty, nothing is ever taken away.",
        subset_of("delete", "compact"), _broker("log.cleanup.policy"), Importance.HIGH,
    ),
    ConfigKey(
        "compression.gzip.level", _INT, "-1", "Level used if the broker has to compress with gzip; -1 is the codec's own default.",
        lambda value: None if value == -1 or 1 <= value <= 9 else "must be -1 or from 1 to 9",  # type: ignore[operator]
        _broker("compression.gzip.level"),
    ),
    ConfigKey(
        "compression.lz4.level", _INT, "9", "Level used if the broker has to compress with lz4; 9 is its quick mode, as in Kafka.",
        between(1, 17), _broker("compression.lz4.level"),
    ),
    ConfigKey(
        "compression.type", _STRING, "producer",
        "The codec of stored batches. producer keeps the bytes exactly as they were sent.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), _broker("compression.type"),
    ),
    ConfigKey(
        "compression.zstd.level", _INT, "3", "Level used if the broker has to compress with zstd.",
        between(-131072, 22), _broker("compression.zstd.level"),
    ),
    ConfigKey(
        "delete.retention.ms", _LONG, str(DAY_MS),
        "How long compaction keeps a delete marker after it has first seen it, so that slow readers learn of the deletion.",
        at_least(0), _broker("log.cleaner.delete.retention.ms"),
    ),
    ConfigKey(
        "file.delete.delay.ms", _LONG, "60000",
        "Time between taking a segment out of the log and deleting its files, so that readers can finish.",
        at_least(0), _broker("log.segment.delete.delay.ms"),
    ),
    ConfigKey(
        "flush.messages", _LONG, str(MAX_LONG),
        "With headrace.flush=interval: sync after this many messages.",
        at_least(1), _broker("log.flush.interval.messages"),
    ),
    ConfigKey(
        "flush.ms", _LONG, "1000",
        "With headrace.flush=interval: sync at least this often.",
        at_least(1), _broker("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    ConfigKey(
        "follower.replication.throttled.replicas", _LIST, "",
        "Replicas whose catching up is limited by follower.replication.throttled.rate: partition:broker pairs, or * for all.",
        throttled_replicas,
    ),
    ConfigKey(
        "headrace.console.mask", _LIST, "",
        "Fields that nobody sees who looks at messages over REST or in the console without the right to alter this topic's configs: "
        "key, value, value.FIELD, header.NAME. Consumers get what was written.",
        masks, aliases=("console.mask",),
    ),
    ConfigKey(
        "headrace.delay.enabled", _BOOLEAN, "false",
        "Look into batches for the headrace-delay-ms and headrace-deliver-at headers, so that any Kafka client can delay a message.",
        aliases=("delay.enabled",),
    ),
    ConfigKey(
        "headrace.flush", _STRING, "commit",
        "When acknowledged data is on disk. commit: before the answer (one sync serves all that wait). interval: every "
        "flush.ms. os: when the kernel likes; a power cut can then lose acknowledged data.",
        one_of("commit", "interval", "os"), _broker("headrace.flush"), Importance.HIGH, aliases=("flush",),
    ),
    ConfigKey(
        "headrace.key.schema.validation", _BOOLEAN, "false",
        "Refuse records whose key does not name a schema that the subject TOPIC-key of the schema registry has. Every batch is opened for it.",
        aliases=("key.schema.validation",),
    ),
    ConfigKey(
        "headrace.retention", _STRING, "time",
        "time: retention.ms and retention.bytes decide. delivered: also drop what every subscription has acknowledged.",
        one_of("time", "delivered"), aliases=("retention",),
    ),
    ConfigKey(
        "headrace.storage", _STRING, "disk",
        "disk: segments on disk. memory: nothing is written and a restart of the broker empties its replica.",
        one_of("disk", "memory"), _broker("headrace.storage"), Importance.HIGH, aliases=("storage",),
    ),
    ConfigKey(
        "headrace.value.schema.validation", _BOOLEAN, "false",
        "Refuse records whose value does not name a schema that the subject TOPIC-value of the schema registry has. Every batch is opened for it.",
        aliases=("value.schema.validation",),
    ),
    ConfigKey(
        "headrace.view.source", _STRING, "",
        "The topic that this topic is a view of. Given when a view is created; a view stores nothing of its own.",
        aliases=("view.source",),
    ),
    ConfigKey(
        "headrace.view.where", _STRING, "",
        "Which records of its source a view shows, in the filter language. Given when a view is created.",
        aliases=("view.where",),
    ),
    ConfigKey(
        "index.interval.bytes", _INT, "4096",
        "Bytes of log between two entries of the sparse offset index. Smaller finds faster and takes more memory.",
        at_least(0), _broker("log.index.interval.bytes"),
    ),
    ConfigKey(
        "leader.replication.throttled.replicas", _LIST, "",
        "Replicas whose reads from the leader are limited by leader.replication.throttled.rate: partition:broker pairs, or * for all.",
        throttled_replicas,
    ),
    ConfigKey(
        "local.retention.bytes", _LONG, "-2",
        "Would limit local data under tiered storage, which Headrace does not have; -2 means retention.bytes.",
        at_least(-2), _broker("log.local.retention.bytes"), fixed=True,
    ),
    ConfigKey(
        "local.retention.ms", _LONG, "-2",
        "Would limit local data under tiered storage, which Headrace does not have; -2 means retention.ms.",
        at_least(-2), _broker("log.local.retention.ms"), fixed=True,
    ),
    ConfigKey(
        "max.compaction.lag.ms", _LONG, str(MAX_LONG),
        "The longest time a record may wait until compaction has looked at it.",
        at_least(1), _broker("log.cleaner.max.compaction.lag.ms"),
    ),
    ConfigKey(
        "max.message.bytes", _INT, str(DEFAULT_MAX_MESSAGE_BYTES),
        "The largest record batch that is accepted, measured as sent (compressed).",
        at_least(0), _broker("message.max.bytes"), Importance.HIGH,
    ),
    ConfigKey(
        "message.timestamp.after.max.ms", _LONG, "3600000",
        "How far a record's timestamp may lie in the future. Wrong clocks would otherwise keep data for ever.",
        at_least(0), _broker("log.message.timestamp.after.max.ms"),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms", _LONG, str(MAX_LONG),
        "How far a record's timestamp may lie in the past.",
        at_least(0), _broker("log.message.timestamp.before.max.ms"),
    ),
    ConfigKey(
        "message.timestamp.type", _STRING, "CreateTime",
        "Whose clock stamps records: CreateTime the producer's, LogAppendTime the broker's.",
        one_of("CreateTime", "LogAppendTime"), _broker("log.message.timestamp.type"),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio", _DOUBLE, "0.5",
        "Compact when this share of the log has not been compacted yet.",
        between(0, 1), _broker("log.cleaner.min.cleanable.ratio"),
    ),
    ConfigKey(
        "min.compaction.lag.ms", _LONG, "0",
        "A record is not compacted away before it is this old.",
        at_least(0), _broker("log.cleaner.min.compaction.lag.ms"),
    ),
    ConfigKey(
        "min.insync.racks", _INT, "1",
        "With acks=all: in how many racks (data centres) a record must be before it is acknowledged.",
        between(1, 32), _broker("min.insync.racks"), Importance.HIGH,
    ),
    ConfigKey(
        "min.insync.replicas", _INT, "1",
        "With acks=all: how many replicas, the leader included, must be in sync for a write to be taken at all.",
        between(1, 32), _broker("min.insync.replicas"), Importance.HIGH,
    ),
    ConfigKey(
        "preallocate", _BOOLEAN, "false", "Would reserve the disk space of a segment when it is created; recovery goes by the sizes of files.",
        synonyms=_broker("log.preallocate"), fixed=True,
    ),
    ConfigKey(
        "record.validation", _STRING, "on",
        "Whether the records of a batch are looked at before it is stored. off: only its header and checksum are, which costs "
        "less, and a client may store a batch that no reader can open.",
        one_of("on", "off"),
    ),
    ConfigKey(
        "remote.copy.disable", _BOOLEAN, "false", "Part of tiered storage, which Headrace does not have.", fixed=True,
    ),
    ConfigKey(
        "remote.log.delete.on.disable", _BOOLEAN, "false", "Part of tiered storage, which Headrace does not have.", fixed=True,
    ),
    ConfigKey(
        "remote.storage.enable", _BOOLEAN, "false", "Tiered storage, which Headrace does not have.", fixed=True,
    ),
    ConfigKey(
        "retention.bytes", _LONG, "-1",
        "Keep at most this many bytes per partition; -1 is no limit. Whole segments are dropped, oldest first.",
        at_least(-1), _broker("log.retention.bytes"), Importance.HIGH,
    ),
    ConfigKey(
        "retention.ms", _LONG, str(WEEK_MS),
        "Keep data for this long; -1 is for ever. Whole segments are dropped, oldest first.",
        at_least(-1),
        (Synonym("log.retention.ms"), Synonym("log.retention.minutes", 60_000), Synonym("log.retention.hours", 3_600_000)),
        Importance.HIGH,
    ),
    ConfigKey(
        "segment.bytes", _INT, str(1 << 30), "Start a new segment file at this size.",
        between(14, MAX_INT), _broker("log.segment.bytes"),
    ),
    ConfigKey(
        "segment.index.bytes", _INT, "10485760", "The largest an index of a segment may grow; a full index starts a new segment.",
        at_least(4), _broker("log.index.size.max.bytes"),
    ),
    ConfigKey(
        "segment.jitter.ms", _LONG, "0", "Start segments up to this much earlier, at random, so that not all partitions roll at once.",
        at_least(0), (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", 3_600_000)),
    ),
    ConfigKey(
        "segment.ms", _LONG, str(WEEK_MS), "Start a new segment file after this time even if it is not full.",
        at_least(1), (Synonym("log.roll.ms"), Synonym("log.roll.hours", 3_600_000)),
    ),
    ConfigKey(
        "unclean.leader.election.enable", _BOOLEAN, "false",
        "Let a replica that is behind take over when no complete one is left. Loses acknowledged data; off unless you ask for it.",
        synonyms=_broker("unclean.leader.election.enable"), importance=Importance.HIGH,
    ),
)  # fmt: skip

TOPIC_CONFIGS: Final[dict[str, ConfigKey]] = {key.name: key for key in _KEYS}
TOPIC_CONFIG_ALIASES: Final[dict[str, str]] = {alias: key.name for key in _KEYS for alias in key.aliases}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The effective configs of one topic, parsed. Field names are config names with `_` for `.`, `headrace.` left out."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: Literal["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"] = "producer"
    compression_zstd_level: int = 3
    console_mask: tuple[str, ...] = ()
    delay_enabled: bool = False
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush: Literal["commit", "interval", "os"] = "commit"
    flush_messages: int = MAX_LONG
    flush_ms: int = 1_000
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    key_schema_validation: bool = False
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = MAX_LONG
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_racks: int = 1
    min_insync_replicas: int = 1
    preallocate: bool = False
    record_validation: Literal["on", "off"] = "on"
    remote_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention: Literal["time", "delivered"] = "time"
    retention_bytes: int = -1
    retention_ms: int = WEEK_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = WEEK_MS
    storage: Literal["disk", "memory"] = "disk"
    unclean_leader_election_enable: bool = False
    value_schema_validation: bool = False
    view_source: str = ""
    view_where: str = ""

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def opens_batches(self) -> bool:
        """Whether the topic has made a promise for which every produced batch is opened, which costs per record."""
        return (
            "compact" in self.cleanup_policy
            or self.compression_type != "producer"
            or self.delay_enabled
            or self.validates_schemas
        )

    @property
    def validates_schemas(self) -> bool:
        return self.value_schema_validation or self.key_schema_validation

    @property
    def validates_records(self) -> bool:
        """A5: nothing is stored that readers can't read."""
        return self.record_validation == "on"

    @property
    def deletes_by_retention(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def is_memory(self) -> bool:
        return self.storage == "memory"


def field_name(config_name: str) -> str:
    return config_name.removeprefix("headrace.").replace(".", "_")
