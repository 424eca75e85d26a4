"""Configs: the tables, which value counts, and how they are altered (K12)."""

from __future__ import annotations

import dataclasses

import pytest

from headrace.cluster.broker_configs import NUM_PARTITIONS
from headrace.cluster.configs import (
    BROKER_CONFIGS,
    NO_LAYERS,
    TOPIC_CONFIGS,
    Alteration,
    AlterOp,
    BrokerLayers,
    ConfigSource,
    ConfigType,
    Scope,
    TopicConfig,
    alter_broker,
    alter_topic,
    broker_number,
    broker_value,
    describe_broker,
    describe_topic,
    resolve_topic,
    validated_topic_configs,
)
from headrace.cluster.topic_configs import TOPIC_CONFIG_ALIASES, field_name
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected

KAFKA_TOPIC_CONFIGS = [
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
]


def altered(result: dict[str, str] | Rejected) -> dict[str, str]:
    assert not isinstance(result, Rejected), result
    return result


def refused(result: dict[str, str] | Rejected, kind: ErrorKind = ErrorKind.INVALID_CONFIG) -> str:
    assert isinstance(result, Rejected), result
    assert result.kind is kind
    return result.detail


def one(name: str, value: str | None, op: AlterOp = AlterOp.SET) -> list[Alteration]:
    return [Alteration(name, op, value)]


# -- the tables -------------------------------------------------------------------------------------------------------


def test_every_topic_config_of_kafka_4_is_there() -> None:
    assert set(KAFKA_TOPIC_CONFIGS) <= set(TOPIC_CONFIGS)


def test_the_table_and_the_typed_configs_match() -> None:
    assert {field_name(name) for name in TOPIC_CONFIGS} == {
        field.name for field in dataclasses.fields(TopicConfig)
    }
    assert resolve_topic({}) == TopicConfig(), "the defaults of both are the same"


@pytest.mark.parametrize("table", [TOPIC_CONFIGS, BROKER_CONFIGS])
def test_every_entry_is_whole(table: dict[str, object]) -> None:
    for name, key in table.items():
        assert key.name == name  # type: ignore[attr-defined]
        assert key.documentation.endswith("."), name  # type: ignore[attr-defined]
        if key.default is not None:  # type: ignore[attr-defined]
            key.parse(key.default)  # type: ignore[attr-defined]


def test_synonyms_exist_and_agree_with_what_they_default() -> None:
    for table in (TOPIC_CONFIGS, BROKER_CONFIGS):
        for key in table.values():
            for synonym in key.synonyms:
                broker = BROKER_CONFIGS[synonym.name]
                if broker.default is not None and key.default is not None:
                    assert int_or_text(broker.default, synonym.scale) == int_or_text(key.default, 1), (
                        key.name,
                        synonym,
                    )


def int_or_text(text: str, scale: int) -> str:
    return text if scale == 1 else str(int(text) * scale)


def test_aliases_are_no_config_names() -> None:
    assert not set(TOPIC_CONFIG_ALIASES) & set(TOPIC_CONFIGS)


def test_tools_can_guess_what_the_broker_can_do() -> None:
    """kafka-ui reads it."""
    (entry,) = describe_broker(NO_LAYERS, ["inter.broker.protocol.version"])
    assert entry.value == "3.9"


# -- which value counts -----------------------------------------------------------------------------------------------


def test_the_strongest_layer_wins() -> None:
    static = {"log.retention.ms": "4"}
    assert resolve_topic({}, BrokerLayers(static=static)).retention_ms == 4
    default = BrokerLayers(dynamic_default={"log.retention.ms": "3"}, static=static)
    assert resolve_topic({}, default).retention_ms == 3
    dynamic = default._replace(dynamic={"log.retention.ms": "2"})
    assert resolve_topic({}, dynamic).retention_ms == 2
    assert resolve_topic({"retention.ms": "1"}, dynamic).retention_ms == 1


def test_describe_names_the_source_and_all_that_was_overruled() -> None:
    layers = BrokerLayers({"log.retention.ms": "2"}, {"log.retention.ms": "3"}, {"log.retention.hours": "5"})
    (entry,) = describe_topic({"retention.ms": "1"}, layers, ["retention.ms"])
    assert (entry.value, entry.source) == ("1", ConfigSource.DYNAMIC_TOPIC)
    assert [(name, value, source) for name, value, source in entry.synonyms] == [
        ("retention.ms", "1", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.ms", "2", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.ms", "3", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "5", ConfigSource.STATIC_BROKER),
        ("log.retention.ms", str(7 * 86_400_000), ConfigSource.DEFAULT),
    ]


