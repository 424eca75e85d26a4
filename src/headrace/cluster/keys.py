"""Codec: where each thing lives in the coordinator. Keys are relative; the coordinator adds the cluster's prefix.

    cluster                       id and birth of the cluster
    features                      finalized feature levels
    controller                    who decides, under its lease; controller epoch = create revision
    brokers/<id>                  a registration, under the broker's lease; broker epoch = mod revision
    epochs/<id>                   written with each registration and left behind when the lease ends, so that the
                                  next life can prove which life its clean-shutdown marker belongs to (R29, R33)
    fences/<id>                   present = this broker may not lead or join an ISR
    topics/<name>                 topic id, partition count, configs
    partitions/<topic id>/<n>     replicas, leader, epochs, ISR, ELR
    configs/broker/<id|default>   dynamic broker configs
    producer_ids                  the next free block of producer ids (R37)
    queues/ subscriptions/ views/ quotas/ schedules/ webhooks/ security/ schemas/   kept as opaque values, owned by higher packages

A key that does not parse is ignored, never an error: a newer version may have written it (X27).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from headrace.core.ids import topic_name_problem

CLUSTER = "cluster"
FEATURES = "features"
CONTROLLER = "controller"
PRODUCER_IDS = "producer_ids"
DEFAULT_BROKER_CONFIG = "configs/broker/default"

BROKERS = "brokers/"
EPOCHS = "epochs/"
FENCES = "fences/"
TOPICS = "topics/"
PARTITIONS = "partitions/"
BROKER_CONFIGS = "configs/broker/"

OPAQUE_SPACES = (
    "queues",
    "subscriptions",
    "views",
    "quotas",
    "schedules",
    "moves",
    "secrets",
    "groups",
    "webhooks",
    "security",
    "deleted",
    "schemas",
)

_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_TOPIC_ID = re.compile(r"[0-9a-f]{32}")
_MAX_INT32 = 2**31 - 1


class KeyKind(Enum):
    CLUSTER = "cluster"
    FEATURES = "features"
    CONTROLLER = "controller"
    PRODUCER_IDS = "producer_ids"
    BROKER = "broker"
    EPOCH = "epoch"
    FENCE = "fence"
    TOPIC = "topic"
    PARTITION = "partition"
    BROKER_CONFIG = "broker_config"
    OPAQUE = "opaque"


class KeyRef(NamedTuple):
    """A parsed key. `name` is a topic name, a topic id in hex or an opaque space; `number` a broker id or partition."""

    kind: KeyKind
    name: str = ""
    number: int = -1


def broker(broker_id: int) -> str:
    return f"brokers/{broker_id}"


def epoch(broker_id: int) -> str:
    return f"epochs/{broker_id}"


def fence(broker_id: int) -> str:
    return f"fences/{broker_id}"


def topic(name: str) -> str:
    return f"topics/{name}"


def partition(topic_id: bytes, number: int) -> str:
    return f"partitions/{topic_id.hex()}/{number}"


def broker_config(broker_id: int | None) -> str:
    """None is the cluster-wide default."""
    return DEFAULT_BROKER_CONFIG if broker_id is None else f"configs/broker/{broker_id}"


def opaque(space: str, name: str) -> str:
    if space not in OPAQUE_SPACES:
        raise ValueError(f"{space} is not a key space")
    return f"{space}/{name}"


_SINGLE = {
    CLUSTER: KeyRef(KeyKind.CLUSTER),
    FEATURES: KeyRef(KeyKind.FEATURES),
    CONTROLLER: KeyRef(KeyKind.CONTROLLER),
    PRODUCER_IDS: KeyRef(KeyKind.PRODUCER_IDS),
    DEFAULT_BROKER_CONFIG: KeyRef(KeyKind.BROKER_CONFIG),
}
_BY_BROKER = {
    BROKERS: KeyKind.BROKER,
    EPOCHS: KeyKind.EPOCH,
    FENCES: KeyKind.FENCE,
    BROKER_CONFIGS: KeyKind.BROKER_CONFIG,
}


def parse(key: str) -> KeyRef | None:
    single = _SINGLE.get(key)
    if single is not None:
        return single
    if key.startswith(PARTITIONS):
        topic_id, _, number = key[len(PARTITIONS) :].partition("/")
        index = _number(number)
        if index is None or not _TOPIC_ID.fullmatch(topic_id):
            return None
        return KeyRef(KeyKind.PARTITION, topic_id, index)
    if key.startswith(TOPICS):
        name = key[len(TOPICS) :]
        return None if topic_name_problem(name) else KeyRef(KeyKind.TOPIC, name)
    for prefix, kind in _BY_BROKER.items():
        if key.startswith(prefix):
            broker_id = _number(key[len(prefix) :])
            return None if broker_id is None else KeyRef(kind, number=broker_id)
    space, slash, name = key.partition("/")
    if slash and name and space in OPAQUE_SPACES:
        return KeyRef(KeyKind.OPAQUE, space)
    return None


def _number(text: str) -> int | None:
    if not _NUMBER.fullmatch(text):
        return None
    value = int(text)
    return value if value <= _MAX_INT32 else None
