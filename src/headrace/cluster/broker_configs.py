"""Machine: the table of every broker config that people, tools and dashboards ask a Kafka 4 broker for.

READ_ONLY ones come from the node's settings; the others can be changed while the cluster runs. A config that steers
something Headrace does in another way says so in its words instead of pretending.
"""

from __future__ import annotations

from typing import Final

from headrace.cluster.config_keys import (
    MAX_INT,
    MAX_LONG,
    Check,
    ConfigKey,
    ConfigType,
    Importance,
    Scope,
    Synonym,
    at_least,
    between,
    one_of,
)
from headrace.cluster.topic_configs import TOPIC_CONFIGS

_BOOLEAN, _INT, _LONG, _SHORT = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.SHORT
_STRING, _DOUBLE, _LIST, _PASSWORD = (
    ConfigType.STRING,
    ConfigType.DOUBLE,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)

_NO_EFFECT = " Shown for tools that expect it; Headrace works without it."

_POSITIVE: Final[Check] = at_least(1)
_NOT_NEGATIVE: Final[Check] = at_least(0)
_OR_UNLIMITED: Final[Check] = at_least(-1)


def _fixed(
    name: str, kind: ConfigType, default: str | None, words: str, check: Check | None = None
) -> ConfigKey:
    return ConfigKey(name, kind, default, words, check, importance=Importance.LOW, scope=Scope.READ_ONLY)


def _dynamic(
    name: str,
    kind: ConfigType,
    default: str | None,
    words: str,
    check: Check | None = None,
    scope: Scope = Scope.CLUSTER,
    synonyms: tuple[Synonym, ...] = (),
) -> ConfigKey:
    return ConfigKey(name, kind, default, words, check, synonyms, scope=scope)


def _topic_default(name: str, topic_config: str, synonyms: tuple[Synonym, ...] = ()) -> ConfigKey:
    """A broker config that is the default of a topic config, with the same type, bounds and built-in value."""
    key = TOPIC_CONFIGS[topic_config]
    words = f"Default of the topic config {topic_config}: {key.documentation}"
    scope = Scope.READ_ONLY if key.fixed else Scope.CLUSTER
    return ConfigKey(name, key.type, key.default, words, key.check, synonyms, key.importance, scope)


def _unit_of(
    name: str, kind: ConfigType, default: str | None, other: str, unit: str, check: Check
) -> ConfigKey:
    return _fixed(name, kind, default, f"{other} in {unit}; used when {other} is not set.", check)


_IDENTITY = (
    _fixed("broker.id", _INT, "-1", "The number of this broker.", _OR_UNLIMITED),
    _fixed("node.id", _INT, "-1", "The number of this broker, as Kafka 4 calls it.", _OR_UNLIMITED),
    _fixed("broker.rack", _STRING, None, "The rack or data centre of this broker; replicas are spread over racks."),
    _fixed("process.roles", _LIST, "broker,controller", "Every Headrace broker can become the controller."),
    _fixed("listeners", _LIST, "PLAINTEXT://127.0.0.1:9092", "Where this broker listens."),
    _fixed("advertised.listeners", _LIST, "", "Where this broker tells clients to connect; the listeners when empty."),
    _fixed("listener.security.protocol.map", _STRING, "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", "Security protocol of each listener name."),
    _fixed("inter.broker.listener.name", _STRING, None, "The listener that replicas use; the first one when empty."),
    _fixed("security.inter.broker.protocol", _STRING, "PLAINTEXT", "Security protocol between brokers."),
    _fixed("inter.broker.protocol.version", _STRING, "3.9", "Tools read this to guess what a broker can do."),
    _fixed("log.dir", _STRING, None, "Where data lives."),
    _fixed("log.dirs", _STRING, None, "Where data lives."),
    _fixed("controller.listener.names", _STRING, None, "The coordinator takes the place of a controller quorum." + _NO_EFFECT),
    _fixed("controller.quorum.voters", _LIST, "", "The coordinator takes the place of a controller quorum." + _NO_EFFECT),
    _fixed("controller.quorum.bootstrap.servers", _LIST, "", "The coordinator takes the place of a controller quorum." + _NO_EFFECT),
    _fixed("metadata.log.dir", _STRING, None, "Metadata lives in the coordinator." + _NO_EFFECT),
    _fixed("broker.heartbeat.interval.ms", _INT, "2000", "How often a broker renews its lease.", _POSITIVE),
    _fixed("broker.session.timeout.ms", _INT, "9000", "How long a silent broker keeps its lease.", _POSITIVE),
    _fixed("controlled.shutdown.enable", _BOOLEAN, "true", "Move leaderships away before stopping."),
    _fixed("headrace.coordinator", _STRING, None, "The coordinator this broker uses, without credentials."),
)  # fmt: skip