def test_hours_and_minutes_become_milliseconds() -> None:
    assert resolve_topic({}, BrokerLayers(static={"log.retention.hours": "2"})).retention_ms == 7_200_000
    assert resolve_topic({}, BrokerLayers(static={"log.retention.minutes": "3"})).retention_ms == 180_000
    assert resolve_topic({}, BrokerLayers(static={"log.retention.hours": "-1"})).retention_ms == -1
    both = {"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}
    assert resolve_topic({}, BrokerLayers(static=both)).retention_ms == 4
    assert (
        broker_value(BROKER_CONFIGS["log.roll.ms"], BrokerLayers(static={"log.roll.hours": "1"})) == 3_600_000
    )
    assert broker_value(BROKER_CONFIGS["log.roll.ms"], NO_LAYERS) == 7 * 86_400_000


def test_describe_lists_everything_once() -> None:
    topic = describe_topic({})
    assert [entry.name for entry in topic] == list(TOPIC_CONFIGS)
    assert all(entry.source is ConfigSource.DEFAULT and entry.documentation for entry in topic)
    broker = describe_broker(NO_LAYERS)
    assert [entry.name for entry in broker] == sorted(BROKER_CONFIGS)
    assert len(broker) > 150


def test_describe_leaves_out_names_there_are_not() -> None:
    assert [entry.name for entry in describe_topic({}, names=["segment.ms", "nonsense"])] == ["segment.ms"]
    assert describe_broker(NO_LAYERS, ["nonsense"]) == []


def test_x25_secrets_are_never_shown() -> None:
    layers = BrokerLayers(static={"ssl.key.password": "canary"})
    (entry,) = describe_broker(layers, ["ssl.key.password"])
    assert entry.sensitive and entry.value is None
    assert entry.source is ConfigSource.STATIC_BROKER
    assert "canary" not in repr(entry)


def test_a_stored_value_that_does_not_parse_is_passed_over() -> None:
    """X27: whatever is in the coordinator, the broker keeps running."""
    layers = BrokerLayers({"log.retention.ms": "soon"}, static={"log.retention.hours": "two"})
    assert resolve_topic({"retention.ms": "never", "nonsense": "x"}, layers).retention_ms == 7 * 86_400_000


def test_a_numeric_broker_value() -> None:
    assert broker_number(NUM_PARTITIONS, BrokerLayers(static={"num.partitions": "12"})) == 12
    assert broker_value(BROKER_CONFIGS["log.dirs"], NO_LAYERS) is None


# -- alterations ------------------------------------------------------------------------------------------------------


def test_set_and_delete() -> None:
    held = altered(alter_topic({}, one("retention.ms", "5")))
    assert held == {"retention.ms": "5"}
    assert altered(alter_topic(held, one("retention.ms", None, AlterOp.DELETE))) == {}
    assert altered(alter_topic({}, one("retention.ms", None, AlterOp.DELETE))) == {}


def test_append_and_subtract_start_from_the_effective_value() -> None:
    held = altered(alter_topic({}, one("cleanup.policy", "compact", AlterOp.APPEND)))
    assert held == {"cleanup.policy": "delete,compact"}
    assert altered(alter_topic(held, one("cleanup.policy", "compact", AlterOp.APPEND))) == held
    assert altered(alter_topic(held, one("cleanup.policy", "delete", AlterOp.SUBTRACT))) == {
        "cleanup.policy": "compact"
    }
    emptied = altered(alter_topic({}, one("cleanup.policy", "delete", AlterOp.SUBTRACT)))
    assert emptied == {"cleanup.policy": ""}, "nothing is ever taken away (F35)"


def test_append_is_for_lists() -> None:
    assert "not a list" in refused(alter_topic({}, one("retention.ms", "5", AlterOp.APPEND)))


def test_all_or_nothing() -> None:
    both = [*one("retention.ms", "5"), *one("segment.ms", "never")]
    assert "whole number" in refused(alter_topic({}, both))


def test_one_config_twice_is_a_contradiction() -> None:
    twice = [*one("retention.ms", "5"), *one("retention.ms", "6")]
    assert "twice" in refused(alter_topic({}, twice), ErrorKind.INVALID_REQUEST)
    alias = [*one("storage", "disk"), *one("headrace.storage", "memory")]
    assert "twice" in refused(alter_topic({}, alias), ErrorKind.INVALID_REQUEST)


def test_short_names_of_our_own_configs() -> None:
    held = altered(validated_topic_configs({"storage": "memory", "flush": "os", "retention": "delivered"}))
    assert held == {"headrace.storage": "memory", "headrace.flush": "os", "headrace.retention": "delivered"}
    config = resolve_topic(held)
    assert config.is_memory and config.flush == "os" and config.retention == "delivered"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("retention.ms", "7d", "whole number"),
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "1e3", "whole number"),
        ("retention.ms", "1_000", "whole number"),
        ("retention.ms", "٣", "whole number"),
        ("retention.ms", "9223372036854775808", "64 bits"),
        ("segment.bytes", "4294967296", "32 bits"),
        ("segment.bytes", "5", "from 14"),
        ("min.insync.replicas", "0", "from 1"),
        ("min.insync.racks", "0", "from 1"),
        ("min.cleanable.dirty.ratio", "1.5", "from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "finite"),
        ("min.cleanable.dirty.ratio", "much", "not a number"),
        ("unclean.leader.election.enable", "yes", "neither true nor false"),
        ("preallocate", "true", "can only be false"),
        ("cleanup.policy", "burn", "delete, compact"),
        ("cleanup.policy", "delete,delete", "delete, compact"),
        ("compression.type", "zip", "one of"),
        ("compression.gzip.level", "0", "-1 or from 1 to 9"),
        ("message.timestamp.type", "createtime", "CreateTime"),
        ("headrace.flush", "sometimes", "commit, interval, os"),
        ("leader.replication.throttled.replicas", "0-1", "partition:broker"),
        ("remote.storage.enable", "true", "can only be false"),
        ("nonsense", "1", "no topic config called 'nonsense'"),
    ],
)
def test_bad_values_are_refused_in_words(name: str, value: str, problem: str) -> None:
    assert problem in refused(alter_topic({}, one(name, value)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        ("unclean.leader.election.enable", "TRUE"),
        ("cleanup.policy", "compact, delete"),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
        ("leader.replication.throttled.replicas", ""),
        ("compression.gzip.level", "-1"),
        ("remote.storage.enable", "false"),
        ("local.retention.ms", "-2"),
    ],
)
def test_good_values(name: str, value: str) -> None:
    resolve_topic(altered(alter_topic({}, one(name, value))))


