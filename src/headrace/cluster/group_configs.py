"""Machine: configs of groups (KIP-1011, KIP-932): names, defaults, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.cluster.configs import ConfigEntry, ConfigType, Source
from headrace.core.units import is_digits

DEFAULTS: Mapping[str, str] = {
    "share.auto.offset.reset": "latest",
    "share.delivery.count.limit": "5",
    "share.isolation.level": "read_uncommitted",
    "share.partition.max.record.locks": "2000",
    "share.record.lock.duration.ms": "30000",
}
_RANGES = {
    "share.delivery.count.limit": (2, 100),
    "share.partition.max.record.locks": (100, 10_000),
    "share.record.lock.duration.ms": (1_000, 3_600_000),
}
_CHOICES = {
    "share.auto.offset.reset": ("earliest", "latest"),
    "share.isolation.level": ("read_uncommitted",),
}


class ShareConfig(NamedTuple):
    lock_ms: int
    max_deliveries: int
    max_locks: int
    starts_earliest: bool


def share_config(configs: Mapping[str, str]) -> ShareConfig:
    values = {**DEFAULTS, **configs}
    return ShareConfig(
        int(values["share.record.lock.duration.ms"]),
        int(values["share.delivery.count.limit"]),
        int(values["share.partition.max.record.locks"]),
        values["share.auto.offset.reset"] == "earliest",
    )


def describe_group(configs: Mapping[str, str], names: Sequence[str] | None) -> list[ConfigEntry]:
    """As DescribeConfigs shows them: every config, or those that are named."""
    return [
        ConfigEntry(
            name,
            configs.get(name, default),
            Source.DYNAMIC_GROUP if name in configs else Source.DEFAULT,
            False,
            False,
            ConfigType.INT if name in _RANGES else ConfigType.STRING,
            "",
            (),
        )
        for name, default in DEFAULTS.items()
        if names is None or name in names
    ]


def problem(name: str, value: str) -> str | None:
    """Why a config of a group can not have this value."""
    if name not in DEFAULTS:
        return f"groups have no config called {name}"
    if name in _CHOICES and value not in _CHOICES[name]:
        return f"{name} is one of {', '.join(_CHOICES[name])}"
    if name in _RANGES:
        low, high = _RANGES[name]
        if not is_digits(value) or len(value) > 10 or not low <= int(value) <= high:
            return f"{name} is a number from {low} to {high}"
    return None