_TOPICS = (
    _fixed("auto.create.topics.enable", _BOOLEAN, "true", "Create a topic when a client first asks for it."),
    _fixed("delete.topic.enable", _BOOLEAN, "true", "Allow topics to be deleted."),
    _dynamic("num.partitions", _INT, "1", "Partitions of a topic that is created without a number.", between(1, 10_000)),
    _dynamic("default.replication.factor", _INT, "1", "Replicas of a topic that is created without a number.", between(1, 32)),
    _fixed("create.topic.policy.class.name", ConfigType.CLASS, None, "Java policies can't be loaded." + _NO_EFFECT),
    _fixed("alter.config.policy.class.name", ConfigType.CLASS, None, "Java policies can't be loaded." + _NO_EFFECT),
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
    _dynamic("log.flush.interval.ms", _LONG, None, "Default of the topic config flush.ms.", _POSITIVE, synonyms=(Synonym("log.flush.scheduler.interval.ms"),)),
    _fixed("log.flush.scheduler.interval.ms", _LONG, "1000", "How often the broker looks for logs to sync.", _POSITIVE),
    _fixed("log.flush.offset.checkpoint.interval.ms", _INT, "60000", "How often recovery points are written.", _NOT_NEGATIVE),
    _fixed("log.flush.start.offset.checkpoint.interval.ms", _INT, "60000", "How often log start offsets are written.", _NOT_NEGATIVE),
    _topic_default("headrace.flush", "headrace.flush"),
    _topic_default("headrace.storage", "headrace.storage"),
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
    _dynamic("log.retention.ms", _LONG, None, "How long data is kept; -1 is for ever.", _OR_UNLIMITED, synonyms=(Synonym("log.retention.minutes", 60_000), Synonym("log.retention.hours", 3_600_000))),
    _unit_of("log.retention.minutes", _INT, None, "log.retention.ms", "minutes", _OR_UNLIMITED),
    _unit_of("log.retention.hours", _INT, "168", "log.retention.ms", "hours", _OR_UNLIMITED),
    _fixed("log.retention.check.interval.ms", _LONG, "300000", "How often the broker looks for segments to drop.", _POSITIVE),
    _topic_default("log.segment.bytes", "segment.bytes"),
    _dynamic("log.roll.ms", _LONG, None, "Default of the topic config segment.ms.", _POSITIVE, synonyms=(Synonym("log.roll.hours", 3_600_000),)),
    _unit_of("log.roll.hours", _INT, "168", "log.roll.ms", "hours", _POSITIVE),
    _dynamic("log.roll.jitter.ms", _LONG, None, "Default of the topic config segment.jitter.ms.", _NOT_NEGATIVE, synonyms=(Synonym("log.roll.jitter.hours", 3_600_000),)),
    _unit_of("log.roll.jitter.hours", _INT, "0", "log.roll.jitter.ms", "hours", _NOT_NEGATIVE),
    _fixed("log.cleaner.enable", _BOOLEAN, "true", "Compact topics that ask for it."),
    _dynamic("log.cleaner.threads", _INT, "1", "Compactions that run at once.", between(0, 16)),
    _dynamic("log.cleaner.backoff.ms", _LONG, "15000", "How long compaction rests when there is nothing to do.", _NOT_NEGATIVE),
    _dynamic("log.cleaner.io.max.bytes.per.second", _DOUBLE, "1.7976931348623157E308", "How fast compaction may read and write."),
    _fixed("log.cleaner.dedupe.buffer.size", _LONG, "134217728", "Compaction sizes its own map of keys." + _NO_EFFECT, _POSITIVE),
    _fixed("log.cleaner.io.buffer.size", _INT, "524288", "Compaction sizes its own buffers." + _NO_EFFECT, _NOT_NEGATIVE),
    _fixed("log.cleaner.io.buffer.load.factor", _DOUBLE, "0.9", "Compaction sizes its own map of keys." + _NO_EFFECT),
    _fixed("num.recovery.threads.per.data.dir", _INT, "1", "Logs that are checked at once at start.", _POSITIVE),
    _fixed("remote.log.storage.system.enable", _BOOLEAN, "false", "Tiered storage, which Headrace does not have."),
)  # fmt: skip