def test_configs_that_contradict_each_other() -> None:
    lags = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    assert "larger than" in refused(validated_topic_configs(lags))
    assert "compacted" in refused(
        validated_topic_configs({"cleanup.policy": "compact", "retention": "delivered"})
    )


def test_a_null_value_at_creation_is_the_default() -> None:
    assert altered(validated_topic_configs({"retention.ms": None})) == {}
    assert "needs a value" in refused(alter_topic({}, one("retention.ms", None)))


def test_deleting_what_is_not_set_is_fine_whatever_it_is() -> None:
    """kafka-reassign-partitions --verify clears throttles that we do not have."""
    gone = [Alteration("replica.alter.log.dirs.io.max.bytes.per.second", AlterOp.DELETE, None)]
    assert altered(alter_broker({}, gone, broker_id=1)) == {}


def test_broker_configs() -> None:
    assert altered(alter_broker({}, one("log.retention.ms", "5"), broker_id=None)) == {
        "log.retention.ms": "5"
    }
    assert altered(alter_broker({}, one("max.connections", "5"), broker_id=1)) == {"max.connections": "5"}
    assert "same on all brokers" in refused(alter_broker({}, one("min.insync.replicas", "2"), broker_id=1))
    assert "settings" in refused(alter_broker({}, one("log.dirs", "/x"), broker_id=None))
    assert "no broker config" in refused(alter_broker({}, one("nonsense", "1"), broker_id=None))
    assert "at least" in refused(alter_broker({}, one("max.connections", "-1"), broker_id=1))
    (entry,) = describe_broker(BrokerLayers(dynamic={"max.connections": "5"}), ["max.connections"])
    assert (entry.value, entry.source, entry.read_only) == ("5", ConfigSource.DYNAMIC_BROKER, False)
    assert BROKER_CONFIGS["node.id"].scope is Scope.READ_ONLY


def test_typed_values() -> None:
    config = resolve_topic({"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"})
    assert config.is_compacted and config.deletes_by_retention and config.is_log_append_time
    assert not TopicConfig().is_compacted
    assert TOPIC_CONFIGS["segment.ms"].type is ConfigType.LONG
