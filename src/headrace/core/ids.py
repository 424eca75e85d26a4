"""Kernel: the names things go by."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

ZERO_UUID = bytes(16)

_UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_name_problem(name: str) -> str | None:
    """Why `name` can't be a topic (X24), or None when it can."""
    if name in (".", ".."):
        return f'a topic can not be called "{name}"'
    if not _TOPIC_NAME.fullmatch(name):
        return "a topic name is 1 to 249 characters out of a-z A-Z 0-9 . _ -"
    return None


def collision_key(name: str) -> str:
    """Topics whose names differ only in `.` and `_` collide in metric names, so only one may exist."""
    return name.replace(".", "_")


def is_internal(name: str) -> bool:
    return name.startswith("__")


def java_string_hash(text: str) -> int:
    """Java's String.hashCode, which Kafka uses to place groups and transactional ids."""
    value = 0
    for unit in memoryview(text.encode(_UTF16, "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def shard_for(identifier: str, shard_count: int) -> int:
    """Which internal-topic partition owns this group or transactional id."""
    return 0 if shard_count == 1 else abs_like_kafka(java_string_hash(identifier)) % shard_count


def abs_like_kafka(value: int) -> int:
    # Integer.MIN_VALUE has no positive twin in Java; Kafka maps it to zero.
    return 0 if value == -(1 << 31) else abs(value)
