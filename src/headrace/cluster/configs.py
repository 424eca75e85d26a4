"""Machine: which value of a config counts and why, and how configs are altered.

A topic's value is looked for in this order: the topic itself, then for each broker synonym the broker's dynamic config,
the cluster's dynamic default, the settings at start, and last the built-in default. Invariant: what is stored has
been validated; what is found stored but does not parse (X27) is passed over as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from headrace.cluster.broker_configs import BROKER_CONFIGS
from headrace.cluster.config_keys import (
    ConfigKey,
    ConfigSource,
    ConfigStanding,
    ConfigType,
    Importance,
    Scope,
    Synonym,
    Value,
    split_list,
)
from headrace.cluster.group_defaults import BOUNDS, LONGER_THAN
from headrace.cluster.topic_configs import TOPIC_CONFIG_ALIASES, TOPIC_CONFIGS, TopicConfig, field_name
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected

__all__ = [
    "BROKER_CONFIGS",
    "TOPIC_CONFIGS",
    "AlterOp",
    "Alteration",
    "BrokerLayers",
    "ConfigEntry",
    "ConfigKey",
    "ConfigSource",
    "ConfigType",
    "Importance",
    "Scope",
    "TopicConfig",
    "alter_broker",
    "alter_topic",
    "broker_value",
    "describe_broker",
    "describe_topic",
    "resolve_topic",
    "validated_topic_configs",
]

NO_CONFIGS: Mapping[str, str] = {}


class BrokerLayers(NamedTuple):
    """What a broker has to say about configs, strongest first."""

    dynamic: Mapping[str, str] = NO_CONFIGS
    dynamic_default: Mapping[str, str] = NO_CONFIGS
    static: Mapping[str, str] = NO_CONFIGS


NO_LAYERS = BrokerLayers()


class SynonymValue(NamedTuple):
    """A place that gives a config its value, in that place's own name and unit."""

    name: str
    value: str | None
    source: ConfigSource


class _Candidate(NamedTuple):
    shown: SynonymValue
    text: str | None
    """The value in the unit of the config that is looked for."""


class ConfigEntry(NamedTuple):
    """One line of DescribeConfigs. `value` is None when unset or sensitive (X25)."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    documentation: str
    synonyms: tuple[SynonymValue, ...]


# -- effective values -----------------------------------------------------------------------------------------------


def resolve_topic(overrides: Mapping[str, str], layers: BrokerLayers = NO_LAYERS) -> TopicConfig:
    """The typed configs of a topic. Computed once per change and handed to everyone who asks."""
    values: dict[str, Any] = {}
    for name, key in TOPIC_CONFIGS.items():
        for candidate in candidates(key, overrides, layers):
            values[field_name(name)] = _parsed(key, candidate.text)
            break
    return TopicConfig(**values)


def describe_topic(
    overrides: Mapping[str, str], layers: BrokerLayers = NO_LAYERS, names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Every topic config, or the named ones that exist, as DescribeConfigs wants them (K12)."""
    return describe_overrides(TOPIC_CONFIGS, overrides, layers, names, ConfigSource.DYNAMIC_TOPIC)


def describe_overrides(
    table: Mapping[str, ConfigKey],
    overrides: Mapping[str, str],
    layers: BrokerLayers,
    names: Iterable[str] | None,
    source: ConfigSource,
) -> list[ConfigEntry]:
    """Of a topic or a group: what is set for it, or else what brokers say of all."""
    wanted = table if names is None else [name for name in names if name in table]
    return [
        _entry(key, list(candidates(key, overrides, layers, source)), read_only=key.fixed)
        for key in (table[name] for name in wanted)
    ]


