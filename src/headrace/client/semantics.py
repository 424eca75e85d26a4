"""Kernel of the SDK: the one delivery knob (K8). One choice sets acks, retries, idempotence and when offsets commit.

at-most-once   acks=1, no retries; the offset is committed before a message is handed out: a crash loses, never repeats
at-least-once  acks=all, idempotent; the offset is committed after the work is done: a crash repeats, never loses
exactly-once   messages and offsets are committed in one transaction: a crash does neither; read_committed
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import NamedTuple

from headrace.core.errors import ErrorKind, HeadraceError


class Semantics(StrEnum):
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class CommitOrder(Enum):
    BEFORE_WORK = "before"
    AFTER_WORK = "after"
    WITH_RESULTS = "with"
    """In the transaction that also holds what was published because of a message."""


class Guarantees(NamedTuple):
    """What a choice means for librdkafka, and for the order of work and commit."""

    producer: Mapping[str, object]
    consumer: Mapping[str, object]
    commit: CommitOrder


_CONTRACTS = {
    Semantics.AT_MOST_ONCE: Guarantees(
        producer={"acks": "1", "enable.idempotence": False, "message.send.max.retries": 0},
        consumer={"enable.auto.commit": False, "enable.auto.offset.store": False},
        commit=CommitOrder.BEFORE_WORK,
    ),
    Semantics.AT_LEAST_ONCE: Guarantees(
        producer={"acks": "all", "enable.idempotence": True},
        # Acknowledged offsets are stored by us and committed by librdkafka: in the background, when partitions move
        # to another member, and at close.
        consumer={
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 1000,
            "enable.auto.offset.store": False,
        },
        commit=CommitOrder.AFTER_WORK,
    ),
    Semantics.EXACTLY_ONCE: Guarantees(
        producer={"acks": "all", "enable.idempotence": True},
        consumer={
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
        },
        commit=CommitOrder.WITH_RESULTS,
    ),
}


def contract(delivery: str) -> Guarantees:
    try:
        return _CONTRACTS[Semantics(delivery)]
    except ValueError:
        choices = ", ".join(entry.value for entry in Semantics)
        raise HeadraceError(
            ErrorKind.INVALID_PARAMETER, f'delivery="{delivery}" is not one of {choices}'
        ) from None
