"""F40: a config that can be set is read by somebody; one that can't be set says what is true, or that it has no effect."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker import controller, housekeeping, replicator, runtime, share_sessions
from headrace.cluster import broker_configs, group_configs, group_defaults
from headrace.cluster.broker_configs import BROKER_CONFIGS
from headrace.cluster.config_keys import ConfigKey, ConfigStanding, Scope
from headrace.cluster.controller import rebalance_leaders
from headrace.cluster.topic_configs import TOPIC_CONFIGS, field_name
from headrace.core import limits
from headrace.groups.config import GroupConfig
from headrace.kafka.handlers import k75_describe_topic_partitions as k75
from headrace.log.config import LogConfig
from headrace.node import node
from headrace.node.settings import Settings
from headrace.replication import leader
from headrace.transactions.config import TransactionConfig

SOURCE = Path(__file__).parents[3] / "src" / "headrace"
GROUPS, TRANSACTIONS = GroupConfig(), TransactionConfig()
BUILT = {
    "background.threads": inspect.signature(runtime.SystemRuntime).parameters["threads"].default,
    "broker.heartbeat.interval.ms": node.LEASE_MS // 3,
    "broker.session.timeout.ms": node.LEASE_MS,
    "connections.max.reauth.ms": 0,
    "fetch.max.bytes": limits.MAX_FETCH_BYTES,
    "group.consumer.assignment.interval.ms": 0,
    "group.max.size": GROUPS.max_size,
    "group.share.assignment.interval.ms": 0,
    "group.share.max.share.sessions": share_sessions.MAX_SESSIONS,
    "leader.imbalance.check.interval.seconds": controller.BALANCE_MS // 1000,
    "leader.imbalance.per.broker.percentage": inspect.signature(rebalance_leaders)
    .parameters["imbalance_percent"]
    .default,
    "log.cleaner.dedupe.buffer.size": LogConfig().compaction_map_bytes,
    "log.cleaner.threads": 1,
    "log.flush.offset.checkpoint.interval.ms": housekeeping.CHECKPOINT_MS,
    "log.flush.start.offset.checkpoint.interval.ms": housekeeping.CHECKPOINT_MS,
    "max.incremental.fetch.session.cache.slots": limits.MAX_FETCH_SESSIONS,
    "max.request.partition.size.limit": k75.MAX_PARTITIONS,
    "num.replica.fetchers": 1,
    "offset.metadata.max.bytes": GROUPS.max_offset_metadata_bytes,
    "offsets.retention.check.interval.ms": GROUPS.cleanup_interval_ms,
    "offsets.retention.minutes": GROUPS.offsets_retention_ms // 60_000,
    "offsets.topic.segment.bytes": 16 * limits.MIB,
    "queued.max.request.bytes": limits.MAX_INFLIGHT_REQUEST_BYTES,
    "replica.fetch.backoff.ms": int(replicator.PAUSE_S * 1000),
    "replica.fetch.max.bytes": replicator.PARTITION_BYTES,
    "replica.fetch.min.bytes": 1,
    "replica.fetch.response.max.bytes": replicator.FETCH_BYTES,
    "replica.fetch.wait.max.ms": replicator.MAX_WAIT_MS,
    "replica.high.watermark.checkpoint.interval.ms": housekeeping.CHECKPOINT_MS,
    "replica.lag.time.max.ms": leader.DEFAULT_LAG_MAX_MS,
    "replica.socket.timeout.ms": int(replicator.CALL_S * 1000),
    "socket.listen.backlog.size": 1024,
    "socket.request.max.bytes": limits.MAX_FRAME_BYTES,
    "transaction.max.timeout.ms": TRANSACTIONS.max_timeout_ms,
    "transaction.remove.expired.transaction.cleanup.interval.ms": TRANSACTIONS.sweep_interval_ms,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.segment.bytes": 16 * limits.MIB,
    "transactional.id.expiration.ms": TRANSACTIONS.id_expiration_ms,
}
"""What the code does, for each number that is shown as built in."""


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text())


@pytest.fixture(scope="module")
def source() -> dict[str, ast.Module]:
    return dict(trees())


def loaded_names(tree: ast.AST) -> set[str]:
    return {
        part.id if isinstance(part, ast.Name) else part.attr
        for part in ast.walk(tree)
        if isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Load)
    }


def read_of(tree: ast.AST, *owners: str) -> set[str]:
    """Attributes that are read of something that is called one of `owners`."""
    return {
        part.attr
        for part in ast.walk(tree)
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Load)
        and (
            (isinstance(part.value, ast.Name) and part.value.id in owners)
            or (isinstance(part.value, ast.Attribute) and part.value.attr in owners)
        )
    }


def test_f40_a_broker_config_that_can_be_set_is_read(source: dict[str, ast.Module]) -> None:
    elsewhere = set().union(
        *(
            loaded_names(tree)
            for name, tree in source.items()
            if name not in ("cluster/broker_configs.py", "cluster/group_defaults.py")
        )
    )
    constants = {
        value.name: name for name, value in vars(broker_configs).items() if isinstance(value, ConfigKey)
    } | of_groups()
    defaults = topic_defaults()
    unread = [
        key.name
        for key in BROKER_CONFIGS.values()
        if key.scope is not Scope.READ_ONLY
        and not (key.standing is ConfigStanding.TOPIC_DEFAULT and key.name in defaults)
        and not (key.standing is ConfigStanding.READ and constants.get(key.name) in elsewhere)
    ]
    assert not unread, "can be set, and nobody reads it"


def of_groups() -> dict[str, str]:
    """What is said of all groups; a default and its bounds are read through one constant."""
    found = {}
    for name, value in vars(group_defaults).items():
        if isinstance(value, ConfigKey):
            found[value.name] = name
        elif isinstance(value, group_defaults.Bounds):
            found |= {key.name: name for key in value if key is not None}
    return found


def topic_defaults() -> set[str]:
    """Broker configs that a topic takes a default from, directly or in another unit."""
    found: set[str] = set()
    waiting = [synonym.name for key in TOPIC_CONFIGS.values() for synonym in key.synonyms]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [synonym.name for synonym in BROKER_CONFIGS[name].synonyms]
    return found


def test_f40_what_can_not_be_set_stands_for_something(source: dict[str, ast.Module]) -> None:
    shown = {
        part.value
        for name in ("node/node.py", "node/static_configs.py")
        for part in ast.walk(source[name])
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }
    defaults = topic_defaults()
    for key in BROKER_CONFIGS.values():
        if key.scope is Scope.READ_ONLY:
            match key.standing:
                case ConfigStanding.SETTING:
                    assert key.name in shown, f"{key.name}: no setting is shown"
                case ConfigStanding.TOPIC_DEFAULT:
                    assert key.name in defaults, key.name
                case ConfigStanding.IGNORED:
                    assert key.documentation.endswith("No effect here."), key.name
                case ConfigStanding.BUILT_IN:
                    number = key.default is not None and key.default.lstrip("-").isdigit()
                    assert not number or str(BUILT[key.name]) == key.default, key.name
                case ConfigStanding.READ:
                    pytest.fail(f"{key.name} can't be set")
    assert BUILT.keys() <= {
        key.name for key in BROKER_CONFIGS.values() if key.standing is ConfigStanding.BUILT_IN
    }


def test_f40_a_topic_config_that_can_be_set_is_read(source: dict[str, ast.Module]) -> None:
    """Of something called config: straight, or through a property of TopicConfig that is read so."""
    read: set[str] = set()
    for name, tree in source.items():
        if name != "cluster/topic_configs.py" and not name.startswith("log/"):
            read |= read_of(tree, "config", "_config")
    table = source["cluster/topic_configs.py"]
    (kind,) = (part for part in table.body if isinstance(part, ast.ClassDef) and part.name == "TopicConfig")
    for part in kind.body:
        if isinstance(part, ast.FunctionDef) and part.name in read:
            read |= read_of(part, "self")
    # A view is known by them from its creation on, before there are typed configs.
    texts = {part.value for part in ast.walk(source["cluster/views.py"]) if isinstance(part, ast.Constant)}
    unread = [
        name
        for name, key in TOPIC_CONFIGS.items()
        if not key.fixed and field_name(name) not in read and name not in texts
    ]
    assert not unread, "can be set, and nobody reads it"


def test_f40_what_a_topic_hands_to_its_log_is_read_there(source: dict[str, ast.Module]) -> None:
    read = set().union(
        *(read_of(tree, "config", "_config") for name, tree in source.items() if name.startswith("log/"))
    )
    assert {field.name for field in dataclasses.fields(LogConfig)} <= read


def test_f40_a_group_config_that_can_be_set_is_read(source: dict[str, ast.Module]) -> None:
    functions = [
        part for part in source["cluster/group_configs.py"].body if isinstance(part, ast.FunctionDef)
    ]
    read = set().union(*(loaded_names(part) for part in functions))
    for name, value in vars(group_configs).items():
        if isinstance(value, ConfigKey) and value.name in group_configs.GROUP_CONFIGS and not value.fixed:
            assert name in read, value.name


def test_f40_every_setting_is_read(source: dict[str, ast.Module]) -> None:
    read = set().union(
        *(read_of(tree, "settings", "_settings", "self", "given", "loaded") for name, tree in source.items())
    )
    assert set(Settings.__struct_fields__) <= read
