"""Pure: what a broker was started with, under Kafka's names."""

from __future__ import annotations

from headrace.cluster.configs import NO_LAYERS, describe_broker
from headrace.cluster.group_defaults import CONSUMER_HEARTBEAT, CONSUMER_SESSION, Bounds
from headrace.node.settings import Settings


def static_configs(settings: Settings) -> dict[str, str]:
    """The settings of this broker under Kafka's names, as DescribeConfigs shows them.

    What says the same as the default is left out: its source is the default, and clients compare by source.
    """
    given = {
        "node.id": str(settings.node_id),
        "broker.id": str(settings.node_id),
        "auto.create.topics.enable": str(settings.auto_create_topics).lower(),
        "num.partitions": str(settings.num_partitions),
        "default.replication.factor": str(settings.default_replication_factor),
        "log.retention.ms": str(settings.retention_ms),
        "log.segment.bytes": str(settings.segment_bytes),
        "log.roll.ms": str(settings.segment_ms),
        "message.max.bytes": str(settings.max_message_bytes),
        "offsets.topic.num.partitions": str(settings.offsets_partitions),
        "offsets.topic.replication.factor": str(max(3, settings.default_replication_factor)),
        "transaction.state.log.num.partitions": str(settings.offsets_partitions),
        "transaction.state.log.replication.factor": str(max(3, settings.default_replication_factor)),
        "group.initial.rebalance.delay.ms": str(settings.group_initial_rebalance_delay_ms),
        "group.min.session.timeout.ms": str(settings.group_min_session_timeout_ms),
        "group.max.session.timeout.ms": str(settings.group_max_session_timeout_ms),
        "group.consumer.session.timeout.ms": str(settings.group_consumer_session_timeout_ms),
        "group.consumer.heartbeat.interval.ms": str(settings.group_consumer_heartbeat_interval_ms),
        **_bounds_around(CONSUMER_SESSION, settings.group_consumer_session_timeout_ms),
        **_bounds_around(CONSUMER_HEARTBEAT, settings.group_consumer_heartbeat_interval_ms),
        "log.retention.check.interval.ms": str(settings.retention_check_interval_ms),
        "log.flush.interval.ms": str(settings.flush_interval_ms),
        "headrace.flush": settings.flush,
    }
    if settings.rack:
        given["broker.rack"] = settings.rack
    defaults = {entry.name: entry.value for entry in describe_broker(NO_LAYERS, given)}
    return {name: value for name, value in given.items() if value != defaults.get(name)}


def _bounds_around(bounds: Bounds, setting: int) -> dict[str, str]:
    """A setting may lie where no group could set it: then groups may, too."""
    assert bounds.low is not None and bounds.low.default is not None and bounds.high.default is not None
    return {
        bounds.low.name: str(min(setting, int(bounds.low.default))),
        bounds.high.name: str(max(setting, int(bounds.high.default))),
    }


def without_credentials(url: str) -> str:
    """A coordinator's URL as anybody may see it."""
    scheme, slashes, rest = url.partition("://")
    return scheme + slashes + rest.rpartition("@")[2]
