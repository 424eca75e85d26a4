"""Codec: a .proto file (proto2, proto3, editions) as a descriptor. Names are as they stand there; `protobuf.py` makes them whole."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from headrace.schemas.model import MAX_DEPTH, BadSchema
from headrace.schemas.proto_tokens import Tokens

SCALARS: dict[str, int] = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7, "bool": 8,
    "string": 9, "bytes": 12, "uint32": 13, "sfixed32": 15, "sfixed64": 16, "sint32": 17, "sint64": 18,
}  # fmt: skip
LABELS: dict[str, int] = {"optional": 1, "required": 2, "repeated": 3}
MAX_NUMBER = (1 << 29) - 1


def read_proto(text: str) -> FileDescriptorProto:
    """Raises BadSchema."""
    return _Reader(Tokens(text)).file()


class _Reader:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._is_proto3 = False

    def file(self) -> FileDescriptorProto:
        tokens, file = self._tokens, FileDescriptorProto()
        if tokens.took("syntax", "="):
            file.syntax = tokens.text()
            if file.syntax not in ("proto2", "proto3"):
                raise BadSchema(f'there is no syntax "{file.syntax}"')
            self._is_proto3 = file.syntax == "proto3"
            if not self._is_proto3:
                file.ClearField("syntax")  # as protoc does
            tokens.expect(";")
        elif tokens.took("edition", "="):
            file.syntax = "editions"
            tokens.text()
            tokens.expect(";")
        while tokens.ahead.kind != "end":
            self._statement(file)
        return file

    def _statement(self, file: FileDescriptorProto) -> None:
        tokens = self._tokens
        token = tokens.take()
        match token.text:
            case ";":
                pass
            case "package":
                file.package = tokens.full_name()
                tokens.expect(";")
            case "import":
                _ = tokens.took("public") or tokens.took("weak")
                file.dependency.append(tokens.text())
                tokens.expect(";")
            case "option":
                name, value = self._option()
                _set_option(file.options, name, value)
                tokens.expect(";")
            case "message":
                self._message(file.message_type.add(), 0)
            case "enum":
                self._enum(file.enum_type.add())
            case "extend":
                self._extend(file.extension, file.message_type)
            case "service":
                self._service(file)
            case _:
                raise BadSchema(f'line {token.line}: "{token.text}" has no place here')

    def _option(self) -> tuple[str, str]:
        """Name and value; the name of a custom option is empty."""
        tokens = self._tokens
        name = ""
        if tokens.took("("):
            tokens.full_name()
            tokens.expect(")")
            while tokens.took("."):
                if tokens.took("("):
                    tokens.full_name()
                    tokens.expect(")")
                else:
                    tokens.word()
        else:
            name = tokens.full_name()
        tokens.expect("=")
        return name, tokens.skip_value()

    def _message(self, message: DescriptorProto, depth: int, name: str = "") -> None:
        if depth > MAX_DEPTH:
            raise BadSchema(f"messages within messages, more than {MAX_DEPTH} deep")
        tokens = self._tokens
        message.name = name or tokens.word()
        tokens.expect("{")
        while not tokens.took("}"):
            token = tokens.ahead
            if tokens.took(";"):
                continue
            if tokens.took("option"):
                option, value = self._option()
                if option == "map_entry":
                    raise BadSchema(f"line {token.line}: map_entry is not set by hand; write map<…, …>")
                _set_option(message.options, option, value)
                tokens.expect(";")
            elif tokens.took("reserved"):
                self._reserved(message)
            elif tokens.took("extensions"):
                self._ranges(message.extension_range, message_form=True)
                self._field_options(None)
                tokens.expect(";")
            elif self._is_definition("message"):
                self._message(message.nested_type.add(), depth + 1)
            elif self._is_definition("enum"):
                self._enum(message.enum_type.add())
            elif self._is_definition("extend"):
                self._extend(message.extension, message.nested_type)
            elif self._is_definition("oneof"):
                self._oneof(message, depth)
            else:
                self._field(message, message.field, depth)
        self._number_optionals(message)

    def _is_definition(self, word: str) -> bool:
        """`message Name {`: these words may also be names of types."""
        tokens = self._tokens
        if tokens.ahead.text != word:
            return False
        tokens.take()
        return True

    def _passes_over(self) -> bool:
        """An option that nothing here asks about, or nothing at all."""
        if self._tokens.took(";"):
            return True
        if not self._tokens.took("option"):
            return False
        self._option()
        self._tokens.expect(";")
        return True

    def _oneof(self, message: DescriptorProto, depth: int) -> None:
        tokens = self._tokens
        index = len(message.oneof_decl)
        message.oneof_decl.add().name = tokens.word()
        tokens.expect("{")
        while not tokens.took("}"):
            if self._passes_over():
                continue
            self._field(message, message.field, depth, oneof=index)

    def _field(self, message: Any, fields: Any, depth: int, oneof: int = -1) -> None:
        tokens = self._tokens
        label = ""
        if tokens.ahead.text in LABELS and oneof < 0:
            label = tokens.take().text
        field: FieldDescriptorProto = fields.add()
        field.label = LABELS[label or "optional"]
        if oneof >= 0:
            field.oneof_index = oneof
        elif label == "optional" and self._is_proto3:
            field.proto3_optional = True
        if tokens.took("map", "<"):
            self._map(message, field)
        elif tokens.took("group"):
            self._group(message, field, depth)
            return
        else:
            name = tokens.full_name()
            if name in SCALARS:
                field.type = SCALARS[name]
            else:
                field.type_name = name
            field.name = tokens.word()
        tokens.expect("=")
        field.number = self._number()
        self._field_options(field)
        tokens.expect(";")

    def _map(self, message: Any, field: FieldDescriptorProto) -> None:
        tokens = self._tokens
        key = tokens.word()
        if key not in SCALARS or key in ("double", "float", "bytes"):
            raise BadSchema(f"{key} can't be the key of a map")
        tokens.expect(",")
        value = tokens.full_name()
        tokens.expect(">")
        field.name = tokens.word()
        field.label = FieldDescriptorProto.LABEL_REPEATED
        entry = message.nested_type.add()
        entry.name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=SCALARS[key])
        made = entry.field.add(name="value", number=2, label=1)
        if value in SCALARS:
            made.type = SCALARS[value]
        else:
            made.type_name = value
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = entry.name

    def _group(self, message: Any, field: FieldDescriptorProto, depth: int) -> None:
        tokens = self._tokens
        name = tokens.word()
        tokens.expect("=")
        field.number = self._number()
        field.name, field.type_name = name.lower(), name
        field.type = FieldDescriptorProto.TYPE_GROUP
        self._field_options(field)
        self._message(message.nested_type.add(), depth + 1, name)

    def _field_options(self, field: FieldDescriptorProto | None) -> None:
        tokens = self._tokens
        if not tokens.took("["):
            return
        while True:
            name, value = self._option()
            if field is not None:
                if name == "default":
                    field.default_value = value
                elif name == "json_name":
                    field.json_name = value
                else:
                    _set_option(field.options, name, value)
            if tokens.took("]"):
                return
            tokens.expect(",")

    def _number(self) -> int:
        number = self._tokens.whole()
        if not 1 <= number <= MAX_NUMBER or 19_000 <= number <= 19_999:
            raise BadSchema(f"{number} can't be the number of a field")
        return number

    def _number_optionals(self, message: DescriptorProto) -> None:
        """What is optional in proto3 is a oneof of its own, behind those that were written."""
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add().name = f"_{field.name}"

    def _reserved(self, message: Any) -> None:
        tokens = self._tokens
        if tokens.ahead.kind in ("text", "word"):
            while True:
                message.reserved_name.append(tokens.text() if tokens.ahead.kind == "text" else tokens.word())
                if not tokens.took(","):
                    break
        else:
            self._ranges(message.reserved_range, message_form=isinstance(message, DescriptorProto))
        tokens.expect(";")

    def _ranges(self, ranges: Any, *, message_form: bool) -> None:
        tokens = self._tokens
        while True:
            first = tokens.whole()
            last = first
            if tokens.took("to"):
                last = MAX_NUMBER if tokens.took("max") else tokens.whole()
            ranges.add(start=first, end=last + 1 if message_form else last)
            if not tokens.took(","):
                return

    def _enum(self, enum: EnumDescriptorProto) -> None:
        tokens = self._tokens
        enum.name = tokens.word()
        tokens.expect("{")
        while not tokens.took("}"):
            if tokens.took(";"):
                continue
            if tokens.took("option"):
                name, value = self._option()
                _set_option(enum.options, name, value)
                tokens.expect(";")
            elif tokens.took("reserved"):
                self._reserved(enum)
            else:
                symbol = tokens.word()
                tokens.expect("=")
                enum.value.add(name=symbol, number=tokens.whole())
                self._field_options(None)
                tokens.expect(";")
        if not enum.value:
            raise BadSchema(f"the enum {enum.name} has no values")

    def _extend(self, fields: Any, messages: Any) -> None:
        tokens = self._tokens
        extendee = tokens.full_name()
        tokens.expect("{")
        before = len(fields)
        holder = DescriptorProto()
        while not tokens.took("}"):
            if not tokens.took(";"):
                self._field(holder, fields, 0)
        for field in fields[before:]:
            field.extendee = extendee
        messages.extend(holder.nested_type)

    def _service(self, file: FileDescriptorProto) -> None:
        tokens = self._tokens
        service = file.service.add()
        service.name = tokens.word()
        tokens.expect("{")
        while not tokens.took("}"):
            if self._passes_over():
                continue
            tokens.expect("rpc")
            method = service.method.add(name=tokens.word())
            method.client_streaming, method.input_type = self._side()
            tokens.expect("returns")
            method.server_streaming, method.output_type = self._side()
            if tokens.took("{"):
                while not tokens.took("}"):
                    if tokens.took("option"):
                        self._option()
                    tokens.expect(";")
            else:
                tokens.expect(";")

    def _side(self) -> tuple[bool, str]:
        tokens = self._tokens
        tokens.expect("(")
        streams = tokens.ahead.text == "stream" and tokens.took("stream")
        name = tokens.full_name()
        tokens.expect(")")
        return streams, name


def _set_option(options: Any, name: str, value: str) -> None:
    """Options that the descriptor has a place for; those of plug-ins are theirs."""
    kind = options.DESCRIPTOR.fields_by_name.get(name)
    if kind is None or kind.is_repeated:
        return
    match kind.cpp_type:
        case kind.CPPTYPE_STRING:
            setattr(options, name, value)
        case kind.CPPTYPE_BOOL:
            setattr(options, name, value == "true")
        case kind.CPPTYPE_ENUM:
            symbol = kind.enum_type.values_by_name.get(value)
            if symbol is not None:
                setattr(options, name, symbol.number)
