"""F35: configs of groups (KIP-1011, KIP-932, KIP-1240): defaults, what was set, what brokers say of all, what is refused."""

from __future__ import annotations

import pytest

from headrace.cluster.broker_configs import BROKER_CONFIGS
from headrace.cluster.config_keys import ConfigSource, Scope
from headrace.cluster.configs import NO_LAYERS, Alteration, AlterOp, BrokerLayers, alter_broker
from headrace.cluster.group_configs import (
    GROUP_CONFIGS,
    alter_group,
    describe_group,
    member_config,
    share_config,
)
from headrace.cluster.group_defaults import BOUNDS, GROUP_DEFAULTS, Bounds
from headrace.core.plan import Rejected


def sets(configs: dict[str, str]) -> list[Alteration]:
    return [Alteration(name, AlterOp.SET, value) for name, value in configs.items()]


def test_defaults_are_kafkas() -> None:
    assert share_config({}) == (30_000, 5, 2_000, False, True, True)
    times = (45_000, 5_000)
    assert member_config({})[:4] == (*times, *times)
    assert member_config({})[4:9] == (*times, 1_000, 0, 3_000)
    assert member_config({})[9:] == (10_000, 200, 10_000, "bidirectional")


def test_what_is_set_wins_and_says_so() -> None:
    assert share_config({"share.auto.offset.reset": "earliest"}).starts_earliest
    set_here = {"share.delivery.count.limit": "9"}
    entries = {entry.name: entry for entry in describe_group(set_here, NO_LAYERS, None)}
    assert set(entries) == set(GROUP_CONFIGS)
    assert entries["share.delivery.count.limit"].value == "9"
    assert entries["share.delivery.count.limit"].source is ConfigSource.DYNAMIC_GROUP
    assert entries["share.auto.offset.reset"].source is ConfigSource.DEFAULT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.colour", "red"),
        ("share.auto.offset.reset", "middle"),
        ("share.delivery.count.limit", "1"),
        ("share.record.lock.duration.ms", "-5"),
        ("share.record.lock.duration.ms", "5000"),
        ("share.record.lock.duration.ms", "99999999999"),
        ("share.isolation.level", "read_everything"),
        ("share.assignment.interval.ms", "7"),
    ],
)
def test_nonsense_is_refused(name: str, value: str) -> None:
    assert isinstance(alter_group({}, sets({name: value})), Rejected)
    assert alter_group({}, sets({"share.record.lock.duration.ms": "16000"})) == {
        "share.record.lock.duration.ms": "16000"
    }


def test_what_was_stored_before_a_bound_was_moved_counts_as_the_nearest_legal_value() -> None:
    held = {"share.record.lock.duration.ms": "2000", "consumer.session.timeout.ms": "999999"}
    assert share_config(held).lock_ms == 15_000
    assert member_config(held).consumer_session_ms == 60_000
    assert alter_group(held, sets({"share.delivery.count.limit": "3"})) == {
        **held,
        "share.delivery.count.limit": "3",
    }, "it does not stand in the way of another change"


@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda bounds: bounds.default.name)
def test_every_default_and_bound_is_felt_by_groups(bounds: Bounds) -> None:
    """Whatever an administrator moves changes what a group is given or may set."""
    own = bounds.default.name.removeprefix("group.")

    def given(held: dict[str, str], layer: dict[str, str]) -> set[object]:
        layers = BrokerLayers(dynamic_default=layer)
        return {*share_config(held, layers), *member_config(held, layers)}

    low, high = (0 if key is None else int(key.default or 0) for key in (bounds.low, bounds.high))
    middle = int(bounds.default.default or 0) + 1
    assert middle in given({}, {bounds.default.name: str(middle)})
    if bounds.low is not None:
        assert low + 1 in given({own: str(low)}, {bounds.low.name: str(low + 1)})
    assert high - 1 in given({own: str(high)}, {bounds.high.name: str(high - 1)})


def test_what_brokers_say_of_groups_can_be_set_for_all_brokers_only() -> None:
    for key in GROUP_DEFAULTS:
        assert BROKER_CONFIGS[key.name] is key
        assert key.scope is Scope.CLUSTER
        assert isinstance(alter_broker({}, sets({key.name: key.default or ""}), broker_id=1), Rejected)
        assert not isinstance(alter_broker({}, sets({key.name: key.default or ""}), broker_id=None), Rejected)
