"""F35: `consumer.*` and `share.*` of one group, `group.consumer.*` and `group.share.*` of all: set by an administrator, shown with
where they come from, and obeyed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from raw_client import RawClient
from raw_share import RawSharer, set_group_config
from webhook_endpoint import until

from headrace.core.errors import ErrorKind
from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from headrace.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

pytestmark = pytest.mark.client

BROKER, GROUP = 4, 32
SET, DELETE = 0, 1
DYNAMIC_DEFAULT_BROKER, DEFAULT, DYNAMIC_GROUP = 3, 5, 8


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of our own: what is set for all groups would be felt by other tests."""
    with BrokerProcess(tmp_path_factory.mktemp("groups")) as process:
        yield process


@pytest.fixture
def raw(own: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(own.kafka_port) as client:
        yield client
        reset = [entry.name for entry in described(client, BROKER, "") if entry.name.startswith("group.")]
        assert alter(client, BROKER, "", {name: None for name in reset if name in SETTABLE})[0] == 0


SETTABLE = {
    f"group.{kind}.{bound}{name}"
    for kind, names in {
        "consumer": ("session.timeout.ms", "heartbeat.interval.ms"),
        "share": (
            "session.timeout.ms", "heartbeat.interval.ms", "record.lock.duration.ms", "delivery.count.limit",
            "partition.max.record.locks",
        ),
    }.items()
    for name in names
    for bound in ("", "min.", "max.")
} | {"group.consumer.max.size", "group.share.max.size", "group.consumer.migration.policy"}  # fmt: skip


def alter(raw: RawClient, kind: int, name: str, configs: dict[str, str | None]) -> tuple[int, str | None]:
    rows = [AlterableConfig(key, DELETE if value is None else SET, value) for key, value in configs.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, rows)])
    (answer,) = raw.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return answer.error_code, answer.error_message


def described(raw: RawClient, kind: int, name: str, keys: list[str] | None = None) -> list[Any]:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)], include_synonyms=True)
    (result,) = raw.call(ApiKey.DESCRIBE_CONFIGS, 4, request).results
    assert result.error_code == 0, result.error_message
    return list(result.configs)


def one(raw: RawClient, kind: int, name: str, key: str) -> Any:
    (entry,) = described(raw, kind, name, [key])
    return entry


def interval(raw: RawClient, topic: str, group: str, member: str = "member") -> int:
    """What a member is told when it joins, with either protocol."""
    if group.startswith("share"):
        key: int = ApiKey.SHARE_GROUP_HEARTBEAT
        request: Any = ShareGroupHeartbeatRequest(group, member, 0, subscribed_topic_names=[topic])
    else:
        key = ApiKey.CONSUMER_GROUP_HEARTBEAT
        request = ConsumerGroupHeartbeatRequest(
            group, member, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=[topic], topic_partitions=[]
        )
    deadline = time.monotonic() + 60
    answer: Any = raw.call(key, 1, request)
    while answer.error_code == ErrorKind.COORDINATOR_LOAD_IN_PROGRESS and time.monotonic() < deadline:
        answer = raw.call(key, 1, request)  # as every client would
    assert ErrorKind(answer.error_code) is ErrorKind.NONE, answer.error_message
    told: int = answer.heartbeat_interval_ms
    return told


def plain(raw: RawClient, topic: str, *values: bytes) -> None:
    batch = build_batch([Record(None, value) for value in values], wall_ms=int(time.time() * 1000))
    assert raw.produce(topic, bytearray(batch), acks=-1).error_code == 0


