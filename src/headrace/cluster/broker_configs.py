"""Machine: the table of every broker config that people, tools and dashboards ask a Kafka 4 broker for.

Each is declared once and says how it stands (Standing). One that can be set while the broker runs is read through its
declaration (`broker_value(MAX_CONNECTIONS, layers)`), or is the default of a topic config; a house test finds those that
nobody reads. The others can be seen and not set: they show a setting of the node, how the broker is built, or
nothing at all, and say so in their words instead of pretending.
"""

from __future__ import annotations

from typing import Final

from headrace.cluster.config_keys import (
    MAX_INT,
    MAX_LONG,
    Check,
    ConfigKey,
    ConfigStanding,
    ConfigType,
    Importance,
    Scope,
    Synonym,
    at_least,
    between,
)
from headrace.cluster.group_defaults import GROUP_DEFAULTS
from headrace.cluster.topic_configs import TOPIC_CONFIGS
from headrace.core import limits

_BOOLEAN, _INT, _LONG, _SHORT = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.SHORT
_STRING, _DOUBLE, _LIST, _PASSWORD = (
    ConfigType.STRING,
    ConfigType.DOUBLE,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)

_POSITIVE: Final[Check] = at_least(1)
_NOT_NEGATIVE: Final[Check] = at_least(0)
_OR_UNLIMITED: Final[Check] = at_least(-1)

_COORDINATOR = "The coordinator takes the place of a controller quorum."
_PROMETHEUS = "Metrics are served over HTTP for Prometheus."
_ONE_LOOP = "One broker is one event loop; run more brokers to use more cores."
_NOT_SERVED = "SASL, TLS and ACLs are not served yet."


def _settable(
    name: str,
    kind: ConfigType,
    default: str | None,
    words: str,
    check: Check | None = None,
    scope: Scope = Scope.CLUSTER,
) -> ConfigKey:
    """Read through the constant that it is kept in."""
    return ConfigKey(name, kind, default, words, check, scope=scope)


def _read_only(
    standing: ConfigStanding,
    name: str,
    kind: ConfigType,
    default: str | None,
    words: str,
    check: Check | None = None,
) -> ConfigKey:
    return ConfigKey(
        name, kind, default, words, check, importance=Importance.LOW, scope=Scope.READ_ONLY, standing=standing
    )


def _setting(
    name: str, kind: ConfigType, default: str | None, words: str, check: Check | None = None
) -> ConfigKey:
    """Shows a setting of the node (node.static_configs), under Kafka's name and with Kafka's default."""
    return _read_only(ConfigStanding.SETTING, name, kind, default, words, check)


def _built_in(name: str, kind: ConfigType, value: str | None, words: str) -> ConfigKey:
    """Shows how this broker is built: the value is true, and always the same."""
    return _read_only(ConfigStanding.BUILT_IN, name, kind, value, words)


def _ignored(name: str, kind: ConfigType, default: str | None, words: str) -> ConfigKey:
    """Shown with Kafka's default for tools that expect it."""
    return _read_only(ConfigStanding.IGNORED, name, kind, default, f"{words} No effect here.")


def _topic_default(
    name: str, topic_config: str, synonyms: tuple[Synonym, ...] = (), *, default: bool = True
) -> ConfigKey:
    """A broker config that is the default of a topic config, with the same type, bounds and built-in value."""
    key = TOPIC_CONFIGS[topic_config]
    words = f"Default of the topic config {topic_config}: {key.documentation}"
    return ConfigKey(
        name,
        key.type,
        key.default if default else None,
        words,
        key.check,
        synonyms,
        key.importance,
        Scope.READ_ONLY if key.fixed else Scope.CLUSTER,
        standing=ConfigStanding.TOPIC_DEFAULT,
    )


def _unit_of(
    name: str, kind: ConfigType, default: str | None, other: str, unit: str, check: Check
) -> ConfigKey:
    words = f"{other} in {unit}; used when {other} is not set."
    return _read_only(ConfigStanding.TOPIC_DEFAULT, name, kind, default, words, check)


