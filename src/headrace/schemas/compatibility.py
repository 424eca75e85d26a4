"""Machine: schemas of every kind alike: read, brought into one form, and held against earlier ones.

A consumer with the new schema reads what was written with earlier ones: BACKWARD. Consumers with earlier ones read what is written with
the new one: FORWARD. Both: FULL. Against the latest version, or (TRANSITIVE) against all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from headrace.schemas import avro, avro_reading, json_reading, json_schema
from headrace.schemas.model import BadSchema, Resolve, Schema

Level = Literal[
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]
LEVELS: tuple[Level, ...] = (
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE",
)  # fmt: skip
DEFAULT_LEVEL: Level = "BACKWARD"


def parsed(schema: Schema, resolve: Resolve) -> Any:
    """Raises BadSchema."""
    match schema.type:
        case "AVRO":
            return avro.parse(schema, resolve)
        case "JSON":
            return json_schema.parse(schema, resolve)
        case "PROTOBUF":
            from headrace.schemas import protobuf  # a quarter of a second, for those who use it

            return protobuf.parse(schema, resolve)


def kept_text(schema: Schema, resolve: Resolve, *, normalized: bool) -> str:
    """As it is stored and given out. Raises BadSchema."""
    match schema.type:
        case "AVRO":
            return avro.canonical(schema.text) if normalized else avro.compact(schema.text)
        case "JSON":
            return json_schema.canonical(schema.text) if normalized else json_schema.compact(schema.text)
        case "PROTOBUF":
            from headrace.schemas import proto_text, protobuf

            if normalized or protobuf.is_descriptor(schema.text):
                return proto_text.written(protobuf.parse(schema, resolve).file, in_order=normalized)
            return schema.text.strip() + "\n"


def identity(schema: Schema, resolve: Resolve) -> str:
    """Two schemas are one and the same when this is the same (and what they refer to)."""
    match schema.type:
        case "AVRO":
            return avro.canonical(schema.text)
        case "JSON":
            return json_schema.compact(schema.text)
        case "PROTOBUF":
            from headrace.schemas import proto_text, protobuf

            return proto_text.written(protobuf.parse(schema, resolve).file)


def serialized(schema: Schema, resolve: Resolve) -> str:
    """`format=serialized` of a Protobuf schema: the descriptor in base64."""
    import base64

    from headrace.schemas import protobuf

    return base64.b64encode(protobuf.parse(schema, resolve).file.SerializeToString()).decode()


def problems(level: Level, new: Schema, earlier: Sequence[Schema], resolve: Resolve) -> list[str]:
    """What a reader would stumble over; empty: nothing. `earlier` is in order of age. Raises BadSchema about the new one."""
    after = parsed(new, resolve)
    if level == "NONE" or not earlier:
        return []
    against = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    found: list[str] = []
    for old in reversed(against):
        if old.type != new.type:
            found.append(f"the type changes from {old.type} to {new.type}")
            continue
        try:
            before = parsed(old, resolve)
        except BadSchema as problem:
            found.append(f"an earlier version can't be read any more: {problem}")
            continue
        if level.startswith(("BACKWARD", "FULL")):
            found += _unread(new.type, after, before)
        if level.startswith(("FORWARD", "FULL")):
            found += _unread(new.type, before, after)
    return list(dict.fromkeys(found))


def _unread(kind: str, reader: Any, writer: Any) -> list[str]:
    match kind:
        case "AVRO":
            return avro_reading.problems(reader, writer)
        case "JSON":
            return json_reading.problems(reader, writer)
        case _:
            from headrace.schemas import proto_reading

            return proto_reading.problems(reader, writer)