_REPLICATION = (
    _topic_default("min.insync.replicas", "min.insync.replicas"),
    _topic_default("min.insync.racks", "min.insync.racks"),
    _topic_default("unclean.leader.election.enable", "unclean.leader.election.enable"),
    _fixed("replica.lag.time.max.ms", _LONG, "10000", "A follower that has not caught up for this long leaves the in-sync set.", _POSITIVE),
    _fixed("replica.fetch.max.bytes", _INT, "1048576", "How much a follower asks for per partition.", _NOT_NEGATIVE),
    _fixed("replica.fetch.min.bytes", _INT, "1", "How much a follower waits for.", _NOT_NEGATIVE),
    _fixed("replica.fetch.response.max.bytes", _INT, "10485760", "How much a follower asks for in one request.", _NOT_NEGATIVE),
    _fixed("replica.fetch.wait.max.ms", _INT, "500", "How long a follower's request waits for data.", _NOT_NEGATIVE),
    _fixed("replica.fetch.backoff.ms", _INT, "1000", "How long a follower waits after an error.", _NOT_NEGATIVE),
    _fixed("replica.high.watermark.checkpoint.interval.ms", _LONG, "5000", "How often high watermarks are written to disk.", _POSITIVE),
    _fixed("replica.socket.timeout.ms", _INT, "30000", "How long a follower waits for an answer.", _POSITIVE),
    _fixed("replica.socket.receive.buffer.bytes", _INT, "65536", "Socket buffer of a follower.", _OR_UNLIMITED),
    _fixed("replica.selector.class", ConfigType.CLASS, None, "Java selectors can't be loaded." + _NO_EFFECT),
    _dynamic("num.replica.fetchers", _INT, "1", "Connections a follower keeps to each leader.", between(1, 16)),
    _fixed("auto.leader.rebalance.enable", _BOOLEAN, "true", "Move leaderships back to the preferred replica by and by."),
    _fixed("leader.imbalance.check.interval.seconds", _LONG, "300", "How often leaderships are looked at.", _POSITIVE),
    _fixed("leader.imbalance.per.broker.percentage", _INT, "10", "Leaderships are moved when more than this share of a broker's is elsewhere.", between(0, 100)),
    _dynamic("leader.replication.throttled.rate", _LONG, str(MAX_LONG), "Bytes per second that throttled replicas may read from this leader.", _NOT_NEGATIVE, Scope.PER_BROKER),
    _dynamic("follower.replication.throttled.rate", _LONG, str(MAX_LONG), "Bytes per second that throttled replicas on this broker may write.", _NOT_NEGATIVE, Scope.PER_BROKER),
    _dynamic("replica.alter.log.dirs.io.max.bytes.per.second", _LONG, str(MAX_LONG), "Bytes per second for moves between data directories.", _NOT_NEGATIVE, Scope.PER_BROKER),
)  # fmt: skip