def describe_broker(layers: BrokerLayers, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    wanted = BROKER_CONFIGS if names is None else [name for name in names if name in BROKER_CONFIGS]
    return [
        _entry(key, list(_broker_candidates(key, layers)), read_only=key.scope is Scope.READ_ONLY)
        for key in (BROKER_CONFIGS[name] for name in wanted)
    ]


def broker_value(key: ConfigKey, layers: BrokerLayers) -> Value:
    """The parsed effective value of a broker config: what its declaration is for."""
    for candidate in _broker_candidates(key, layers):
        return _parsed(key, candidate.text)
    return None


def broker_number(key: ConfigKey, layers: BrokerLayers) -> int | float:
    value = broker_value(key, layers)
    assert isinstance(value, int | float)
    return value


def _entry(key: ConfigKey, candidates: list[_Candidate], *, read_only: bool) -> ConfigEntry:
    unset = _Candidate(SynonymValue(key.name, None, ConfigSource.DEFAULT), None)
    found = candidates[0] if candidates else unset
    synonyms = tuple(candidate.shown for candidate in candidates)
    if key.sensitive:
        synonyms = tuple(synonym._replace(value=None) for synonym in synonyms)
    return ConfigEntry(
        key.name,
        None if key.sensitive else found.text,
        found.shown.source,
        read_only,
        key.sensitive,
        key.type,
        key.documentation,
        synonyms,
    )


def candidates(
    key: ConfigKey,
    overrides: Mapping[str, str],
    layers: BrokerLayers,
    source: ConfigSource = ConfigSource.DYNAMIC_TOPIC,
) -> Iterator[_Candidate]:
    """Every place that gives a config of a topic or a group a value, strongest first; the first one counts."""
    override = overrides.get(key.name)
    if override is not None and not key.fixed and _is_valid(key, override):
        yield _Candidate(SynonymValue(key.name, override, source), override)
    for synonym in key.synonyms:
        yield from _broker_given(key, synonym, layers)
    name = key.synonyms[0].name if key.synonyms else key.name
    yield _Candidate(SynonymValue(name, key.default, ConfigSource.DEFAULT), key.default)


def _broker_candidates(key: ConfigKey, layers: BrokerLayers) -> Iterator[_Candidate]:
    own = (Synonym(key.name), *key.synonyms)
    for synonym in own:
        yield from _broker_given(key, synonym, layers)
    for synonym in own:
        default = BROKER_CONFIGS[synonym.name].default
        if default is not None:
            yield _Candidate(
                SynonymValue(synonym.name, default, ConfigSource.DEFAULT), _scaled(default, synonym.scale)
            )


def _broker_given(key: ConfigKey, synonym: Synonym, layers: BrokerLayers) -> Iterator[_Candidate]:
    places = (
        (layers.dynamic, ConfigSource.DYNAMIC_BROKER),
        (layers.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (layers.static, ConfigSource.STATIC_BROKER),
    )
    for configs, source in places:
        text = configs.get(synonym.name)
        if (
            text is not None
            and (scaled := _scaled(text, synonym.scale)) is not None
            and _is_valid(key, scaled)
        ):
            yield _Candidate(SynonymValue(synonym.name, text, source), scaled)


def _scaled(text: str, scale: int) -> str | None:
    """Hours or minutes as milliseconds; -1 stays for ever."""
    if scale == 1:
        return text
    try:
        number = int(text)
    except ValueError:
        return None
    return str(number if number < 0 else number * scale)


def _is_valid(key: ConfigKey, text: str) -> bool:
    try:
        key.parse(text)
    except ValueError:
        return False
    return True


def _parsed(key: ConfigKey, text: str | None) -> Value:
    return None if text is None else key.parse(text)


# -- changes --------------------------------------------------------------------------------------------------------


class AlterOp(IntEnum):
    """Numbers as in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    name: str
    op: AlterOp
    value: str | None


def canonical_topic_config(name: str) -> str:
    return TOPIC_CONFIG_ALIASES.get(name, name)


def validated_topic_configs(
    configs: Mapping[str, str | None], layers: BrokerLayers = NO_LAYERS
) -> dict[str, str] | Rejected:
    """The overrides of a topic that is created or replaced whole; a None value means the default."""
    return alter_topic(
        {},
        [Alteration(name, AlterOp.SET, value) for name, value in configs.items() if value is not None],
        layers,
    )


def alter_topic(
    overrides: Mapping[str, str], alterations: Iterable[Alteration], layers: BrokerLayers = NO_LAYERS
) -> dict[str, str] | Rejected:
    """The topic's overrides after the alterations, all or nothing."""

    def current(key: ConfigKey) -> str:
        for candidate in candidates(key, overrides, layers):
            return candidate.text or ""
        return ""

    canonical = [
        alteration._replace(name=canonical_topic_config(alteration.name)) for alteration in alterations
    ]
    for alteration in canonical:
        key = TOPIC_CONFIGS.get(alteration.name)
        if key is None:
            return Rejected(ErrorKind.INVALID_CONFIG, f"there is no topic config called {alteration.name!r}")
        if (
            key.fixed
            and alteration.op is not AlterOp.DELETE
            and (alteration.value or "").strip().lower() != key.default
        ):
            return Rejected(
                ErrorKind.INVALID_CONFIG, f"{key.name}: {key.documentation} It can only be {key.default}."
            )
    after = altered(TOPIC_CONFIGS, overrides, canonical, current)
    if isinstance(after, Rejected):
        return after
    problem = _topic_problem(resolve_topic(after, layers))
    return Rejected(ErrorKind.INVALID_CONFIG, problem) if problem else after


def alter_broker(
    overrides: Mapping[str, str],
    alterations: Iterable[Alteration],
    *,
    broker_id: int | None,
    layers: BrokerLayers = NO_LAYERS,
) -> dict[str, str] | Rejected:
    """The dynamic configs of one broker, or of all when broker_id is None, after the alterations."""

    def current(key: ConfigKey) -> str:
        for candidate in _broker_candidates(key, layers):
            return candidate.text or ""
        return ""

    alterations = list(alterations)
    for alteration in alterations:
        key = BROKER_CONFIGS.get(alteration.name)
        if key is None:
            return Rejected(ErrorKind.INVALID_CONFIG, f"there is no broker config called {alteration.name!r}")
        if alteration.op is AlterOp.DELETE and key.name not in overrides:
            continue  # kafka-reassign-partitions clears throttles whether they are set or not
        if key.scope is Scope.READ_ONLY:
            return Rejected(ErrorKind.INVALID_CONFIG, f"{key.name} {_WHY_NOT[key.standing](key)}")
        if key.scope is Scope.CLUSTER and broker_id is not None:
            return Rejected(
                ErrorKind.INVALID_CONFIG,
                f"{key.name} must be the same on all brokers; set it as the cluster default (empty broker name)",
            )
    after = altered(BROKER_CONFIGS, overrides, alterations, current)
    if isinstance(after, Rejected) or broker_id is not None:
        return after
    problem = _group_defaults_problem(layers._replace(dynamic_default=after))
    return Rejected(ErrorKind.INVALID_CONFIG, problem) if problem else after


_WHY_NOT: Mapping[ConfigStanding, Callable[[ConfigKey], str]] = {
    ConfigStanding.SETTING: lambda key: "comes from the broker's settings; change it there and restart",
    ConfigStanding.TOPIC_DEFAULT: lambda key: f"can't be set while the broker runs. {key.documentation}",
    ConfigStanding.BUILT_IN: lambda key: (
        f"says how Headrace is built and can't be changed. {key.documentation}"
    ),
    ConfigStanding.IGNORED: lambda key: f"would change nothing. {key.documentation}",
}


def altered(
    table: Mapping[str, ConfigKey],
    overrides: Mapping[str, str],
    alterations: Iterable[Alteration],
    current: Callable[[ConfigKey], str],
) -> dict[str, str] | Rejected:
    result = dict(overrides)
    seen: set[str] = set()
    for name, op, value in alterations:
        key = table[name]
        if name in seen:
            return Rejected(ErrorKind.INVALID_REQUEST, f"{name} is altered twice in one request")
        seen.add(name)
        if op is AlterOp.DELETE:
            result.pop(name, None)
            continue
        if value is None:
            return Rejected(ErrorKind.INVALID_CONFIG, f"{name} needs a value")
        if op is not AlterOp.SET:
            if key.type is not ConfigType.LIST:
                return Rejected(
                    ErrorKind.INVALID_CONFIG, f"{name} is not a list, so {op.name} does not apply to it"
                )
            value = _list_altered(result.get(name, current(key)), op, value)
        try:
            key.parse(value)
        except ValueError as problem:
            return Rejected(ErrorKind.INVALID_CONFIG, str(problem))
        result[name] = value
    return result


def _group_defaults_problem(layers: BrokerLayers) -> str | None:
    """What groups are given must be what they may set, and a session longer than the time between two heartbeats."""
    for bounds in BOUNDS:
        value, low, high = (0 if key is None else broker_number(key, layers) for key in bounds)
        if not low <= value <= high:
            least = f"{bounds.low.name} ({low})" if bounds.low is not None else "0"
            return (
                f"{bounds.default.name} is {value}, and must lie between "
                f"{least} and {bounds.high.name} ({high})"
            )
    for longer, shorter in LONGER_THAN:
        if broker_number(longer.default, layers) <= broker_number(shorter.default, layers):
            return f"{longer.default.name} must be greater than {shorter.default.name}"
    return None


def _list_altered(held: str, op: AlterOp, value: str) -> str:
    members = list(split_list(held))
    change = split_list(value)
    if op is AlterOp.APPEND:
        members.extend(member for member in change if member not in members)
    else:
        members = [member for member in members if member not in change]
    return ",".join(members)


def _topic_problem(config: TopicConfig) -> str | None:
    """What is wrong with configs that are each fine alone."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        return "min.compaction.lag.ms must not be larger than max.compaction.lag.ms"
    if config.is_compacted and config.retention == "delivered":
        return "headrace.retention=delivered drops old records by delivery, which a compacted topic can't do"
    if config.is_compacted and config.delay_enabled:
        return "headrace.delay.enabled keeps messages that wait in the log, where compaction would take them for old ones"
    return None
