"""Settings under Kafka's names: what differs from the default is shown as set here, the rest as defaults (K12)."""

from __future__ import annotations

from headrace.cluster.config_keys import ConfigSource
from headrace.cluster.configs import BrokerLayers, describe_topic
from headrace.node.settings import Settings
from headrace.node.static_configs import static_configs


def source_of(name: str, settings: Settings) -> tuple[str | None, ConfigSource]:
    (entry,) = describe_topic({}, BrokerLayers(static=static_configs(settings)), [name])
    return entry.value, entry.source


def test_defaults_are_shown_as_defaults() -> None:
    for name, value in (
        ("retention.ms", "604800000"),
        ("segment.bytes", str(1 << 30)),
        ("headrace.flush", "commit"),
    ):
        assert source_of(name, Settings()) == (value, ConfigSource.DEFAULT)


def test_what_was_set_is_shown_as_set_here() -> None:
    settings = Settings(retention_ms=1234, flush="interval", flush_interval_ms=77)
    assert source_of("retention.ms", settings) == ("1234", ConfigSource.STATIC_BROKER)
    assert source_of("headrace.flush", settings) == ("interval", ConfigSource.STATIC_BROKER)
    assert source_of("flush.ms", settings) == ("77", ConfigSource.STATIC_BROKER)


def test_where_our_default_is_not_kafkas_the_difference_is_shown() -> None:
    given = static_configs(Settings())
    assert given["group.initial.rebalance.delay.ms"] == "0"
    assert given["log.retention.check.interval.ms"] == "30000"
    assert "log.retention.ms" not in given
