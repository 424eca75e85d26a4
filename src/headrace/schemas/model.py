"""Kernel: a schema as it was registered, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]
SCHEMA_TYPES: tuple[SchemaType, ...] = ("AVRO", "JSON", "PROTOBUF")


class Reference(msgspec.Struct, frozen=True, order=True):
    """`name` is how the text calls it: a full name in Avro, a `$ref` in JSON Schema, an import in Protobuf."""

    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True):
    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()


Resolve = Callable[[Reference], Schema]
"""Raises BadSchema when there is no such version."""


class BadSchema(Exception):
    """The text is for whoever wrote the schema."""


MAX_DEPTH = 64
"""Of a text within itself, and of references."""


def resolved(schema: Schema, resolve: Resolve) -> list[tuple[str, Schema]]:
    """Everything that it rests on, with the names by which it is called, each after what it rests on itself."""
    found: dict[str, Schema] = {}
    _collect(schema, resolve, found, 0)
    return list(found.items())


def _collect(schema: Schema, resolve: Resolve, found: dict[str, Schema], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BadSchema("its references go too deep")
    for reference in schema.references:
        if reference.name not in found:
            other = resolve(reference)
            _collect(other, resolve, found, depth + 1)
            found[reference.name] = other
