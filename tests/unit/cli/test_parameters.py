from __future__ import annotations

import pytest

from headrace.cli.parameters import (
    Setting,
    _group_target,
    parse_config,
    parse_count,
    parse_header,
    parse_rate,
    topic_config,
    topic_config_key,
)
from headrace.records.positions import START, Anchor, Position


@pytest.mark.parametrize(
    ("text", "count"), [("5000", 5000), ("100k", 100_000), ("1M", 1_000_000), ("0.5k", 500)]
)
def test_counts(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "k", "-1", "1.5", "ten", "1e"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(ValueError):
        parse_count(text)


@pytest.mark.parametrize(("text", "rate"), [("50/s", 50), ("3000/m", 50), ("1k", 1000), ("7200/h", 2)])
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["0/s", "5/week", "fast", "/s"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError):
        parse_rate(text)


def test_headers() -> None:
    assert parse_header("content-type: a/b:c") == ("content-type", b"a/b:c")
    with pytest.raises(ValueError):
        parse_header("nothing")


def test_topic_configs_take_units_and_aliases() -> None:
    assert topic_config(parse_config("retention.ms=7d")) == Setting("retention.ms", "604800000")
    assert topic_config(parse_config("max.message.bytes=1MiB")) == Setting("max.message.bytes", "1048576")
    assert topic_config(parse_config("cleanup.policy=compact,delete")).value == "compact,delete"
    assert topic_config(parse_config("storage=memory")) == Setting("headrace.storage", "memory")
    assert topic_config(parse_config("retention.ms=-1")).value == "-1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("retention.ms=soon", "is not a duration"),
        ("segment.bytes=5", "out of range"),
        ("cleanup.policy=burn", "must be a list of delete, compact"),
        ("retention.mss=1", 'did you mean "retention.ms"?'),
        ("=1", "is not a config"),
    ],
)
def test_wrong_topic_configs_are_told_before_anything_is_sent(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("?", r"\?")):
        topic_config(parse_config(text))


def test_a_config_is_found_by_its_alias() -> None:
    assert topic_config_key("flush").name == "headrace.flush"


def test_a_group_moves_by_so_much_or_to_a_place() -> None:
    assert _group_target("+10") == Position(Anchor.ON, 10)
    assert _group_target("-10") == (Anchor.LAST, 10), "F14: as everywhere else"
    assert _group_target("start") == START
    found = _group_target("42")
    assert found.anchor is Anchor.OFFSET
