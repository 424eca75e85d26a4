"""Frames for fuzzing: plausible requests of every API and version served, and ways to spoil them."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from typing import Any

from raw_client import encode_request
from subscriptions import encode_subscription

from headrace.core.ids import ZERO_UUID
from headrace.groups.subscription import MemberSubscription
from headrace.kafka.dispatch import TABLE
from headrace.records.build import Record, build_batch
from headrace.records.compression import Codec
from headrace.wire.api import API, ApiKey
from headrace.wire.codec import encode
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.framing import RequestHeader
from headrace.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from headrace.wire.schema import STRUCTS, FieldKind, FieldSpec

TOPICS = ("fuzz-plain", "fuzz-compact", "fuzz-zstd")
"""The world has these; the last two open what they are sent."""

INTERESTING = (0, 1, -1, 2, 127, 128, 255, 256, 32767, -32768, 65535, 2**31 - 1, -(2**31), 10_000, 1_000_000)
LONGS = (0, 1, -1, -2, -3, 2**63 - 1, -(2**63), 2**31, 1_750_000_000_000)
SIZES = {
    FieldKind.INT8: "b",
    FieldKind.INT16: "h",
    FieldKind.UINT16: "H",
    FieldKind.INT32: "i",
    FieldKind.INT64: "q",
}


class Frames:
    """A seeded source: the same seed gives the same frames."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._wall_ms = int(time.time() * 1000)
        self._kinds = [
            (entry.key, version)
            for entry in TABLE.values()
            for version in range(entry.min_version, entry.max_version + 1)
        ]
        self._queue: list[tuple[int, int]] = []
        self.topic_ids: list[bytes] = [ZERO_UUID]
        self.session = (0, 0)

    def next(self) -> bytes:
        """A frame without its length. One in ten is left as it is, so that deep paths are reached too."""
        if not self._queue:
            self._queue = self._dice.sample(self._kinds, len(self._kinds))
        key, version = self._queue.pop()
        frame = self.valid(key, version)
        for _ in range(self._dice.choice((0, 1, 1, 1, 2, 3, 8))):
            frame = self._dice.choice(MUTATIONS)(self._dice, frame)
        return frame or b"\x00"

    def valid(self, key: int, version: int) -> bytes:
        header = RequestHeader(
            key, version, self._dice.randrange(1 << 31), self._dice.choice(("fuzz", "", None))
        )
        return encode_request(header, encode(self._request(key, version), version))[4:]

    def _request(self, key: int, version: int) -> Any:
        if key == ApiKey.PRODUCE:
            return self._produce(version)
        if key == ApiKey.FETCH:
            return self._fetch(version)
        return self._struct(API[key].request, version)

    def _produce(self, version: int) -> ProduceRequest:
        topic = self._topic()
        rows = [
            ProducePartition(self._dice.choice((0, 0, 0, 1, 99)), self.batch())
            for _ in range(self._dice.choice((1, 1, 2)))
        ]
        return ProduceRequest(
            self._dice.choice((None, None, None, "fuzz-txn")), self._dice.choice((-1, 0, 1, 1)), 1000,
            [ProduceTopic(topic, ZERO_UUID, rows)],
        )  # fmt: skip

    def batch(self) -> bytearray:
        dice = self._dice
        records = [
            Record(
                dice.choice((b"k", b"", None)),
                dice.choice((b"v" * 20, b"", None)),
                (("h", b"x"),) * dice.choice((0, 0, 2)),
            )
            for _ in range(dice.choice((1, 1, 3, 50)))
        ]
        idempotent = dice.random() < 0.3
        return bytearray(
            build_batch(
                records, codec=dice.choice(list(Codec)), wall_ms=self._wall_ms,
                producer_id=dice.choice((1, 1000)) if idempotent else -1, producer_epoch=0 if idempotent else -1,
                base_sequence=dice.choice((0, 1, 5)) if idempotent else -1,
            )
        )  # fmt: skip

    def _fetch(self, version: int) -> FetchRequest:
        dice = self._dice
        part = FetchPartition(
            dice.choice((0, 0, 1)), -1, dice.choice((0, 0, 5, 10**6)), -1, -1, dice.choice((1, 1000, 1 << 20))
        )
        topic = FetchTopic(self._topic(), dice.choice(self.topic_ids), [part])
        session = self.session if dice.random() < 0.3 and version >= 7 else (0, dice.choice((-1, 0)))
        return FetchRequest(
            -1, -1, dice.choice((0, 0, 5)), 1, 1 << 20, dice.choice((0, 1)), *session, [topic]
        )

    def _topic(self) -> str:
        return self._dice.choice((*TOPICS, *TOPICS, "fuzz-none", "__consumer_offsets"))

    def _struct(self, cls: type[Any], version: int) -> Any:
        return cls(
            **{spec.name: self._value(spec, version) for spec in STRUCTS[cls] if spec.carried_by(version)}
        )

    def _value(self, spec: FieldSpec, version: int) -> Any:
        if version >= spec.nullable and self._dice.random() < 0.15:
            return None
        if spec.kind is FieldKind.STRUCT:
            assert spec.struct is not None
            return self._struct(spec.struct, version)
        if spec.kind is FieldKind.ARRAY:
            assert spec.element is not None
            kind, inner = spec.element
            count = self._dice.choice((0, 1, 1, 1, 2))
            return [
                self._primitive(spec.name, kind) if inner is None else self._struct(inner, version)
                for _ in range(count)
            ]
        return self._primitive(spec.name, spec.kind)

    def _primitive(self, name: str, kind: FieldKind) -> Any:
        dice = self._dice
        if kind is FieldKind.STRING:
            return self._text(name)
        if kind is FieldKind.UUID:
            return dice.choice(self.topic_ids)
        if kind in (FieldKind.BYTES, FieldKind.RECORDS):
            subscription = encode_subscription(MemberSubscription(1, ("fuzz-plain",)))
            return dice.choice((b"", subscription, b"\x00" * 30))
        if kind is FieldKind.BOOL:
            return dice.random() < 0.5
        if kind is FieldKind.FLOAT64:
            return dice.random()
        return self._number(name, kind)

    def _text(self, name: str) -> str:
        dice = self._dice
        if "topic" in name:
            return self._topic()
        if "config" in name or name == "name":
            return dice.choice(
                (*TOPICS, "retention.ms", "cleanup.policy", "fuzz-group", f"fuzz-new-{dice.randrange(20)}")
            )
        if "group" in name:
            return f"fuzz-group-{dice.randrange(4)}"
        if "transactional" in name:
            return dice.choice(("fuzz-txn", ""))
        if "protocol_type" in name:
            return "consumer"
        return dice.choice(("", "range", "1", "fuzz", "consumer", "compact", "ü\u0000\n", "x" * 300))

    def _number(self, name: str, kind: FieldKind) -> int:
        dice = self._dice
        if name.endswith("timeout_ms"):
            return dice.choice((1000, 6000, 30_000))
        if name in ("num_partitions", "count"):
            return dice.choice((1, 2, 3, -1))
        if name == "replication_factor":
            return dice.choice((1, 1, -1, 3))
        if kind is FieldKind.INT64:
            return dice.choice(LONGS)
        bits = {FieldKind.INT8: 8, FieldKind.INT16: 16, FieldKind.INT32: 32}.get(kind)
        if bits is None:
            return dice.randrange(1 << 16)
        number = dice.choice((0, 0, 0, 1, -1, *INTERESTING))
        return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


