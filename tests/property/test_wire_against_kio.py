"""Every message and version against kio, a second implementation generated from Kafka's own definitions.

kio builds a value and encodes it; we decode, compare field by field, encode again and must get the very same bytes. So
both directions, the order of fields, nullability, tags and defaults are checked at once. kio never sees bytes that
did not come from an encoder: it aborts the process on hostile ones.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import pkgutil
import random
import typing
import uuid
from collections.abc import Iterator
from typing import Any

import kio.schema
import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from headrace.core.ids import ZERO_UUID
from headrace.wire.api import API
from headrace.wire.codec import decode, encode, versions

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
SAMPLES = 6
PACKAGES = {name.replace("_", ""): name for _, name, _ in pkgutil.iter_modules(kio.schema.__path__)}


def kio_class(message: type[Any], version: int) -> type[Any]:
    name = message.__name__
    kind = "request" if name.endswith("Request") else "response" if name.endswith("Response") else "data"
    package = PACKAGES[name.removesuffix("Request").removesuffix("Response").lower()]
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{kind}")
    found: type[Any] = getattr(module, name)
    return found


def cases() -> Iterator[Any]:
    messages = [m for spec in API.values() for m in (spec.request, spec.response)]
    for message in messages:
        for version in versions(message):
            yield pytest.param(message, version, id=f"{message.__name__}-v{version}")


def sample(dice: random.Random, kafka_type: str, richness: int) -> Any:
    if kafka_type in INT_BITS:
        half = 1 << INT_BITS[kafka_type] - 1
        return dice.choice((0, -1, 1, half - 1, -half, dice.randrange(-half, half)))
    match kafka_type:
        case "bool":
            return dice.random() < 0.5
        case "uint16":
            return dice.randrange(1 << 16)
        case "float64":
            return dice.uniform(-1e9, 1e9)
        case "string":
            return "".join(dice.choices("aé€😀-_.", k=dice.choice((0, 1, 5, 130))))
        case "bytes" | "records":
            return dice.randbytes(dice.choice((0, 1, 20, 130, 17000 if richness else 3)))
        case "uuid":
            return uuid.UUID(bytes=dice.randbytes(16), version=4)
        case "error_code":
            return dice.choice(list(ErrorCode))
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=dice.randrange(-5000, 1 << 31))
        case "datetime_i64":
            return EPOCH + datetime.timedelta(milliseconds=dice.randrange(0, 1 << 41))
    raise AssertionError(kafka_type)


def unwrap(hint: Any) -> tuple[Any, bool]:
    arguments = typing.get_args(hint)
    if type(None) in arguments:
        return next(a for a in arguments if a is not type(None)), True
    return hint, False


def build(dice: random.Random, cls: type[Any], richness: int) -> Any:
    """`richness` 0 builds the plainest value, with every array empty and everything nullable null."""
    values: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        inner, optional = unwrap(hints[field.name])
        kafka_type = field.metadata.get("kafka_type", "")
        tagged = "tag" in field.metadata
        if (optional and (richness == 0 or dice.random() < 0.3)) or (tagged and richness == 0):
            if optional:
                values[field.name] = None
            continue
        if typing.get_origin(inner) is tuple:
            element = typing.get_args(inner)[0]
            count = dice.choice((0, 1, 2, 3)) if richness else 0
            if richness and kafka_type and dice.random() < 0.1:
                count = 140
            values[field.name] = tuple(
                sample(dice, kafka_type, 0) if kafka_type else build(dice, element, richness)
                for _ in range(count)
            )
        elif kafka_type:
            values[field.name] = sample(dice, kafka_type, richness)
        else:
            values[field.name] = build(dice, inner, richness)
    return cls(**values)


def plain(value: Any) -> Any:
    """kio's value as the number, text or bytes that travels."""
    if isinstance(value, ErrorCode):
        return int(value.value)
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if isinstance(value, datetime.datetime):
        return round((value - EPOCH) / datetime.timedelta(milliseconds=1))
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value


RENAMED = {
    # Ours, where a hand-written type or our own name differs from Kafka's.
    "topic_data": "topics",
    "partition_data": "partitions",
    "responses": "topics",
    "partition_responses": "partitions",
    "topic": "name",
    "index": "partition",
    "partition_index": "partition",
    "batch_index_error_message": "message",
    "forgotten_topics_data": "forgotten_topics",
}


def attribute(ours: Any, name: str) -> Any:
    for candidate in (name, name + "_ms", RENAMED.get(name, name)):
        if hasattr(ours, candidate) and not callable(getattr(ours, candidate)):
            return getattr(ours, candidate)
    raise AssertionError(f"{type(ours).__name__} has no {name}")


def assert_same(ours: Any, theirs: Any, where: str) -> None:
    if ours is None and dataclasses.is_dataclass(theirs):
        # We say None where Kafka's default struct in a tag means "none".
        kind: Any = type(theirs)
        assert theirs == kind(), where
    elif dataclasses.is_dataclass(theirs):
        for field in dataclasses.fields(theirs):
            if field.name == "replica_state":
                state = getattr(theirs, field.name)
                assert (ours.replica_id, ours.replica_epoch) == (state.replica_id, state.replica_epoch)
                continue
            assert_same(attribute(ours, field.name), getattr(theirs, field.name), f"{where}.{field.name}")
    elif isinstance(theirs, tuple):
        assert len(ours) == len(theirs), where
        for mine, yours in zip(ours, theirs, strict=True):
            assert_same(mine, yours, where)
    elif theirs is None:
        # kio says None for the zero uuid and for the timestamp -1.
        assert ours is None or ours in (ZERO_UUID, -1), where
    else:
        assert ours == plain(theirs), where


@pytest.mark.parametrize(("message", "version"), list(cases()))
def test_same_bytes_and_same_values(message: type[Any], version: int) -> None:
    theirs_type = kio_class(message, version)
    write, read = entity_writer(theirs_type), entity_reader(theirs_type)
    dice = random.Random(f"{message.__name__}{version}")
    for richness in range(SAMPLES):
        theirs = build(dice, theirs_type, richness)
        buffer = io.BytesIO()
        write(buffer, theirs)
        data = buffer.getvalue()
        ours = decode(message, version, data)
        assert_same(ours, theirs, message.__name__)
        again = encode(ours, version)
        assert again == data
        assert read(again, 0) == (theirs, len(data))