NUM_PARTITIONS: Final = _settable(
    "num.partitions", _INT, "1", "Partitions of a topic that is created without a number.", between(1, 10_000)
)
DEFAULT_REPLICATION_FACTOR: Final = _settable(
    "default.replication.factor",
    _INT,
    "1",
    "Replicas of a topic that is created without a number.",
    between(1, 32),
)
CLEANER_BYTES_PER_SECOND: Final = _settable(
    "log.cleaner.io.max.bytes.per.second", _DOUBLE, "1.7976931348623157E308", "How fast compaction may read and write.", _POSITIVE, Scope.PER_BROKER
)  # fmt: skip
LEADER_THROTTLED_RATE: Final = _settable(
    "leader.replication.throttled.rate", _LONG, str(MAX_LONG),
    "Bytes per second that followers who catch up may read from this broker, of the partitions in leader.replication.throttled.replicas.",
    _POSITIVE, Scope.PER_BROKER,
)  # fmt: skip
FOLLOWER_THROTTLED_RATE: Final = _settable(
    "follower.replication.throttled.rate", _LONG, str(MAX_LONG),
    "Bytes per second that this broker fetches to catch up, of the partitions in follower.replication.throttled.replicas.",
    _POSITIVE, Scope.PER_BROKER,
)  # fmt: skip
MAX_CONNECTIONS: Final = _settable(
    "max.connections", _INT, str(limits.MAX_CONNECTIONS),
    "Connections of clients that this broker holds. When there are so many, who connects takes the place of the longest idle one; brokers have places of their own.",
    _NOT_NEGATIVE, Scope.PER_BROKER,
)  # fmt: skip
MAX_CONNECTIONS_PER_IP: Final = _settable(
    "max.connections.per.ip", _INT, str(limits.MAX_CONNECTIONS_PER_IP),
    "Connections of one address. When there are so many, who connects from there takes the place of its longest idle one.",
    _NOT_NEGATIVE, Scope.PER_BROKER,
)  # fmt: skip
MAX_CONNECTIONS_PER_IP_OVERRIDES: Final = _settable(
    "max.connections.per.ip.overrides", _STRING, "", "address:number pairs that override max.connections.per.ip.", None, Scope.PER_BROKER
)  # fmt: skip
MAX_CONNECTIONS_PER_USER: Final = _settable(
    "max.connections.per.user", _INT, str(limits.MAX_CONNECTIONS_PER_USER),
    "Connections that have logged in as one user. When there are so many, who logs in takes the place of that user's longest idle one; brokers are not counted.",
    _NOT_NEGATIVE, Scope.PER_BROKER,
)  # fmt: skip
MAX_CONNECTION_CREATION_RATE: Final = _settable(
    "max.connection.creation.rate", _INT, str(MAX_INT), "New connections per second; the first request of one that comes too soon is heard later.", _NOT_NEGATIVE, Scope.PER_BROKER
)  # fmt: skip
CONNECTIONS_MAX_IDLE_MS: Final = _settable(
    "connections.max.idle.ms", _LONG, str(limits.IDLE_CONNECTION_MS), "An idle connection is closed after this time; -1: never.", _OR_UNLIMITED, Scope.PER_BROKER
)  # fmt: skip
PRODUCER_ID_EXPIRATION_MS: Final = _settable(
    "producer.id.expiration.ms", _INT, "86400000", "A producer that is idle for this long is forgotten by its partitions.", _POSITIVE, Scope.PER_BROKER
)  # fmt: skip