_NETWORK = (
    _fixed("socket.request.max.bytes", _INT, "104857600", "The largest request that is read at all.", _POSITIVE),
    _fixed("socket.receive.buffer.bytes", _INT, "102400", "Socket receive buffer; -1 leaves it to the system.", _OR_UNLIMITED),
    _fixed("socket.send.buffer.bytes", _INT, "102400", "Socket send buffer; -1 leaves it to the system.", _OR_UNLIMITED),
    _fixed("socket.listen.backlog.size", _INT, "50", "Connections that may wait to be accepted.", _POSITIVE),
    _fixed("queued.max.requests", _INT, "500", "Requests that may wait at once.", _POSITIVE),
    _fixed("queued.max.request.bytes", _LONG, "-1", "Request bytes that may wait at once.", _OR_UNLIMITED),
    _fixed("request.timeout.ms", _INT, "30000", "How long one broker waits for another.", _POSITIVE),
    _fixed("connections.max.idle.ms", _LONG, "600000", "An idle connection is closed after this time.", _OR_UNLIMITED),
    _fixed("connections.max.reauth.ms", _LONG, "0", "Longest life of an authenticated session; 0 is no limit.", _NOT_NEGATIVE),
    _dynamic("max.connections", _INT, str(MAX_INT), "Connections this broker accepts.", _NOT_NEGATIVE, Scope.PER_BROKER),
    _dynamic("max.connections.per.ip", _INT, str(MAX_INT), "Connections accepted from one address.", _NOT_NEGATIVE, Scope.PER_BROKER),
    _dynamic("max.connections.per.ip.overrides", _STRING, "", "address:number pairs that override max.connections.per.ip.", None, Scope.PER_BROKER),
    _dynamic("max.connection.creation.rate", _INT, str(MAX_INT), "New connections per second.", _NOT_NEGATIVE, Scope.PER_BROKER),
    _dynamic("num.network.threads", _INT, "1", "One broker is one event loop; run more brokers to use more cores." + _NO_EFFECT, between(1, 1024), Scope.PER_BROKER),
    _dynamic("num.io.threads", _INT, "1", "One broker is one event loop; run more brokers to use more cores." + _NO_EFFECT, between(1, 1024), Scope.PER_BROKER),
    _fixed("background.threads", _INT, "4", "Threads that sync files and open compressed batches.", _POSITIVE),
    _fixed("max.incremental.fetch.session.cache.slots", _INT, "1000", "Fetch sessions that are remembered.", _NOT_NEGATIVE),
    _fixed("fetch.max.bytes", _INT, "57671680", "The most a fetch answers with.", at_least(1024)),
    _fixed("max.request.partition.size.limit", _INT, "2000", "Partitions in one DescribeTopicPartitions answer.", _POSITIVE),
    _fixed("quota.window.num", _INT, "11", "Samples kept for quotas.", _POSITIVE),
    _fixed("quota.window.size.seconds", _INT, "1", "Length of one quota sample.", _POSITIVE),
)  # fmt: skip

