"""Machine: configs of groups (KIP-1011, KIP-932, KIP-1240), each declared once and read through its declaration.

What is not set for a group is what brokers say of all groups (group_defaults). A value that was legal when it was set
and lies outside of the bounds by now counts as the nearest that is legal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.cluster.config_keys import ConfigKey, ConfigSource, ConfigType, Synonym, Value, at_least, one_of
from headrace.cluster.configs import (
    NO_LAYERS,
    Alteration,
    AlterOp,
    BrokerLayers,
    ConfigEntry,
    altered,
    broker_number,
    broker_value,
    candidates,
    describe_overrides,
)
from headrace.cluster.group_defaults import (
    CONSUMER_HEARTBEAT,
    CONSUMER_MAX_SIZE,
    CONSUMER_MIGRATION,
    CONSUMER_SESSION,
    DELIVERY_COUNT,
    LOCK_DURATION,
    LONGER_THAN,
    RECORD_LOCKS,
    SHARE_HEARTBEAT,
    SHARE_MAX_SIZE,
    SHARE_SESSION,
    STREAMS_DELAY,
    STREAMS_HEARTBEAT,
    STREAMS_INTERVAL,
    STREAMS_MAX_SIZE,
    STREAMS_SESSION,
    STREAMS_STANDBYS,
    Bounds,
)
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected

_AT_ONCE = "A new assignment is made at once, when a member of the group asks next."


def _bounded(bounds: Bounds, words: str, least: int = 1) -> ConfigKey:
    return _defaulted(bounds.default, words, least)


def _defaulted(default: ConfigKey, words: str, least: int) -> ConfigKey:
    own = default.name.removeprefix("group.")
    return ConfigKey(own, ConfigType.INT, default.default, words, at_least(least), (Synonym(default.name),))


def _fixed(name: str, broker_config: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, "0", _AT_ONCE, synonyms=(Synonym(broker_config),), fixed=True)


CONSUMER_SESSION_TIMEOUT_MS: Final = _bounded(CONSUMER_SESSION, "How long a member may be silent (KIP-848).")
CONSUMER_HEARTBEAT_INTERVAL_MS: Final = _bounded(CONSUMER_HEARTBEAT, "How often members report (KIP-848).")
CONSUMER_ASSIGNMENT_INTERVAL_MS: Final = _fixed(
    "consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms"
)
SHARE_SESSION_TIMEOUT_MS: Final = _bounded(SHARE_SESSION, "How long a member of a share group may be silent.")
SHARE_HEARTBEAT_INTERVAL_MS: Final = _bounded(SHARE_HEARTBEAT, "How often members of a share group report.")
SHARE_ASSIGNMENT_INTERVAL_MS: Final = _fixed(
    "share.assignment.interval.ms", "group.share.assignment.interval.ms"
)
AUTO_OFFSET_RESET: Final = ConfigKey(
    "share.auto.offset.reset", ConfigType.STRING, "latest",
    "Where a share group starts that has no position yet.", one_of("earliest", "latest"),
)  # fmt: skip
DELIVERY_COUNT_LIMIT: Final = _bounded(
    DELIVERY_COUNT, "How often a record is delivered before it is given up."
)
ISOLATION_LEVEL: Final = ConfigKey(
    "share.isolation.level", ConfigType.STRING, "read_uncommitted",
    "Whether a share group gets records of transactions that are open or were aborted.",
    one_of("read_committed", "read_uncommitted"),
)  # fmt: skip
MAX_RECORD_LOCKS: Final = _bounded(RECORD_LOCKS, "Records of one partition that may be held at once.")
LOCK_DURATION_MS: Final = _bounded(LOCK_DURATION, "How long a share consumer holds a record.")
RENEW_ENABLE: Final = ConfigKey(
    "share.renew.acknowledge.enable", ConfigType.BOOLEAN, "true",
    "Whether a share consumer may prolong its hold on a record (KIP-1222).",
)  # fmt: skip

STREAMS_SESSION_TIMEOUT_MS: Final = _bounded(
    STREAMS_SESSION, "How long a member of a streams group may be silent."
)
STREAMS_HEARTBEAT_INTERVAL_MS: Final = _bounded(
    STREAMS_HEARTBEAT, "How often members of a streams group report."
)
STREAMS_ASSIGNMENT_INTERVAL_MS: Final = _bounded(
    STREAMS_INTERVAL, "How soon after an assignment of tasks the next may follow.", 0
)
STREAMS_NUM_STANDBY_REPLICAS: Final = _bounded(
    STREAMS_STANDBYS, "Standbys of each stateful task: other instances that keep a copy of its state.", 0
)
STREAMS_INITIAL_DELAY_MS: Final = _defaulted(
    STREAMS_DELAY, "How long the first assignment of a streams group waits for more members.", 0
)

_BOUNDED: Final[dict[ConfigKey, Bounds]] = {
    CONSUMER_SESSION_TIMEOUT_MS: CONSUMER_SESSION,
    CONSUMER_HEARTBEAT_INTERVAL_MS: CONSUMER_HEARTBEAT,
    SHARE_SESSION_TIMEOUT_MS: SHARE_SESSION,
    SHARE_HEARTBEAT_INTERVAL_MS: SHARE_HEARTBEAT,
    DELIVERY_COUNT_LIMIT: DELIVERY_COUNT,
    MAX_RECORD_LOCKS: RECORD_LOCKS,
    LOCK_DURATION_MS: LOCK_DURATION,
    STREAMS_SESSION_TIMEOUT_MS: STREAMS_SESSION,
    STREAMS_HEARTBEAT_INTERVAL_MS: STREAMS_HEARTBEAT,
    STREAMS_ASSIGNMENT_INTERVAL_MS: STREAMS_INTERVAL,
    STREAMS_NUM_STANDBY_REPLICAS: STREAMS_STANDBYS,
}
_OWN: Final[dict[Bounds, ConfigKey]] = {bounds: key for key, bounds in _BOUNDED.items()}

GROUP_CONFIGS: Final[dict[str, ConfigKey]] = {
    key.name: key
    for key in sorted(
        (
            *_BOUNDED,
            CONSUMER_ASSIGNMENT_INTERVAL_MS,
            SHARE_ASSIGNMENT_INTERVAL_MS,
            AUTO_OFFSET_RESET,
            ISOLATION_LEVEL,
            RENEW_ENABLE,
            STREAMS_INITIAL_DELAY_MS,
        ),
        key=lambda key: key.name,
    )
}


class ShareConfig(NamedTuple):
    """What whoever leads a partition has to know of a share group that reads it."""

    lock_ms: int
    max_deliveries: int
    max_locks: int
    starts_earliest: bool
    is_uncommitted: bool
    may_renew: bool


class MemberConfig(NamedTuple):
    """What the coordinator of a group has to know of it; sizes and migration are the same for all groups."""

    consumer_session_ms: int
    consumer_heartbeat_ms: int
    share_session_ms: int
    share_heartbeat_ms: int
    streams_session_ms: int
    streams_heartbeat_ms: int
    streams_interval_ms: int
    streams_standbys: int
    streams_delay_ms: int
    consumer_max_size: int
    share_max_size: int
    streams_max_size: int
    consumer_migration: str


def share_config(configs: Mapping[str, str], layers: BrokerLayers = NO_LAYERS) -> ShareConfig:
    return ShareConfig(
        _number(LOCK_DURATION_MS, configs, layers),
        _number(DELIVERY_COUNT_LIMIT, configs, layers),
        _number(MAX_RECORD_LOCKS, configs, layers),
        _value(AUTO_OFFSET_RESET, configs, layers) == "earliest",
        _value(ISOLATION_LEVEL, configs, layers) == "read_uncommitted",
        _value(RENEW_ENABLE, configs, layers) is True,
    )


def member_config(configs: Mapping[str, str], layers: BrokerLayers = NO_LAYERS) -> MemberConfig:
    return MemberConfig(
        _number(CONSUMER_SESSION_TIMEOUT_MS, configs, layers),
        _number(CONSUMER_HEARTBEAT_INTERVAL_MS, configs, layers),
        _number(SHARE_SESSION_TIMEOUT_MS, configs, layers),
        _number(SHARE_HEARTBEAT_INTERVAL_MS, configs, layers),
        _number(STREAMS_SESSION_TIMEOUT_MS, configs, layers),
        _number(STREAMS_HEARTBEAT_INTERVAL_MS, configs, layers),
        _number(STREAMS_ASSIGNMENT_INTERVAL_MS, configs, layers),
        _number(STREAMS_NUM_STANDBY_REPLICAS, configs, layers),
        _number(STREAMS_INITIAL_DELAY_MS, configs, layers),
        int(broker_number(CONSUMER_MAX_SIZE, layers)),
        int(broker_number(SHARE_MAX_SIZE, layers)),
        int(broker_number(STREAMS_MAX_SIZE, layers)),
        str(broker_value(CONSUMER_MIGRATION, layers)),
    )


def describe_group(
    configs: Mapping[str, str], layers: BrokerLayers, names: Sequence[str] | None
) -> list[ConfigEntry]:
    """As DescribeConfigs shows them: every config, or those that are named."""
    return describe_overrides(GROUP_CONFIGS, configs, layers, names, ConfigSource.DYNAMIC_GROUP)


def alter_group(
    configs: Mapping[str, str], alterations: Iterable[Alteration], layers: BrokerLayers = NO_LAYERS
) -> dict[str, str] | Rejected:
    """What is set for the group after the alterations, all or nothing."""
    alterations = list(alterations)
    for alteration in alterations:
        key = GROUP_CONFIGS.get(alteration.name)
        if key is None:
            return Rejected(ErrorKind.INVALID_CONFIG, f"groups have no config called {alteration.name}")
        if key.fixed and alteration.op is not AlterOp.DELETE and alteration.value != key.default:
            detail = f"{key.name}: {key.documentation} It can only be {key.default}."
            return Rejected(ErrorKind.INVALID_CONFIG, detail)
    after = altered(GROUP_CONFIGS, configs, alterations, lambda key: key.default or "")
    if isinstance(after, Rejected):
        return after
    problem = _problem(after, {alteration.name for alteration in alterations}, layers)
    return Rejected(ErrorKind.INVALID_CONFIG, problem) if problem else after


def _problem(configs: Mapping[str, str], changed: set[str], layers: BrokerLayers) -> str | None:
    """Of what was changed, what lies outside of the bounds; and what does not go together."""
    for key, bounds in _BOUNDED.items():
        if key.name not in changed or key.name not in configs:
            continue
        low, high = _limits(bounds, layers)
        if not low <= int(configs[key.name]) <= high:
            named = f" ({bounds.low.name})" if bounds.low is not None else ""
            return (
                f"{key.name} must be from {low}{named} to {high} ({bounds.high.name}); "
                "an administrator can move these bounds"
            )
    for longer, shorter in LONGER_THAN:
        if _number(_OWN[longer], configs, layers) <= _number(_OWN[shorter], configs, layers):
            return f"{_OWN[longer].name} must be greater than {_OWN[shorter].name}"
    return None


def _value(key: ConfigKey, configs: Mapping[str, str], layers: BrokerLayers) -> Value:
    """What was stored and does not parse counts as not there (X27)."""
    first = next(candidates(key, configs, layers, ConfigSource.DYNAMIC_GROUP))
    return key.parse(first.text or "")


def _number(key: ConfigKey, configs: Mapping[str, str], layers: BrokerLayers) -> int:
    value = _value(key, configs, layers)
    assert isinstance(value, int)
    bounds = _BOUNDED.get(key)
    if bounds is None:
        return value
    low, high = _limits(bounds, layers)
    return max(low, min(value, high))


def _limits(bounds: Bounds, layers: BrokerLayers) -> tuple[int, int]:
    low = 0 if bounds.low is None else int(broker_number(bounds.low, layers))
    return low, int(broker_number(bounds.high, layers))