_IDENTITY = (
    _setting("broker.id", _INT, "-1", "The number of this broker.", _OR_UNLIMITED),
    _setting("node.id", _INT, "-1", "The number of this broker, as Kafka 4 calls it.", _OR_UNLIMITED),
    _setting("broker.rack", _STRING, None, "The rack or data centre of this broker; replicas are spread over racks."),
    _built_in("process.roles", _LIST, "broker,controller", "Every Headrace broker can become the controller."),
    _setting("listeners", _LIST, "PLAINTEXT://127.0.0.1:9092", "Where this broker listens."),
    _setting("advertised.listeners", _LIST, "", "Where this broker tells clients to connect; the listeners when empty."),
    _built_in("listener.security.protocol.map", _STRING, "PLAINTEXT:PLAINTEXT", "Security protocol of each listener name."),
    _built_in("inter.broker.listener.name", _STRING, "PLAINTEXT", "The listener that replicas use."),
    _built_in("security.inter.broker.protocol", _STRING, "PLAINTEXT", "Security protocol between brokers."),
    _built_in("inter.broker.protocol.version", _STRING, "3.9", "Tools read this to guess what a broker can do."),
    _setting("log.dir", _STRING, None, "Where data lives."),
    _setting("log.dirs", _STRING, None, "Where data lives."),
    _ignored("controller.listener.names", _STRING, None, _COORDINATOR),
    _ignored("controller.quorum.voters", _LIST, "", _COORDINATOR),
    _ignored("controller.quorum.bootstrap.servers", _LIST, "", _COORDINATOR),
    _ignored("metadata.log.dir", _STRING, None, "Metadata lives in the coordinator."),
    _built_in("broker.heartbeat.interval.ms", _INT, "2000", "How often a broker renews its lease."),
    _built_in("broker.session.timeout.ms", _INT, "6000", "How long a silent broker keeps its lease."),
    _built_in("controlled.shutdown.enable", _BOOLEAN, "true", "Move leaderships away before stopping."),
    _setting("headrace.http.address", _STRING, None, "Where this broker serves SQS, REST and the console; clients that know its Kafka address learn it here."),
    _setting("headrace.coordinator", _STRING, None, "The coordinator this broker uses, without credentials."),
)  # fmt: skip

_TOPICS = (
    _setting("auto.create.topics.enable", _BOOLEAN, "true", "Create a topic when a client first asks for it."),
    _built_in("delete.topic.enable", _BOOLEAN, "true", "Allow topics to be deleted."),
    NUM_PARTITIONS,
    DEFAULT_REPLICATION_FACTOR,
    _ignored("create.topic.policy.class.name", ConfigType.CLASS, None, "Java policies can't be loaded."),
    _ignored("alter.config.policy.class.name", ConfigType.CLASS, None, "Java policies can't be loaded."),
)  # fmt: skip

_LOG = (
    _topic_default("log.cleanup.policy", "cleanup.policy"),
    _topic_default("compression.type", "compression.type"),
    _topic_default("compression.gzip.level", "compression.gzip.level"),
    _topic_default("compression.lz4.level", "compression.lz4.level"),
    _topic_default("compression.zstd.level", "compression.zstd.level"),
    _topic_default("log.cleaner.delete.retention.ms", "delete.retention.ms"),
    _topic_default("log.segment.delete.delay.ms", "file.delete.delay.ms"),
    _topic_default("log.flush.interval.messages", "flush.messages"),
    _topic_default("log.flush.interval.ms", "flush.ms", (Synonym("log.flush.scheduler.interval.ms"),), default=False),
    _read_only(ConfigStanding.TOPIC_DEFAULT, "log.flush.scheduler.interval.ms", _LONG, "1000", "Used when log.flush.interval.ms is not set.", _POSITIVE),
    _built_in("log.flush.offset.checkpoint.interval.ms", _INT, "5000", "How often recovery points are written."),
    _built_in("log.flush.start.offset.checkpoint.interval.ms", _INT, "5000", "How often log start offsets are written."),
    _topic_default("headrace.flush", "headrace.flush"),
    # Not to be changed under topics that exist: they would look for their data in the wrong place.
    _read_only(ConfigStanding.TOPIC_DEFAULT, "headrace.storage", _STRING, "disk", "Where topics keep their data unless they say otherwise when they are made."),
    _topic_default("log.index.interval.bytes", "index.interval.bytes"),
    _topic_default("log.index.size.max.bytes", "segment.index.bytes"),
    _topic_default("log.local.retention.bytes", "local.retention.bytes"),
    _topic_default("log.local.retention.ms", "local.retention.ms"),
    _topic_default("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms"),
    _topic_default("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms"),
    _topic_default("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"),
    _topic_default("message.max.bytes", "max.message.bytes"),
    _topic_default("log.message.timestamp.type", "message.timestamp.type"),
    _topic_default("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms"),
    _topic_default("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms"),
    _topic_default("log.preallocate", "preallocate"),
    _topic_default("log.retention.bytes", "retention.bytes"),
    _topic_default("log.retention.ms", "retention.ms", (Synonym("log.retention.minutes", 60_000), Synonym("log.retention.hours", 3_600_000)), default=False),
    _unit_of("log.retention.minutes", _INT, None, "log.retention.ms", "minutes", _OR_UNLIMITED),
    _unit_of("log.retention.hours", _INT, "168", "log.retention.ms", "hours", _OR_UNLIMITED),
    _setting("log.retention.check.interval.ms", _LONG, "300000", "How often the broker looks for segments to drop.", _POSITIVE),
    _topic_default("log.segment.bytes", "segment.bytes"),
    _topic_default("log.roll.ms", "segment.ms", (Synonym("log.roll.hours", 3_600_000),), default=False),
    _unit_of("log.roll.hours", _INT, "168", "log.roll.ms", "hours", _POSITIVE),
    _topic_default("log.roll.jitter.ms", "segment.jitter.ms", (Synonym("log.roll.jitter.hours", 3_600_000),), default=False),
    _unit_of("log.roll.jitter.hours", _INT, "0", "log.roll.jitter.ms", "hours", _NOT_NEGATIVE),
    _built_in("log.cleaner.enable", _BOOLEAN, "true", "Compact topics that ask for it."),
    _built_in("log.cleaner.threads", _INT, "1", "Compactions that run at once: one partition after the other."),
    _ignored("log.cleaner.backoff.ms", _LONG, "15000", "Compaction looks for work every log.retention.check.interval.ms."),
    CLEANER_BYTES_PER_SECOND,
    _built_in("log.cleaner.dedupe.buffer.size", _LONG, "134217728", "The most memory in which a compaction keeps keys."),
    _ignored("log.cleaner.io.buffer.size", _INT, "524288", "Compaction sizes its own buffers."),
    _ignored("log.cleaner.io.buffer.load.factor", _DOUBLE, "0.9", "Compaction sizes its own map of keys."),
    _ignored("num.recovery.threads.per.data.dir", _INT, "1", "Logs are opened one after the other."),
    _built_in("remote.log.storage.system.enable", _BOOLEAN, "false", "Tiered storage, which Headrace does not have."),
)  # fmt: skip