_GROUPS = (
    _fixed("group.min.session.timeout.ms", _INT, "6000", "Shortest session timeout a classic consumer may ask for.", _NOT_NEGATIVE),
    _fixed("group.max.session.timeout.ms", _INT, "1800000", "Longest session timeout a classic consumer may ask for.", _NOT_NEGATIVE),
    _fixed("group.initial.rebalance.delay.ms", _INT, "3000", "How long an empty group waits for more members before its first rebalance.", _NOT_NEGATIVE),
    _fixed("group.max.size", _INT, str(MAX_INT), "Members a classic group may have.", _POSITIVE),
    _fixed("group.coordinator.rebalance.protocols", _LIST, "classic,consumer,share", "Group protocols that are served."),
    _fixed("group.coordinator.threads", _INT, "1", "Groups share the event loop." + _NO_EFFECT, _POSITIVE),
    _fixed("group.consumer.session.timeout.ms", _INT, "45000", "Session timeout of KIP-848 members.", _POSITIVE),
    _fixed("group.consumer.min.session.timeout.ms", _INT, "45000", "Lower bound of group.consumer.session.timeout.ms.", _POSITIVE),
    _fixed("group.consumer.max.session.timeout.ms", _INT, "60000", "Upper bound of group.consumer.session.timeout.ms.", _POSITIVE),
    _fixed("group.consumer.heartbeat.interval.ms", _INT, "5000", "How often KIP-848 members report.", _POSITIVE),
    _fixed("group.consumer.min.heartbeat.interval.ms", _INT, "5000", "Lower bound of group.consumer.heartbeat.interval.ms.", _POSITIVE),
    _fixed("group.consumer.max.heartbeat.interval.ms", _INT, "15000", "Upper bound of group.consumer.heartbeat.interval.ms.", _POSITIVE),
    _fixed("group.consumer.max.size", _INT, str(MAX_INT), "Members a KIP-848 group may have.", _POSITIVE),
    _fixed("group.consumer.assignors", _LIST, "uniform,range", "Server-side assignors, the default one first."),
    _fixed("group.consumer.migration.policy", _STRING, "bidirectional", "Which way groups may change between the classic and the KIP-848 protocol.", one_of("disabled", "upgrade", "downgrade", "bidirectional")),
    _fixed("group.share.session.timeout.ms", _INT, "45000", "Session timeout of share group members.", _POSITIVE),
    _fixed("group.share.heartbeat.interval.ms", _INT, "5000", "How often share group members report.", _POSITIVE),
    _fixed("group.share.record.lock.duration.ms", _INT, "30000", "How long a share consumer holds a record.", at_least(1000)),
    _fixed("group.share.delivery.count.limit", _INT, "5", "How often a record is delivered before it is given up.", between(2, 10)),
    _fixed("group.share.partition.max.record.locks", _INT, "2000", "Records of one partition that may be held at once.", between(100, 10_000)),
    _fixed("group.share.max.size", _INT, "200", "Members a share group may have.", between(1, 10_000)),
    _fixed("offsets.retention.minutes", _INT, "10080", "How long the offsets of an empty group are kept.", _POSITIVE),
    _fixed("offsets.retention.check.interval.ms", _LONG, "600000", "How often old offsets are looked for.", _POSITIVE),
    _fixed("offsets.topic.num.partitions", _INT, "50", "Partitions of __consumer_offsets.", _POSITIVE),
    _fixed("offsets.topic.replication.factor", _SHORT, "3", "Replicas of __consumer_offsets; fewer while the cluster is smaller.", _POSITIVE),
    _fixed("offsets.topic.segment.bytes", _INT, "104857600", "Segment size of __consumer_offsets.", _POSITIVE),
    _fixed("offsets.topic.compression.codec", _INT, "0", "Codec of __consumer_offsets.", between(0, 4)),
    _fixed("offsets.load.buffer.size", _INT, "5242880", "How much is read at once when offsets are loaded.", _POSITIVE),
    _fixed("offsets.commit.timeout.ms", _INT, "5000", "How long a commit may wait for replicas.", _POSITIVE),
    _fixed("offset.metadata.max.bytes", _INT, "4096", "The largest text that may be committed with an offset.", _NOT_NEGATIVE),
)  # fmt: skip

