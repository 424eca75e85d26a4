"""Codec: the state of one source as bytes, for a checkpoint.

Sections of 64-bit integers, each with its length, and last the details of the dying as text. Integers are copied, not
encoded one by one: the image of a million ranges is made at memory speed, because the event loop waits for it.

    section = u32 count, then count x i64, all little endian
    0 header     version, start_offset
    1 done       first, end, ...
    2 retries    offset, deliveries, delay_ms, first_received_ms, epoch, ...       without the epoch in version 1
    3 leases     offset, delivery, visibility_ms, epoch, first_received_ms, ...     journaled leases only
    4 moved      offset, due_ms, ...
    5 dying      offset, deliveries, reason, bytes of detail, ...
    then the details, one after the other, utf-8

Leases that are not journaled are written as retries that are ready when they are on their second delivery or later: a
delivery count survives a failover approximately, and never grows by it. What the log says itself (schedules, expiry,
groups) is not in here; it is read again.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from headrace.core.limits import KIB
from headrace.queues.commands import DeathReason
from headrace.queues.deadlines import NO_EPOCH
from headrace.queues.state import SourceState

PART_BYTES = 512 * KIB
"""A checkpoint is cut into records of this size, below every message size limit."""

_VERSION = 2
_WITHOUT_EPOCHS = 1
_COUNT = Struct("<I")


class SnapshotError(ValueError):
    """These bytes are no snapshot."""


class SavedRetry(NamedTuple):
    offset: int
    deliveries: int
    delay_ms: int
    first_received_ms: int
    epoch: int = NO_EPOCH


class SavedLease(NamedTuple):
    offset: int
    delivery: int
    visibility_ms: int
    epoch: int
    first_received_ms: int


class SavedDeath(NamedTuple):
    offset: int
    deliveries: int
    reason: DeathReason
    detail: str


class SourceSnapshot(NamedTuple):
    start_offset: int
    done: array[int]
    retries: list[SavedRetry]
    leases: list[SavedLease]
    moved: dict[int, int]
    dying: list[SavedDeath]


def encode_snapshot(partition: SourceState) -> bytes:
    retries: array[int] = array("q")
    leases: array[int] = array("q")
    for offset, retry in partition.retries.items():
        retries.extend((offset, retry.deliveries, retry.delay_ms, retry.first_received_ms, retry.epoch))
    for offset, lease in partition.leases.items():
        if lease.durable:
            leases.extend((offset, lease.delivery, lease.visibility_ms, lease.epoch, lease.first_received_ms))
        elif lease.delivery > 1:
            retries.extend((offset, lease.delivery, 0, lease.first_received_ms, NO_EPOCH))
    dying: array[int] = array("q")
    details: list[bytes] = []
    for offset, death in partition.dying.items():
        detail = death.detail.encode()
        dying.extend((offset, death.deliveries, death.reason, len(detail)))
        details.append(detail)
    moved = array("q", [number for pair in partition.moved.items() for number in pair])
    sections = (
        array("q", [_VERSION, partition.start_offset]), partition.done.edges(), retries, leases, moved, dying,
    )  # fmt: skip
    pieces: list[bytes] = []
    for section in sections:
        pieces += (_COUNT.pack(len(section)), ints_to_bytes(section))
    return b"".join(pieces + details)


def decode_snapshot(image: bytes) -> SourceSnapshot:
    sections: list[array[int]] = []
    at = 0
    for _ in range(6):
        if at + _COUNT.size > len(image):
            raise SnapshotError("cut off")
        size = 8 * _COUNT.unpack_from(image, at)[0]
        at += _COUNT.size
        if at + size > len(image):
            raise SnapshotError("cut off")
        sections.append(ints_from_bytes(image[at : at + size]))
        at += size
    header, done, retries, leases, moved, dying = sections
    if len(header) < 2 or header[0] not in (_WITHOUT_EPOCHS, _VERSION):
        raise SnapshotError("not a version this broker knows")
    deaths: list[SavedDeath] = []
    for offset, deliveries, reason, size in _rows(dying, 4):
        deaths.append(SavedDeath(offset, deliveries, DeathReason(reason), image[at : at + size].decode()))
        at += size
    return SourceSnapshot(
        header[1],
        done,
        [SavedRetry(*row) for row in _rows(retries, 4 if header[0] == _WITHOUT_EPOCHS else 5)],
        [SavedLease(*row) for row in _rows(leases, 5)],
        {row[0]: row[1] for row in _rows(moved, 2)},
        deaths,
    )


def ints_to_bytes(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def ints_from_bytes(raw: bytes) -> array[int]:
    numbers: array[int] = array("q")
    numbers.frombytes(raw)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _rows(numbers: array[int], width: int) -> Iterable[tuple[int, ...]]:
    if len(numbers) % width:
        raise SnapshotError("a row is cut off")
    columns = [numbers[at::width] for at in range(width)]
    return zip(*columns, strict=True)