_REPLICATION = (
    _topic_default("min.insync.replicas", "min.insync.replicas"),
    _topic_default("min.insync.racks", "min.insync.racks"),
    _topic_default("unclean.leader.election.enable", "unclean.leader.election.enable"),
    _built_in("replica.lag.time.max.ms", _LONG, "10000", "A follower that has not caught up for this long leaves the in-sync set."),
    _built_in("replica.fetch.max.bytes", _INT, "4194304", "How much a follower asks for per partition."),
    _built_in("replica.fetch.min.bytes", _INT, "1", "How much a follower waits for."),
    _built_in("replica.fetch.response.max.bytes", _INT, "16777216", "How much a follower asks for in one request."),
    _built_in("replica.fetch.wait.max.ms", _INT, "500", "How long a follower's request waits for data."),
    _built_in("replica.fetch.backoff.ms", _INT, "100", "How long a follower waits after an error."),
    _built_in("replica.high.watermark.checkpoint.interval.ms", _LONG, "5000", "How often high watermarks are written to disk."),
    _built_in("replica.socket.timeout.ms", _INT, "10000", "How long a follower waits for an answer."),
    _ignored("replica.socket.receive.buffer.bytes", _INT, "65536", "Socket buffers are left to the system."),
    _ignored("replica.selector.class", ConfigType.CLASS, None, "Java selectors can't be loaded; a consumer that names its rack is sent to an in-sync replica there."),
    _built_in("num.replica.fetchers", _INT, "1", "Connections a follower keeps to each leader: one carries all of its partitions."),
    _built_in("auto.leader.rebalance.enable", _BOOLEAN, "true", "Move leaderships back to the preferred replica by and by."),
    _built_in("leader.imbalance.check.interval.seconds", _LONG, "15", "How often leaderships are looked at."),
    _built_in("leader.imbalance.per.broker.percentage", _INT, "10", "Leaderships are moved when more than this share of a broker's is elsewhere."),
    LEADER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_RATE,
    _ignored("replica.alter.log.dirs.io.max.bytes.per.second", _LONG, str(MAX_LONG), "A broker has one data directory, so nothing moves between them."),
)  # fmt: skip