_TRANSACTIONS = (
    _fixed("transaction.max.timeout.ms", _INT, "900000", "The longest timeout a transactional producer may ask for.", _POSITIVE),
    _fixed("transactional.id.expiration.ms", _INT, "604800000", "An idle transactional id is forgotten after this time.", _POSITIVE),
    _fixed("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, "10000", "How often transactions that timed out are looked for.", _POSITIVE),
    _fixed("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, "3600000", "How often idle transactional ids are looked for.", _POSITIVE),
    _fixed("transaction.state.log.num.partitions", _INT, "50", "Partitions of __transaction_state.", _POSITIVE),
    _fixed("transaction.state.log.replication.factor", _SHORT, "3", "Replicas of __transaction_state; fewer while the cluster is smaller.", _POSITIVE),
    _fixed("transaction.state.log.min.isr", _INT, "2", "min.insync.replicas of __transaction_state; never more than its replicas.", _POSITIVE),
    _fixed("transaction.state.log.segment.bytes", _INT, "104857600", "Segment size of __transaction_state.", _POSITIVE),
    _fixed("transaction.state.log.load.buffer.size", _INT, "5242880", "How much is read at once when transactions are loaded.", _POSITIVE),
    _dynamic("transaction.partition.verification.enable", _BOOLEAN, "true", "Ask the coordinator before the first transactional batch of a producer is taken (KIP-890)."),
    _dynamic("producer.id.expiration.ms", _INT, "86400000", "A producer that is idle for this long is forgotten by its partitions.", _POSITIVE),
    _fixed("producer.id.expiration.check.interval.ms", _INT, "600000", "How often idle producers are looked for.", _POSITIVE),
)  # fmt: skip

_SECURITY = (
    _fixed("sasl.enabled.mechanisms", _LIST, "", "SASL mechanisms that are served."),
    _fixed("sasl.mechanism.inter.broker.protocol", _STRING, "SCRAM-SHA-512", "SASL mechanism between brokers."),
    _fixed("sasl.server.max.receive.size", _INT, "65536", "The largest SASL token that is read.", _POSITIVE),
    _fixed("sasl.jaas.config", _PASSWORD, None, "Headrace keeps credentials elsewhere." + _NO_EFFECT),
    _fixed("ssl.client.auth", _STRING, "none", "Whether clients must show a certificate.", one_of("none", "requested", "required")),
    _fixed("ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3", "TLS versions that are served."),
    _fixed("ssl.protocol", _STRING, "TLSv1.3", "The TLS version that is preferred."),
    _fixed("ssl.cipher.suites", _LIST, "", "Cipher suites; the library's own choice when empty."),
    _fixed("ssl.keystore.location", _STRING, None, "Certificate of this broker."),
    _fixed("ssl.keystore.type", _STRING, "PEM", "Certificates are PEM files."),
    _fixed("ssl.keystore.password", _PASSWORD, None, "Password of the key store."),
    _fixed("ssl.key.password", _PASSWORD, None, "Password of the private key."),
    _fixed("ssl.truststore.location", _STRING, None, "Certificates that are trusted."),
    _fixed("ssl.truststore.type", _STRING, "PEM", "Certificates are PEM files."),
    _fixed("ssl.truststore.password", _PASSWORD, None, "Password of the trust store."),
    _fixed("ssl.principal.mapping.rules", _STRING, "DEFAULT", "How a certificate's name becomes a user."),
    _fixed("authorizer.class.name", ConfigType.CLASS, "", "Set when ACLs are enforced."),
    _fixed("super.users", _STRING, "", "Users that ACLs do not bind."),
    _fixed("allow.everyone.if.no.acl.found", _BOOLEAN, "false", "Whether a resource without ACLs is open to all."),
    _fixed("principal.builder.class", ConfigType.CLASS, None, "Java classes can't be loaded." + _NO_EFFECT),
    _fixed("delegation.token.expiry.time.ms", _LONG, "86400000", "Delegation tokens are not served." + _NO_EFFECT, _POSITIVE),
    _fixed("metric.reporters", _LIST, "", "Metrics are served over HTTP for Prometheus." + _NO_EFFECT),
    _fixed("metrics.num.samples", _INT, "2", "Metrics are served over HTTP for Prometheus." + _NO_EFFECT, _POSITIVE),
    _fixed("metrics.sample.window.ms", _LONG, "30000", "Metrics are served over HTTP for Prometheus." + _NO_EFFECT, _POSITIVE),
    _fixed("metrics.recording.level", _STRING, "INFO", "Metrics are served over HTTP for Prometheus." + _NO_EFFECT),
)  # fmt: skip

BROKER_CONFIGS: Final[dict[str, ConfigKey]] = {
    key.name: key
    for key in sorted(
        _IDENTITY + _TOPICS + _LOG + _REPLICATION + _NETWORK + _GROUPS + _TRANSACTIONS + _SECURITY,
        key=lambda key: key.name,
    )
}
