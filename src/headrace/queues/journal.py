"""Codec: durable facts as keyed records, bounded under compaction.

What is durable, and what is not:

    acknowledgements, gaps, expiries, cancellations      always, before they are answered (R57)
    returned with a delivery count (release, expiry)     always; so counts survive a failover, except for those of
                                                         deliveries that were in flight: approximate, never too high
    death, and the end of the move                       always (R60)
    purge, seek, moved due time, deduplication ids       always
    leases and their extension                           only when the queue has journaled_leases (share groups have not)
    what is in the log, what is ready, the clock         never; read again. That a rest is over is not journaled
                                                         either, so after a failover it may be rested again

Keys (each after its letter: queue, topic, partition; strings have a 2-byte length):

    C  queue                  the configuration
    P  queue                  present while paused
    S  source, side, part     checkpoint: the whole state as of a sequence number
    D  source, slot           delta: one fact
    U  source, page           a page of the deduplication index

A delta's `seq` counts the durable facts of its source; its `slot` counts them since the last checkpoint, so a new
checkpoint makes the slots start at 0 again and overwrite what it contains. Per source the compacted journal is at most
two checkpoints, the deltas of one interval, and the deduplication window. Checkpoints alternate between two sides,
because one that was cut off by a crash must not have overwritten the last whole one.

Replay, in log order of a log compacted anywhere: collect; then take the newest whole checkpoint and apply, by `seq`, the
deltas after it. This finds every fact: a delta is overwritten only by one that was written after a whole
checkpoint that contains it. A gap in `seq` is the delta of an aborted transaction and is nothing.

Values start with a version byte; records that this version can not read are passed over.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from struct import Struct, pack
from struct import error as struct_error
from typing import Any, NamedTuple

from headrace.core.plan import JournalRecord
from headrace.queues.commands import DeathReason, Outcome, Source
from headrace.queues.config import config_to_json
from headrace.queues.facts import (
    NO_LANE,
    Checkpointed,
    Configured,
    Deduplicated,
    Delta,
    Died,
    Doomed,
    ExtendedDurably,
    GivenBack,
    Grant,
    LeasedDurably,
    Paused,
    Positioned,
    Purged,
    QueueRemoved,
    Rescheduled,
    Returned,
    Settled,
    Sighting,
    SourceRemoved,
)
from headrace.queues.snapshot import ints_from_bytes

_VERSION = 1
_LENGTH = Struct(">H")
_PARTITION = Struct(">i")
_SLOT = Struct(">I")
_PART = Struct(">BI")
_PAGE = Struct(">Q")
_DELTA = Struct(">BBqH")
"""version, kind, seq, bytes of text; then the text, then integers."""
_CHECKPOINT = Struct(">BqI")
"""version, seq, how many parts."""
_SIGHTING = Struct(">16sqq")

CONFIG, PAUSE, CHECKPOINT, DELTA, DEDUP = b"C", b"P", b"S", b"D", b"U"

_KINDS: dict[type, int] = {
    Positioned: 1, Settled: 2, Returned: 3, Died: 4, Purged: 5, Rescheduled: 6, LeasedDurably: 7, ExtendedDurably: 8,
}  # fmt: skip


class UnreadableRecord(ValueError):
    """A record that this version does not understand."""


class Key(NamedTuple):
    letter: bytes
    queue: str
    source: Source | None = None
    number: int = 0
    """Slot, part or page."""
    side: int = 0


class CheckpointPart(NamedTuple):
    seq: int
    parts: int
    data: bytes


# --- keys ------------------------------------------------------------------------------------------------------


def queue_key(letter: bytes, queue: str) -> bytes:
    return letter + _text(queue)


def source_key(letter: bytes, source: Source, tail: bytes) -> bytes:
    return letter + _source_bytes(source) + tail


@lru_cache(maxsize=10_000)
def _source_bytes(source: Source) -> bytes:
    return _text(source.queue) + _text(source.topic) + _PARTITION.pack(source.partition)


def decode_key(raw: bytes) -> Key:
    try:
        letter = raw[:1]
        queue, at = _read_text(raw, 1)
        if letter in (CONFIG, PAUSE):
            return Key(letter, queue)
        topic, at = _read_text(raw, at)
        source = Source(queue, topic, _PARTITION.unpack_from(raw, at)[0])
        at += _PARTITION.size
        if letter == CHECKPOINT:
            side, part = _PART.unpack_from(raw, at)
            return Key(letter, queue, source, part, side)
        if letter == DELTA:
            return Key(letter, queue, source, _SLOT.unpack_from(raw, at)[0])
        if letter == DEDUP:
            return Key(letter, queue, source, _PAGE.unpack_from(raw, at)[0])
    except (struct_error, UnicodeDecodeError) as error:
        raise UnreadableRecord(str(error)) from error
    raise UnreadableRecord(f"a key of kind {letter!r}")


def _text(text: str) -> bytes:
    raw = text.encode()
    return _LENGTH.pack(len(raw)) + raw


def _read_text(raw: bytes, at: int) -> tuple[str, int]:
    end = at + _LENGTH.size + _LENGTH.unpack_from(raw, at)[0]
    return raw[at + _LENGTH.size : end].decode(), end


# --- facts to records ------------------------------------------------------------------------------------------


def encode_fact(fact: Any) -> Sequence[JournalRecord]:
    kind = _KINDS.get(type(fact))
    if kind is not None:
        text, numbers = _delta_content(fact)
        raw = text.encode()[:0xFFFF]
        head = _DELTA.pack(_VERSION, kind, fact.seq, len(raw))
        value = b"".join((head, raw, pack(f"<{len(numbers)}q", *numbers)))
        return [JournalRecord(DELTA + _source_bytes(fact.source) + _SLOT.pack(fact.slot), value)]
    match fact:
        case Checkpointed():
            return _encode_checkpoint(fact)
        case Deduplicated():
            return _encode_dedup(fact)
        case Configured():
            value = bytes([_VERSION]) + config_to_json(fact.config)
            return [JournalRecord(queue_key(CONFIG, fact.queue), value)]
        case Paused():
            return [JournalRecord(queue_key(PAUSE, fact.queue), bytes([_VERSION]) if fact.paused else None)]
        case QueueRemoved():
            return [JournalRecord(queue_key(letter, fact.queue), None) for letter in (CONFIG, PAUSE)]
        case SourceRemoved():
            return _encode_removal(fact)
    raise TypeError(f"{type(fact).__name__} is not journaled")


def _delta_content(fact: Delta) -> tuple[str, Sequence[int]]:
    match fact:
        case Settled():
            return "", [fact.outcome, *chain.from_iterable(fact.ranges)]
        case LeasedDurably():
            grants = [fact.visibility_ms, fact.epoch]
            for grant in fact.grants:
                grants += grant[:4]
            return "", grants
        case Returned():
            return "", [*chain.from_iterable(fact.given_back)]
        case ExtendedDurably():
            return "", [fact.visibility_ms, *fact.offsets]
        case Died():
            return fact.detail, [fact.reason, *chain.from_iterable(fact.doomed)]
        case Positioned():
            return "", [fact.offset]
        case Purged():
            return "", [fact.upto]
        case Rescheduled():
            return "", [fact.offset, fact.due_ms]


def _encode_checkpoint(fact: Checkpointed) -> list[JournalRecord]:
    head = _CHECKPOINT.pack(_VERSION, fact.seq, len(fact.parts))
    records = [
        JournalRecord(source_key(CHECKPOINT, fact.source, _PART.pack(fact.side, number)), head + part)
        for number, part in enumerate(fact.parts)
    ]
    records += [
        JournalRecord(source_key(CHECKPOINT, fact.source, _PART.pack(fact.side, number)), None)
        for number in range(len(fact.parts), len(fact.parts) + fact.surplus_parts)
    ]
    return records


def _encode_dedup(fact: Deduplicated) -> list[JournalRecord]:
    value = bytes([_VERSION]) + b"".join([_SIGHTING.pack(*sighting) for sighting in fact.sightings])
    records = [JournalRecord(source_key(DEDUP, fact.source, _PAGE.pack(fact.page)), value)]
    records += [
        JournalRecord(source_key(DEDUP, fact.source, _PAGE.pack(page)), None) for page in fact.forget_pages
    ]
    return records


def _encode_removal(fact: SourceRemoved) -> list[JournalRecord]:
    tails = [(DELTA, _SLOT.pack(slot)) for slot in range(fact.slots)]
    tails += [(CHECKPOINT, _PART.pack(side, part)) for side in (0, 1) for part in range(fact.parts[side])]
    tails += [(DEDUP, _PAGE.pack(page)) for page in fact.pages]
    return [JournalRecord(source_key(letter, fact.source, tail), None) for letter, tail in tails]


# --- records to facts ------------------------------------------------------------------------------------------


def decode_checkpoint_part(value: bytes) -> CheckpointPart:
    try:
        version, seq, count = _CHECKPOINT.unpack_from(value)
    except struct_error as error:
        raise UnreadableRecord(str(error)) from error
    _check_version(version)
    return CheckpointPart(seq, count, value[_CHECKPOINT.size :])


def decode_dedup_page(value: bytes) -> list[Sighting]:
    _check_version(value[0] if value else 0)
    try:
        return [Sighting(*fields) for fields in _SIGHTING.iter_unpack(value[1:])]
    except struct_error as error:
        raise UnreadableRecord(str(error)) from error


def decode_config(value: bytes) -> bytes:
    _check_version(value[0] if value else 0)
    return value[1:]


def decode_delta(source: Source, slot: int, value: bytes) -> Delta:
    try:
        version, kind, seq, size = _DELTA.unpack_from(value)
        _check_version(version)
        at = _DELTA.size + size
        numbers = ints_from_bytes(value[at:])
        return _delta_from(kind, (source, seq, slot), value[_DELTA.size : at].decode(), numbers)
    except (struct_error, ValueError, IndexError, TypeError) as error:
        raise UnreadableRecord(str(error)) from error


def _delta_from(kind: int, place: tuple[Source, int, int], text: str, numbers: array[int]) -> Delta:
    match kind:
        case 1:
            return Positioned(*place, numbers[0])
        case 2:
            pairs = zip(numbers[1::2], numbers[2::2], strict=True)
            return Settled(*place, tuple(pairs), Outcome(numbers[0]))
        case 3:
            return Returned(*place, tuple([GivenBack(*row) for row in _rows(numbers, 5)]))
        case 4:
            doomed = tuple([Doomed(*row) for row in _rows(numbers[1:], 2)])
            return Died(*place, doomed, DeathReason(numbers[0]), text)
        case 5:
            return Purged(*place, numbers[0])
        case 6:
            return Rescheduled(*place, numbers[0], numbers[1])
        case 7:
            grants = tuple([Grant(row[0], row[1], row[2], row[3], NO_LANE) for row in _rows(numbers[2:], 4)])
            return LeasedDurably(*place, grants, numbers[0], numbers[1], "")
        case 8:
            return ExtendedDurably(*place, tuple(numbers[1:]), numbers[0])
    raise UnreadableRecord(f"a delta of kind {kind}")


def _rows(numbers: array[int], width: int) -> list[tuple[int, ...]]:
    return list(zip(*(numbers[at::width] for at in range(width)), strict=True))


def _check_version(version: int) -> None:
    if version != _VERSION:
        raise UnreadableRecord(f"version {version}")