_NETWORK = (
    _built_in("socket.request.max.bytes", _INT, str(limits.MAX_FRAME_BYTES), "The largest request that is read at all."),
    _ignored("socket.receive.buffer.bytes", _INT, "102400", "Socket buffers are left to the system."),
    _ignored("socket.send.buffer.bytes", _INT, "102400", "Socket buffers are left to the system."),
    _built_in("socket.listen.backlog.size", _INT, "1024", "Connections that may wait to be accepted."),
    _ignored("queued.max.requests", _INT, "500", "Requests that wait are counted in bytes: queued.max.request.bytes."),
    _built_in("queued.max.request.bytes", _LONG, str(limits.MAX_INFLIGHT_REQUEST_BYTES), "Request bytes that are held at once; above it sockets are not read."),
    _ignored("request.timeout.ms", _INT, "30000", "Each exchange between brokers has its own limit."),
    CONNECTIONS_MAX_IDLE_MS,
    _built_in("connections.max.reauth.ms", _LONG, "0", "Longest life of an authenticated session; 0 is no limit."),
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    MAX_CONNECTIONS_PER_USER,
    MAX_CONNECTION_CREATION_RATE,
    _ignored("num.network.threads", _INT, "1", _ONE_LOOP),
    _ignored("num.io.threads", _INT, "1", _ONE_LOOP),
    _built_in("background.threads", _INT, "8", "Threads that sync files and open compressed batches."),
    _built_in("max.incremental.fetch.session.cache.slots", _INT, str(limits.MAX_FETCH_SESSIONS), "Fetch sessions that are remembered."),
    _built_in("fetch.max.bytes", _INT, str(limits.MAX_FETCH_BYTES), "The most a fetch answers with."),
    _built_in("max.request.partition.size.limit", _INT, "2000", "Partitions in one DescribeTopicPartitions answer."),
    _ignored("quota.window.num", _INT, "11", "Quotas are buckets that fill at their rate, not samples."),
    _ignored("quota.window.size.seconds", _INT, "1", "Quotas are buckets that fill at their rate, not samples."),
)  # fmt: skip

_GROUPS = (
    _setting("group.min.session.timeout.ms", _INT, "6000", "Shortest session timeout a classic consumer may ask for.", _NOT_NEGATIVE),
    _setting("group.max.session.timeout.ms", _INT, "1800000", "Longest session timeout a classic consumer may ask for.", _NOT_NEGATIVE),
    _setting("group.initial.rebalance.delay.ms", _INT, "3000", "How long an empty group waits for more members before its first rebalance.", _NOT_NEGATIVE),
    _built_in("group.max.size", _INT, str(limits.MAX_GROUP_MEMBERS), "Members a classic group may have."),
    _built_in("group.coordinator.rebalance.protocols", _LIST, "classic,consumer,share,streams", "Group protocols that are served."),
    _ignored("group.coordinator.threads", _INT, "1", "Groups share the event loop."),
    *GROUP_DEFAULTS,
    _built_in("group.consumer.assignors", _LIST, "uniform,range", "Server-side assignors, the default one first."),
    _built_in("group.consumer.assignment.interval.ms", _INT, "0", "A new assignment is made at once, when a member of the group asks next."),
    _ignored("group.consumer.regex.refresh.interval.ms", _INT, "600000", "Patterns are looked at whenever topics come or go."),
    _built_in("group.share.assignors", _LIST, "simple", "Server-side assignors of share groups."),
    _built_in("group.share.assignment.interval.ms", _INT, "0", "A new assignment is made at once, when a member of the group asks next."),
    _built_in("group.share.max.share.sessions", _INT, str(limits.MAX_SHARE_SESSIONS), "Share sessions that are remembered."),
    _built_in("offsets.retention.minutes", _INT, "10080", "How long the offsets of an empty group are kept."),
    _built_in("offsets.retention.check.interval.ms", _LONG, "600000", "How often old offsets are looked for."),
    _setting("offsets.topic.num.partitions", _INT, "50", "Partitions of __consumer_offsets.", _POSITIVE),
    _setting("offsets.topic.replication.factor", _SHORT, "3", "Replicas of __consumer_offsets; fewer while the cluster is smaller.", _POSITIVE),
    _built_in("offsets.topic.segment.bytes", _INT, "16777216", "Segment size of __consumer_offsets."),
    _ignored("offsets.topic.compression.codec", _INT, "0", "Offsets are stored as they are."),
    _ignored("offsets.load.buffer.size", _INT, "5242880", "Reads are sized by what is there."),
    _ignored("offsets.commit.timeout.ms", _INT, "5000", "A commit is answered once it is replicated."),
    _built_in("offset.metadata.max.bytes", _INT, str(limits.MAX_OFFSET_METADATA_BYTES), "The largest text that may be committed with an offset."),
)  # fmt: skip

