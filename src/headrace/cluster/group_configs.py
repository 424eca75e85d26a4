"""Machine: configs of groups (KIP-1011, KIP-932), each declared once and read through its declaration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from headrace.cluster.config_keys import ConfigKey, ConfigType, Value, between, one_of
from headrace.cluster.configs import ConfigEntry, Source

AUTO_OFFSET_RESET: Final = ConfigKey(
    "share.auto.offset.reset", ConfigType.STRING, "latest",
    "Where a share group starts that has no position yet.", one_of("earliest", "latest"),
)  # fmt: skip
DELIVERY_COUNT_LIMIT: Final = ConfigKey(
    "share.delivery.count.limit", ConfigType.INT, "5",
    "How often a record is delivered before it is given up.", between(2, 100),
)  # fmt: skip
ISOLATION_LEVEL: Final = ConfigKey(
    "share.isolation.level", ConfigType.STRING, "read_uncommitted",
    "Whether a share group gets records of transactions that are open or were aborted.",
    one_of("read_committed", "read_uncommitted"),
)  # fmt: skip
MAX_RECORD_LOCKS: Final = ConfigKey(
    "share.partition.max.record.locks", ConfigType.INT, "2000",
    "Records of one partition that may be held at once.", between(100, 10_000),
)  # fmt: skip
LOCK_DURATION_MS: Final = ConfigKey(
    "share.record.lock.duration.ms", ConfigType.INT, "30000",
    "How long a share consumer holds a record.", between(1_000, 3_600_000),
)  # fmt: skip

GROUP_CONFIGS: Final[dict[str, ConfigKey]] = {
    key.name: key
    for key in (AUTO_OFFSET_RESET, DELIVERY_COUNT_LIMIT, ISOLATION_LEVEL, MAX_RECORD_LOCKS, LOCK_DURATION_MS)
}


class ShareConfig(NamedTuple):
    lock_ms: int
    max_deliveries: int
    max_locks: int
    starts_earliest: bool
    is_uncommitted: bool


def share_config(configs: Mapping[str, str]) -> ShareConfig:
    return ShareConfig(
        _number(LOCK_DURATION_MS, configs),
        _number(DELIVERY_COUNT_LIMIT, configs),
        _number(MAX_RECORD_LOCKS, configs),
        _value(AUTO_OFFSET_RESET, configs) == "earliest",
        _value(ISOLATION_LEVEL, configs) == "read_uncommitted",
    )


def describe_group(configs: Mapping[str, str], names: Sequence[str] | None) -> list[ConfigEntry]:
    """As DescribeConfigs shows them: every config, or those that are named."""
    return [
        ConfigEntry(
            name,
            configs.get(name, key.default),
            Source.DYNAMIC_GROUP if name in configs else Source.DEFAULT,
            key.fixed,
            False,
            key.type,
            key.documentation,
            (),
        )
        for name, key in GROUP_CONFIGS.items()
        if names is None or name in names
    ]


def problem(name: str, value: str) -> str | None:
    """Why a config of a group can not have this value."""
    key = GROUP_CONFIGS.get(name)
    if key is None:
        return f"groups have no config called {name}"
    if key.fixed and value != key.default:
        return f"{name}: {key.documentation} It can only be {key.default}."
    try:
        key.parse(value)
    except ValueError as refusal:
        return str(refusal)
    return None


def _value(key: ConfigKey, configs: Mapping[str, str]) -> Value:
    assert key.default is not None
    try:
        return key.parse(configs.get(key.name, key.default))
    except ValueError:
        # Not by us: what is found stored and does not parse counts as not there (X27).
        return key.parse(key.default)


def _number(key: ConfigKey, configs: Mapping[str, str]) -> int:
    value = _value(key, configs)
    assert isinstance(value, int)
    return value
