"""Configs of groups (KIP-1011, KIP-932): defaults, what was set, and what is refused."""

from __future__ import annotations

import pytest

from headrace.cluster.config_keys import Source
from headrace.cluster.group_configs import GROUP_CONFIGS, describe_group, problem, share_config


def test_defaults_are_kafkas() -> None:
    config = share_config({})
    assert config == (30_000, 5, 2_000, False, True)


def test_what_is_set_wins_and_says_so() -> None:
    assert share_config({"share.auto.offset.reset": "earliest"}).starts_earliest
    entries = {entry.name: entry for entry in describe_group({"share.delivery.count.limit": "9"}, None)}
    assert set(entries) == set(GROUP_CONFIGS)
    assert entries["share.delivery.count.limit"].value == "9"
    assert entries["share.delivery.count.limit"].source is Source.DYNAMIC_GROUP
    assert entries["share.auto.offset.reset"].source is Source.DEFAULT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.colour", "red"),
        ("share.auto.offset.reset", "middle"),
        ("share.delivery.count.limit", "1"),
        ("share.record.lock.duration.ms", "-5"),
        ("share.record.lock.duration.ms", "99999999999"),
        ("share.isolation.level", "read_everything"),
    ],
)
def test_nonsense_is_refused(name: str, value: str) -> None:
    assert problem(name, value)
    assert problem("share.record.lock.duration.ms", "5000") is None