_TRANSACTIONS = (
    _built_in("transaction.max.timeout.ms", _INT, "900000", "The longest timeout a transactional producer may ask for."),
    _built_in("transactional.id.expiration.ms", _INT, "604800000", "An idle transactional id is forgotten after this time."),
    _ignored("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, "10000", "Each transaction has a timer of its own."),
    _built_in("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, "3600000", "How often idle transactional ids are looked for."),
    _setting("transaction.state.log.num.partitions", _INT, "50", "Partitions of __transaction_state.", _POSITIVE),
    _setting("transaction.state.log.replication.factor", _SHORT, "3", "Replicas of __transaction_state; fewer while the cluster is smaller.", _POSITIVE),
    _built_in("transaction.state.log.min.isr", _INT, "2", "min.insync.replicas of __transaction_state; never more than its replicas."),
    _built_in("transaction.state.log.segment.bytes", _INT, "16777216", "Segment size of __transaction_state."),
    _ignored("transaction.state.log.load.buffer.size", _INT, "5242880", "Reads are sized by what is there."),
    _built_in("transaction.partition.verification.enable", _BOOLEAN, "true", "The coordinator is asked before the first transactional batch of a producer is taken (KIP-890): always."),
    PRODUCER_ID_EXPIRATION_MS,
    _ignored("producer.id.expiration.check.interval.ms", _INT, "600000", "Idle producers are looked for every log.retention.check.interval.ms."),
)  # fmt: skip

_SECURITY = (
    _ignored("sasl.enabled.mechanisms", _LIST, "", _NOT_SERVED),
    _ignored("sasl.mechanism.inter.broker.protocol", _STRING, "SCRAM-SHA-512", _NOT_SERVED),
    _ignored("sasl.server.max.receive.size", _INT, "65536", _NOT_SERVED),
    _ignored("sasl.jaas.config", _PASSWORD, None, _NOT_SERVED),
    _ignored("ssl.client.auth", _STRING, "none", _NOT_SERVED),
    _ignored("ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3", _NOT_SERVED),
    _ignored("ssl.protocol", _STRING, "TLSv1.3", _NOT_SERVED),
    _ignored("ssl.cipher.suites", _LIST, "", _NOT_SERVED),
    _ignored("ssl.keystore.location", _STRING, None, _NOT_SERVED),
    _ignored("ssl.keystore.type", _STRING, "PEM", _NOT_SERVED),
    _ignored("ssl.keystore.password", _PASSWORD, None, _NOT_SERVED),
    _ignored("ssl.key.password", _PASSWORD, None, _NOT_SERVED),
    _ignored("ssl.truststore.location", _STRING, None, _NOT_SERVED),
    _ignored("ssl.truststore.type", _STRING, "PEM", _NOT_SERVED),
    _ignored("ssl.truststore.password", _PASSWORD, None, _NOT_SERVED),
    _ignored("ssl.principal.mapping.rules", _STRING, "DEFAULT", _NOT_SERVED),
    _ignored("authorizer.class.name", ConfigType.CLASS, "", _NOT_SERVED),
    _ignored("super.users", _STRING, "", _NOT_SERVED),
    _ignored("allow.everyone.if.no.acl.found", _BOOLEAN, "false", _NOT_SERVED),
    _ignored("principal.builder.class", ConfigType.CLASS, None, "Java classes can't be loaded."),
    _ignored("delegation.token.expiry.time.ms", _LONG, "86400000", "Delegation tokens are not served."),
    _ignored("metric.reporters", _LIST, "", _PROMETHEUS),
    _ignored("metrics.num.samples", _INT, "2", _PROMETHEUS),
    _ignored("metrics.sample.window.ms", _LONG, "30000", _PROMETHEUS),
    _ignored("metrics.recording.level", _STRING, "INFO", _PROMETHEUS),
)  # fmt: skip

BROKER_CONFIGS: Final[dict[str, ConfigKey]] = {
    key.name: key
    for key in sorted(
        _IDENTITY + _TOPICS + _LOG + _REPLICATION + _NETWORK + _GROUPS + _TRANSACTIONS + _SECURITY,
        key=lambda key: key.name,
    )
}
