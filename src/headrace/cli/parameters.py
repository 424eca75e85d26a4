"""Command: how people write values on the command line: durations, sizes, rates, headers, configs, positions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from headrace.core.units import format_duration_ms, parse_duration_ms, parse_size

if TYPE_CHECKING:
    from headrace.cluster.config_keys import ConfigKey
    from headrace.records.filters import Filter
    from headrace.records.positions import Position


MOST = 2**31 - 1
"""What Kafka's protocol can say of partitions, brokers and times."""
LAST_OFFSET = 2**63 - 1
MOST_PARTITIONS = 100_000
MOST_REPLICAS = 10_000
"""What librdkafka takes for a topic."""
LONGEST_WAIT_MS = 3_600_000
"""What librdkafka waits for an answer."""
LONGEST_MS = 36_500 * 24 * 3_600_000
"""A hundred years: Python's clocks end at 292."""


class _Parsed(click.ParamType[Any]):
    """A value that a parser turns from text, with the parser's own words when it can't."""

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


class Number(click.IntRange):
    """A whole number with an end: what no machine counts to is refused here, and not by a library that speaks to programmers."""

    name = "integer"

    def __init__(self, least: int | None = None, most: int = MOST) -> None:
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = int(value)
        except ValueError:
            self.fail(f'"{value}" is not a whole number', param, ctx)
        if self.min is not None and number < self.min:
            self.fail(f"{number} is less than {self.min:.0f}", param, ctx)
        if self.max is not None and number > self.max:
            self.fail(f"{number} is more than {self.max:.0f}", param, ctx)
        return number

    def _describe_range(self) -> str:
        """For help: an end that only machines have is not worth a word."""
        if self.max == MOST:
            return "" if self.min is None else f"x>={self.min}"
        return super()._describe_range()


class Duration(_Parsed):
    """Milliseconds."""

    name = "duration"

    def __init__(self, least: int = -1, most: int = LONGEST_MS) -> None:
        """-1 is for ever."""
        super().__init__(lambda text: _between(text, parse_duration_ms(text), least, most))


class Size(_Parsed):
    """Bytes."""

    name = "size"

    def __init__(self) -> None:
        super().__init__(parse_size)


class Count(_Parsed):
    """A number of things, also as 100k or 1M."""

    name = "count"

    def __init__(self) -> None:
        super().__init__(parse_count)


class Rate(_Parsed):
    """Things per second."""

    name = "rate"

    def __init__(self) -> None:
        super().__init__(parse_rate)


class Header(_Parsed):
    name = "key:value"

    def __init__(self) -> None:
        super().__init__(parse_header)


class StartPosition(_Parsed):
    """A Position."""

    name = "position"

    def __init__(self) -> None:
        super().__init__(_position)


class GroupTarget(_Parsed):
    """A Position, as everywhere, and +10: ten on from where the group is."""

    name = "position"

    def __init__(self) -> None:
        super().__init__(_group_target)


class Pattern(_Parsed):
    name = "regex"

    def __init__(self) -> None:
        super().__init__(_pattern)


class Where(_Parsed):
    """A Filter."""

    name = "filter"

    def __init__(self) -> None:
        super().__init__(_filter)


class MessageFormat(_Parsed):
    """The text itself, once it is known to make sense."""

    name = "format"

    def __init__(self) -> None:
        super().__init__(_message_format)


class Setting(NamedTuple):
    key: str
    value: str


class TopicSetting(_Parsed):
    """A Setting that the Kafka door takes."""

    name = "key=value"

    def __init__(self) -> None:
        super().__init__(lambda text: topic_config(parse_config(text)))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(f"{name}=") for name in _settable_topic_configs(incomplete)]


class TopicConfigName(_Parsed):
    name = "key"

    def __init__(self) -> None:
        super().__init__(lambda text: topic_config_key(text).name)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in _settable_topic_configs(incomplete)]


def _settable_topic_configs(incomplete: str) -> list[str]:
    from headrace.cluster.topic_configs import TOPIC_CONFIGS

    return [name for name, key in TOPIC_CONFIGS.items() if name.startswith(incomplete) and not key.fixed]


def _position(text: str) -> Position:
    from headrace.records.positions import parse_position

    return parse_position(text, time.time_ns() // 1_000_000)


def _group_target(text: str) -> Position:
    from headrace.records.positions import parse_target

    return parse_target(text, time.time_ns() // 1_000_000)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as problem:
        raise ValueError(f'"{text}" is not a regular expression: {problem}') from None


def _filter(text: str) -> Filter:
    from headrace.records.filters import FilterProblem, compile_filter

    try:
        return compile_filter(text)
    except FilterProblem as problem:
        raise ValueError(f"the filter makes no sense:\n{problem.pointed()}") from None


def _message_format(text: str) -> str:
    from headrace.cli.message_format import compile_format

    compile_format(text)
    return text


def _between(text: str, ms: int, least: int, most: int) -> int:
    if ms > most:
        raise ValueError(f'"{text}" is more than {format_duration_ms(most)}')
    if ms < least:
        raise ValueError(f'"{text}" is less than {format_duration_ms(least)}')
    return ms


def parse_count(text: str) -> int:
    scales = {"k": 1000, "m": 1000_000, "g": 1000_000_000}
    body, scale = (text[:-1], scales[text[-1].lower()]) if text[-1:].lower() in scales else (text, 1)
    try:
        number = float(body) * scale
    except ValueError:
        raise ValueError(f'"{text}" is not a count; write 5000, 100k or 1M') from None
    if number < 0 or number != int(number):
        raise ValueError(f'"{text}" is not a whole number of things')
    return int(number)


def parse_rate(text: str) -> float:
    """`50/s`, `3000/m`, or a bare number per second."""
    number, slash, unit = text.partition("/")
    seconds = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
    if slash and unit.strip() not in seconds:
        raise ValueError(f'"{text}" is not a rate; write 50/s or 3000/m')
    rate = parse_count(number.strip()) / (seconds[unit.strip()] if slash else 1)
    if rate <= 0:
        raise ValueError("a rate is more than nothing")
    return rate


def parse_header(text: str) -> tuple[str, bytes]:
    key, colon, value = text.partition(":")
    if not colon or not key:
        raise ValueError(f'"{text}" is not a header; write key:value')
    return key, value.strip().encode()


def parse_config(text: str) -> Setting:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f'"{text}" is not a config; write retention.ms=7d')
    return Setting(key.strip(), value.strip())


def topic_config_key(name: str) -> ConfigKey:
    """The config of this name or alias; the nearest one is told when there is none."""
    from headrace.cli.failure import did_you_mean
    from headrace.cluster.topic_configs import TOPIC_CONFIGS

    known = {alias: key for key in TOPIC_CONFIGS.values() for alias in (key.name, *key.aliases)}
    if name not in known:
        meant = did_you_mean(name, known) or "headrace topic describe NAME --all lists them"
        raise ValueError(f'there is no topic config called "{name}"; {meant}')
    return known[name]


def topic_config(setting: Setting) -> Setting:
    """As the Kafka door wants it: `retention.ms=7d` in milliseconds, `max.message.bytes=1MiB` in bytes."""
    key, value = topic_config_key(setting.key), setting.value
    if key.name.endswith(".ms"):
        value = str(parse_duration_ms(value))
    elif key.name.endswith(".bytes"):
        value = str(parse_size(value))
    key.parse(value)
    return Setting(key.name, value)
