"""X27: what comes from the coordinator is checked like what comes from a client."""

from __future__ import annotations

import msgspec
import pytest

from headrace.cluster import keys, state
from headrace.cluster.keys import KeyKind, KeyRef
from headrace.cluster.state import (
    BrokerRegistration,
    InvalidState,
    PartitionState,
    TopicState,
    decode,
    encode,
)

TOPIC_ID = bytes(range(16))

GOOD = {
    "replicas": [1, 2, 3],
    "leader": 1,
    "leader_epoch": 4,
    "partition_epoch": 9,
    "isr": [1, 2],
    "elr": [3],
}


@pytest.mark.parametrize(
    ("key", "ref"),
    [
        (keys.CLUSTER, KeyRef(KeyKind.CLUSTER)),
        (keys.CONTROLLER, KeyRef(KeyKind.CONTROLLER)),
        (keys.PRODUCER_IDS, KeyRef(KeyKind.PRODUCER_IDS)),
        (keys.FEATURES, KeyRef(KeyKind.FEATURES)),
        (keys.broker(0), KeyRef(KeyKind.BROKER, number=0)),
        (keys.fence(7), KeyRef(KeyKind.FENCE, number=7)),
        (keys.epoch(7), KeyRef(KeyKind.EPOCH, number=7)),
        (keys.topic("a.b-c_d"), KeyRef(KeyKind.TOPIC, "a.b-c_d")),
        (keys.partition(TOPIC_ID, 12), KeyRef(KeyKind.PARTITION, TOPIC_ID.hex(), 12)),
        (keys.broker_config(None), KeyRef(KeyKind.BROKER_CONFIG)),
        (keys.broker_config(3), KeyRef(KeyKind.BROKER_CONFIG, number=3)),
        (keys.opaque("queues", "a/b"), KeyRef(KeyKind.OPAQUE, "queues")),
    ],
)
def test_keys_parse_back(key: str, ref: KeyRef) -> None:
    assert keys.parse(key) == ref


@pytest.mark.parametrize(
    "key",
    [
        "",
        "brokers/",
        "brokers/-1",
        "brokers/01",
        "brokers/x",
        "brokers/99999999999",
        "brokers/4294967296",
        "topics/",
        "topics/..",
        "topics/a/b",
        "topics/" + "x" * 250,
        "partitions/zz/0",
        f"partitions/{TOPIC_ID.hex()}",
        f"partitions/{TOPIC_ID.hex()}/-1",
        f"partitions/{TOPIC_ID.hex().upper()[:-1]}G/1",
        "queues/",
        "queues",
        "writers/1/admin",
    ],
)
def test_foreign_keys_are_ignored(key: str) -> None:
    assert keys.parse(key) is None


def test_an_unknown_key_space_is_a_bug() -> None:
    with pytest.raises(ValueError, match="not a key space"):
        keys.opaque("nonsense", "x")


def test_a_partition_round_trips() -> None:
    partition = decode(PartitionState, msgspec.json.encode(GOOD))
    assert partition.isr == (1, 2)
    assert decode(PartitionState, encode(partition)) == partition
    assert encode(partition) == encode(decode(PartitionState, encode(partition)))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"replicas": []}, "not empty"),
        ({"replicas": [1, 1, 2, 3]}, "distinct"),
        ({"replicas": list(range(1, 40))}, "length"),
        ({"isr": [1, 4]}, "members of the replicas"),
        ({"isr": [1, 1]}, "distinct"),
        ({"isr": [1, 3]}, "disjoint"),
        ({"elr": [9]}, "members of the replicas"),
        ({"leader": 3}, "leader must be in the isr"),
        ({"leader": -2}, "-1"),
        ({"leader_epoch": -1}, "0"),
        ({"leader_epoch": 2**31}, "2147483647"),
        ({"adding": [1], "removing": [1]}, "disjoint"),
        ({"adding": [7]}, "members"),
        ({"leader": "1"}, "int"),
    ],
)
def test_a_partition_that_contradicts_itself_is_refused(change: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidState, match=problem):
        decode(PartitionState, msgspec.json.encode({**GOOD, **change}))


def test_a_leaderless_partition_is_fine() -> None:
    partition = decode(PartitionState, msgspec.json.encode({**GOOD, "leader": -1, "isr": [], "elr": [1, 3]}))
    assert partition.leader == state.NO_LEADER


@pytest.mark.parametrize(
    "value", [b"", b"null", b"[]", b"{", b"\xff\xfe", b"{}", b"[" * 10_000, b'{"replicas":1e999}']
)
def test_garbage_is_refused_with_one_exception(value: bytes) -> None:
    for kind in (
        PartitionState,
        TopicState,
        BrokerRegistration,
        state.Fence,
        state.ControllerState,
        state.BrokerConfigs,
    ):
        with pytest.raises(InvalidState):
            decode(kind, value)


def test_fields_of_a_newer_version_are_skipped() -> None:
    assert decode(PartitionState, msgspec.json.encode({**GOOD, "colour": "blue"})).leader == 1


@pytest.mark.parametrize("topic_id", ["0" * 32, "xy", "0" * 31, "A" * 32])
def test_bad_topic_ids_are_refused(topic_id: str) -> None:
    value = {"id": topic_id, "partitions": 1, "configs": {}, "created_ms": 0}
    with pytest.raises(InvalidState):
        decode(TopicState, msgspec.json.encode(value))


@pytest.mark.parametrize("host", ["", "a b", "x" * 256, "evil\nhost", "h/ost"])
def test_a_registration_with_a_strange_host_is_refused(host: str) -> None:
    value = {"host": host, "port": 1, "http_host": "h", "http_port": 1, "incarnation": "i"}
    with pytest.raises(InvalidState):
        decode(BrokerRegistration, msgspec.json.encode(value))


def test_the_target_of_a_move_leaves_out_what_goes() -> None:
    partition = PartitionState((3, 4, 1), 1, 0, 0, (1,), adding=(3, 4), removing=(1,))
    assert partition.target == (3, 4)
    assert partition.reassigning