Mutation = Callable[[random.Random, bytes], bytes]


def _flip(dice: random.Random, frame: bytes) -> bytes:
    return _with(
        frame, at := dice.randrange(len(frame) or 1), bytes([_byte(frame, at) ^ 1 << dice.randrange(8)])
    )


def _set_byte(dice: random.Random, frame: bytes) -> bytes:
    return _with(frame, dice.randrange(len(frame) or 1), bytes([dice.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))]))


def _set_number(dice: random.Random, frame: bytes) -> bytes:
    code = dice.choice("hiq")
    bits = struct.calcsize(f">{code}") * 8
    number = (dice.choice(INTERESTING + LONGS) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    return _with(frame, dice.randrange(len(frame) or 1), struct.pack(f">{code}", number))


def _set_varint(dice: random.Random, frame: bytes) -> bytes:
    return _with(frame, dice.randrange(len(frame) or 1), b"\xff" * dice.choice((1, 3, 4, 9)) + b"\x0f")


def _cut(dice: random.Random, frame: bytes) -> bytes:
    return frame[: dice.randrange(len(frame) or 1)]


def _extend(dice: random.Random, frame: bytes) -> bytes:
    return frame + bytes(dice.randrange(256) for _ in range(dice.choice((1, 3, 40))))


def _repeat(dice: random.Random, frame: bytes) -> bytes:
    start = dice.randrange(len(frame) or 1)
    end = min(len(frame), start + dice.randrange(1, 30))
    return frame[:end] + frame[start:end] * dice.choice((1, 1, 50)) + frame[end:]


def _remove(dice: random.Random, frame: bytes) -> bytes:
    start = dice.randrange(len(frame) or 1)
    return frame[:start] + frame[start + dice.randrange(1, 9) :]


def _other_api(dice: random.Random, frame: bytes) -> bytes:
    """The same bytes under another key or version: every decoder meets every shape."""
    return _with(frame, dice.choice((0, 2)), struct.pack(">h", dice.choice((*range(95), -1, 32767))))


def _byte(frame: bytes, at: int) -> int:
    return frame[at] if at < len(frame) else 0


def _with(frame: bytes, at: int, piece: bytes) -> bytes:
    return frame[:at] + piece + frame[at + len(piece) :]


MUTATIONS: list[Mutation] = [
    _flip, _flip, _set_byte, _set_byte, _set_number, _set_number, _set_varint, _cut, _extend, _repeat, _remove, _other_api,
]  # fmt: skip