def find_coordinator(raw: RawClient, group: str) -> None:
    request = FindCoordinatorRequest(coordinator_keys=[group])
    until(lambda: raw.call(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code == 0, 60)


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_f35_members_are_told_what_is_set_for_their_group_or_for_all(
    raw: RawClient, topic: str, kind: str
) -> None:
    raw.create_topic(topic)
    groups = {name: f"{kind}-{name}-{topic}" for name in ("own", "other")}
    for group in groups.values():
        find_coordinator(raw, group)
    name = f"{kind}.heartbeat.interval.ms"
    assert alter(raw, GROUP, groups["own"], {name: "7000"}) == (0, None)
    assert interval(raw, topic, groups["own"]) == 7_000
    assert interval(raw, topic, groups["other"]) == 5_000
    assert alter(raw, BROKER, "", {f"group.{name}": "9000"}) == (0, None)
    assert interval(raw, topic, groups["other"]) == 9_000
    assert interval(raw, topic, groups["own"]) == 7_000
    assert alter(raw, BROKER, "", {f"group.{kind}.max.heartbeat.interval.ms": "9000", f"group.{kind}.min.heartbeat.interval.ms": "8000"}) == (0, None)  # fmt: skip
    assert interval(raw, topic, groups["own"]) == 8_000, "a bound that was moved binds what was set before it"
    assert alter(raw, GROUP, groups["own"], {name: None}) == (0, None)
    assert interval(raw, topic, groups["own"]) == 9_000


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_f35_as_many_members_as_are_allowed(raw: RawClient, topic: str, kind: str) -> None:
    raw.create_topic(topic)
    group = f"{kind}-{topic}"
    find_coordinator(raw, group)
    assert alter(raw, BROKER, "", {f"group.{kind}.max.size": "1"}) == (0, None)
    interval(raw, topic, group, "first")
    with pytest.raises(AssertionError):
        interval(raw, topic, group, "second")
    assert alter(raw, BROKER, "", {f"group.{kind}.max.size": "2"}) == (0, None)
    interval(raw, topic, group, "second")


def test_f35_describe_says_where_a_value_comes_from(raw: RawClient, topic: str) -> None:
    name, of_all = "consumer.session.timeout.ms", "group.consumer.session.timeout.ms"
    entry = one(raw, GROUP, topic, name)
    assert (entry.value, entry.config_source, entry.read_only) == ("45000", DEFAULT, False)
    assert [tuple(vars_of(synonym)) for synonym in entry.synonyms] == [(of_all, "45000", DEFAULT)]
    assert alter(raw, BROKER, "", {of_all: "50000"}) == (0, None)
    entry = one(raw, GROUP, topic, name)
    assert (entry.value, entry.config_source) == ("50000", DYNAMIC_DEFAULT_BROKER)
    assert alter(raw, GROUP, topic, {name: "55000"}) == (0, None)
    entry = one(raw, GROUP, topic, name)
    assert (entry.value, entry.config_source) == ("55000", DYNAMIC_GROUP)
    assert [tuple(vars_of(synonym)) for synonym in entry.synonyms] == [
        (name, "55000", DYNAMIC_GROUP),
        (of_all, "50000", DYNAMIC_DEFAULT_BROKER),
        (of_all, "45000", DEFAULT),
    ]


def vars_of(synonym: Any) -> tuple[str, str, int]:
    return synonym.name, synonym.value, synonym.source


@pytest.mark.parametrize(
    ("kind", "configs"),
    [
        (GROUP, {"consumer.session.timeout.ms": "44999"}),
        (GROUP, {"consumer.session.timeout.ms": "60001"}),
        (GROUP, {"consumer.heartbeat.interval.ms": "100"}),
        (GROUP, {"share.record.lock.duration.ms": "14999"}),
        (GROUP, {"share.delivery.count.limit": "11"}),
        (GROUP, {"share.partition.max.record.locks": "4001"}),
        (GROUP, {"share.renew.acknowledge.enable": "perhaps"}),
        (GROUP, {"consumer.assignment.interval.ms": "1000"}),
        (GROUP, {"consumer.colour": "red"}),
        (BROKER, {"group.consumer.session.timeout.ms": "10"}),
        (BROKER, {"group.share.max.record.lock.duration.ms": "29999"}),
        (BROKER, {"group.share.min.session.timeout.ms": "46000"}),
        (BROKER, {"group.consumer.min.heartbeat.interval.ms": "50000", "group.consumer.max.heartbeat.interval.ms": "50000", "group.consumer.heartbeat.interval.ms": "50000"}),
        (BROKER, {"group.share.max.size": "1001"}),
        (BROKER, {"group.consumer.migration.policy": "sideways"}),
    ],
)  # fmt: skip
def test_f35_what_is_out_of_bounds_is_refused_with_the_reason(
    raw: RawClient, topic: str, kind: int, configs: dict[str, str | None]
) -> None:
    code, message = alter(raw, kind, topic if kind == GROUP else "", configs)
    assert ErrorKind(code) is ErrorKind.INVALID_CONFIG
    assert message is not None and any(name in message for name in configs)


def test_f35_locks_last_as_long_as_the_group_says_or_all_groups(raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    plain(raw, topic, b"a", b"b")
    group = f"share-{topic}"
    assert set_group_config(raw, group, share_auto_offset_reset="earliest") == 0
    assert alter(raw, BROKER, "", {"group.share.record.lock.duration.ms": "20000"}) == (0, None)
    sharer = RawSharer(raw, group, topic)
    assert len(sharer.fetch()) == 2
    assert sharer.lock_ms == 20_000
    assert alter(raw, GROUP, group, {"share.record.lock.duration.ms": "16000"}) == (0, None)
    sharer.fetch(wait_ms=10)
    assert sharer.lock_ms == 16_000


def test_f35_a_group_that_may_not_renew(raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    plain(raw, topic, b"a")
    group = f"share-{topic}"
    assert set_group_config(raw, group, share_auto_offset_reset="earliest") == 0
    sharer = RawSharer(raw, group, topic)
    assert len(sharer.fetch()) == 1
    batch = AcknowledgementBatch(0, 0, [4])

    def renew(epoch: int) -> ErrorKind:
        request = ShareAcknowledgeRequest(
            group, "member", epoch, True,
            topics=[AcknowledgeTopic(sharer._topic_id, [AcknowledgePartition(0, [batch])])],
        )  # fmt: skip
        answer = raw.call(ApiKey.SHARE_ACKNOWLEDGE, 2, request)
        assert answer.error_code == 0, answer
        return ErrorKind(answer.responses[0].partitions[0].error_code)

    assert renew(1) is ErrorKind.NONE
    assert alter(raw, GROUP, group, {"share.renew.acknowledge.enable": "false"}) == (0, None)
    assert renew(2) is ErrorKind.INVALID_RECORD_STATE
