"""Codec: schemas in Protocol Buffers: a .proto file, or the descriptor that protoc makes of one, in base64.

Both become a FileDescriptorProto with full names. Options that only code generators ask for are not kept in it; the text that was
registered has them.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from headrace.schemas.model import MAX_DEPTH, BadSchema, Resolve, Schema, resolved
from headrace.schemas.proto_file import read_proto

KNOWN: dict[str, bytes] = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2,
        struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2,
    )
}  # fmt: skip
"""Files that everybody has; nobody registers them."""


class ProtoSchema:
    """A file and what it imports."""

    def __init__(self, file: FileDescriptorProto, imports: dict[str, FileDescriptorProto]) -> None:
        self.file = file
        self.imports = imports

    def types(self) -> dict[str, Any]:
        """Messages and enums by their full names, `.package.Name`."""
        found: dict[str, Any] = {}
        for file in (*self.imports.values(), self.file):
            found |= types_of(file)
        return found


def parse(schema: Schema, resolve: Resolve) -> ProtoSchema:
    """Raises BadSchema."""
    imports: dict[str, FileDescriptorProto] = {}
    for name, other in resolved(schema, resolve):
        imports[name] = _read(other.text, name)
    file = _read(schema.text, "")
    waiting = [dependency for each in (*imports.values(), file) for dependency in each.dependency]
    while waiting:
        name = waiting.pop()
        if name in imports:
            continue
        if name not in KNOWN:
            raise BadSchema(f'"{name}" is imported, and no reference has this name')
        imports[name] = known = FileDescriptorProto.FromString(KNOWN[name])
        waiting += known.dependency
    made = ProtoSchema(file, imports)
    types = made.types()
    for each in (*imports.values(), file):
        if each.name not in KNOWN:
            _name_in_full(each, types)
    return made


def is_descriptor(text: str) -> bool:
    return _descriptor(text) is not None


def _read(text: str, name: str) -> FileDescriptorProto:
    """`name` is how others import it."""
    file = _descriptor(text) or read_proto(text)
    file.name = name or file.name or "schema.proto"
    if not file.message_type and not file.enum_type and not file.service and not file.extension:
        raise BadSchema("it defines nothing")
    return file


def _descriptor(text: str) -> FileDescriptorProto | None:
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    return file if file.message_type or file.enum_type or file.service else None


def types_of(file: FileDescriptorProto) -> dict[str, Any]:
    found: dict[str, Any] = {}
    prefix = f".{file.package}" if file.package else ""
    _add_types(file.message_type, file.enum_type, prefix, found)
    return found


def _add_types(messages: Any, enums: Any, prefix: str, found: dict[str, Any]) -> None:
    for enum in enums:
        found[f"{prefix}.{enum.name}"] = enum
    for message in messages:
        found[f"{prefix}.{message.name}"] = message
        _add_types(message.nested_type, message.enum_type, f"{prefix}.{message.name}", found)


def _name_in_full(file: FileDescriptorProto, types: dict[str, Any]) -> None:
    prefix = f".{file.package}" if file.package else ""
    for message in file.message_type:
        _resolve_message(message, f"{prefix}.{message.name}", types, 0)
    for field in file.extension:
        field.extendee = _found(field.extendee, prefix, types)
        _resolve_field(field, prefix, types)
    for service in file.service:
        for method in service.method:
            method.input_type = _found(method.input_type, prefix, types)
            method.output_type = _found(method.output_type, prefix, types)


def _resolve_message(message: Any, scope: str, types: dict[str, Any], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BadSchema(f"messages within messages, more than {MAX_DEPTH} deep")
    numbers: dict[int, str] = {}
    for field in message.field:
        if field.number in numbers:
            raise BadSchema(f"{scope[1:]}: {field.name} has the number of {numbers[field.number]}")
        numbers[field.number] = field.name
        _resolve_field(field, scope, types)
    for field in message.extension:
        field.extendee = _found(field.extendee, scope, types)
        _resolve_field(field, scope, types)
    for nested in message.nested_type:
        _resolve_message(nested, f"{scope}.{nested.name}", types, depth + 1)


def _resolve_field(field: Any, scope: str, types: dict[str, Any]) -> None:
    if not field.type_name:
        return
    field.type_name = _found(field.type_name, scope, types)
    if not field.HasField("type"):
        is_enum = isinstance(types[field.type_name], descriptor_pb2.EnumDescriptorProto)
        field.type = field.TYPE_ENUM if is_enum else field.TYPE_MESSAGE


def _found(name: str, scope: str, types: dict[str, Any]) -> str:
    """The innermost one of that name."""
    if name.startswith("."):
        if name in types:
            return name
    else:
        while True:
            full = f"{scope}.{name}"
            if full in types:
                return full
            if not scope:
                break
            scope = scope.rpartition(".")[0]
    raise BadSchema(f'there is no type "{name.lstrip(".")}"')
