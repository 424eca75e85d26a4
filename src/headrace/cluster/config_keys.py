"""Codec: what a config is: its name, type, default, bounds and words for people, and how its text becomes a value.

Texts are parsed strictly: on the Kafka door a duration or size is a plain number (the CLI converts `7d` before it gets
here). A problem is one sentence that names the config, what was given and what is allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from headrace.records.masks import mask_problem

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

Value = int | float | bool | str | tuple[str, ...] | None
Check = Callable[[Value], str | None]


class ConfigType(IntEnum):
    """Numbers as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where an effective value came from; numbers as in DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


class Importance(IntEnum):
    HIGH = 1
    MEDIUM = 2
    LOW = 3


class Scope(IntEnum):
    """Who may change a broker config while the broker runs."""

    READ_ONLY = 1
    """Only the settings at start."""
    CLUSTER = 2
    """The cluster-wide default, because brokers must agree on it."""
    PER_BROKER = 3
    """One broker or the cluster-wide default."""


class ConfigStanding(Enum):
    """What makes a broker config more than words."""

    READ = "read"
    """The broker reads it through its declaration."""
    TOPIC_DEFAULT = "topic default"
    """It is the default of a topic config, or of another of these, in another unit."""
    SETTING = "setting"
    """It shows a setting that the broker was started with."""
    BUILT_IN = "built in"
    """It shows how the broker is built."""
    IGNORED = "ignored"
    """Nothing does: it is shown because tools expect it, and says so."""


class Synonym(NamedTuple):
    """A broker config that sets the default of another config, in another unit if `scale` is not 1."""

    name: str
    scale: int = 1


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: str | None
    documentation: str
    check: Check | None = None
    synonyms: tuple[Synonym, ...] = ()
    importance: Importance = Importance.MEDIUM
    scope: Scope = Scope.CLUSTER
    aliases: tuple[str, ...] = ()
    fixed: bool = False
    """A topic config that can be seen but not changed."""
    standing: ConfigStanding = ConfigStanding.READ

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """The value of a text, or ValueError with a sentence for the person who wrote it."""
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError as problem:
            raise ValueError(f"{self.name}: {problem}") from None
        problem_found = self.check(value) if self.check is not None else None
        if problem_found is not None:
            shown = "the given value" if self.sensitive else f'"{text}"'
            raise ValueError(f"{self.name}: {shown} {problem_found}")
        return value


def _integer(bits: int) -> Callable[[str], int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def parse(text: str) -> int:
        # int() alone would take "1_000", "٣" and "+5".
        if not re.fullmatch(r"-?[0-9]{1,19}", text):
            raise ValueError(f'"{text[:64]}" is not a whole number')
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f'"{text}" does not fit in {bits} bits')
        return value

    return parse


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(f'"{text[:64]}" is neither true nor false')
    return lowered == "true"


def _double(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f'"{text[:64]}" is not a number') from None
    if not math.isfinite(value):
        raise ValueError(f'"{text[:64]}" is not a finite number')
    return value


def split_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text.strip() else ()


_PARSERS: dict[ConfigType, Callable[[str], Value]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _integer(32),
    ConfigType.SHORT: _integer(16),
    ConfigType.LONG: _integer(64),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: split_list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


def between(low: float, high: float) -> Check:
    def check(value: Value) -> str | None:
        assert isinstance(value, int | float)
        if low <= value <= high:
            return None
        return f"is out of range: it must be from {low} to {high}"

    return check


def at_least(low: float) -> Check:
    def check(value: Value) -> str | None:
        assert isinstance(value, int | float)
        return None if value >= low else f"is too small: it must be at least {low}"

    return check


def one_of(*allowed: str) -> Check:
    def check(value: Value) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}"

    return check


def masks(value: Value) -> str | None:
    """W19."""
    assert isinstance(value, tuple)
    return mask_problem(value)


def subset_of(*allowed: str) -> Check:
    """A list of which each member is allowed and named once; it may be empty, as in Kafka 4 (F35)."""

    def check(value: Value) -> str | None:
        assert isinstance(value, tuple)
        if set(value) <= set(allowed) and len(set(value)) == len(value):
            return None
        return f"must be a list of {', '.join(allowed)}, each at most once"

    return check


def throttled_replicas(value: Value) -> str | None:
    """`*`, or partition:broker pairs."""
    assert isinstance(value, tuple)
    if value in ((), ("*",)) or all(re.fullmatch(r"[0-9]{1,10}:[0-9]{1,10}", pair) for pair in value):
        return None
    return 'must be "*" or a list of partition:broker pairs such as 0:1,1:2'
