"""Codec: turns a schema into Python source, once per (message, version).

The source is one flat function: nested structs become nested loops, neighbouring fixed-size fields one `struct` call,
and the length byte of a compact type rides along in the call before it. That is what a person would write by hand,
and it is several times faster than walking the schema for each message.

Invariants: before a list is grown, its count times the smallest size of an element is compared with the bytes left (X10), and
its count is taken from `left`, the entries that the whole message may still have (A3). Unknown tagged fields count too.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace.core.ports import Buffer
from headrace.wire.primitives import fail, read_tag_count, read_uvarint, skip_counted_tags, too_many, uvarint
from headrace.wire.schema import MESSAGES, STRUCTS, FieldKind, FieldSpec

Decoder = Callable[[Buffer, int, int], tuple[Any, int]]
Encoder = Callable[[Any, Callable[[Buffer], None]], None]
SlicedEncoder = Callable[[Any, Callable[[Buffer], None]], Iterator[None]]

_VARIABLE = (FieldKind.STRING, FieldKind.BYTES, FieldKind.RECORDS)
_NUMBERS = (FieldKind.INT8, FieldKind.INT16, FieldKind.INT32, FieldKind.INT64)
_SMALL_ARRAY = 16
_UNPACK = {k: [struct.Struct(f">{n}{k.value}").unpack_from for n in range(_SMALL_ARRAY)] for k in _NUMBERS}
_PACK = {k: [struct.Struct(f">{n}{k.value}").pack for n in range(_SMALL_ARRAY)] for k in _NUMBERS}


def _many_unpacker(code: str) -> Callable[[int, Buffer, int], tuple[Any, ...]]:
    return lambda count, buf, pos: struct.unpack_from(f">{count}{code}", buf, pos)


def _many_packer(code: str) -> Callable[[list[int]], bytes]:
    return lambda values: struct.pack(f">{len(values)}{code}", *values)


_UNPACK_MANY = {k: _many_unpacker(k.value) for k in _NUMBERS}
_PACK_MANY = {k: _many_packer(k.value) for k in _NUMBERS}


def smallest_size(kind: FieldKind, nested: type[Any] | None, version: int, flexible: bool) -> int:
    """The fewest bytes one value can take: what a claimed count is checked against."""
    if kind is FieldKind.STRUCT:
        assert nested is not None
        total = 1 if flexible else 0
        for spec in STRUCTS[nested]:
            if spec.carried_by(version) and spec.tag is None:
                announced = spec.kind is FieldKind.STRUCT and version >= spec.nullable
                total += 1 if announced else smallest_size(spec.kind, spec.struct, version, flexible)
        return total
    if kind is FieldKind.STRING:
        return 1 if flexible else 2
    if kind in (FieldKind.BYTES, FieldKind.RECORDS, FieldKind.ARRAY):
        return 1 if flexible else 4
    return struct.calcsize(">" + kind.value)


def has_records(cls: type[Any]) -> bool:
    for spec in STRUCTS[cls]:
        inner = spec.struct or (spec.element and spec.element.struct)
        if spec.kind is FieldKind.RECORDS or (inner is not None and has_records(inner)):
            return True
    return False


class _Source:
    """Lines of a function under construction, and the constants they name."""

    def __init__(self, cls: type[Any], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = version >= MESSAGES[cls].flexible
        self.lines: list[str] = []
        self.depth = 1
        self.constants: dict[str, Any] = {"uvarint": uvarint, "fail": fail}
        self.counter = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def name(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def constant(self, value: Any, prefix: str) -> str:
        for known, other in self.constants.items():
            if other is value:
                return known
        name = self.name(prefix)
        self.constants[name] = value
        return name

    def shape(self, codes: str, method: str) -> str:
        """The bound method of a Struct, shared between equal shapes."""
        name = method[0] + "_" + codes.replace("?", "Z")
        if name not in self.constants:
            self.constants[name] = getattr(struct.Struct(">" + codes), method)
        return name

    def compiled(self, head: str) -> Any:
        text = "\n".join([head, *self.lines, ""])
        filename = f"<headrace wire {self.cls.__name__} v{self.version} {head[4:10]}>"
        # So that a traceback through generated code shows the line.
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
        exec(compile(text, filename, "exec"), self.constants)  # noqa: S102 (our own source, no input in it)
        return self.constants[head[4:10]]

    def default(self, spec: FieldSpec) -> str:
        if spec.default is list:
            return "[]"
        if callable(spec.default):
            return self.constant(spec.default, "Struct") + "()"
        if spec.default is None or isinstance(spec.default, int | str | bytes | float):
            return repr(spec.default)
        return self.constant(spec.default, "default")


class _Decoding(_Source):
    def __init__(self, cls: type[Any], version: int) -> None:
        super().__init__(cls, version)
        self.run: list[tuple[str, str]] = []
        self.as_view = has_records(cls)
        self.constants |= {"new": object.__new__, "read_uvarint": read_uvarint, "too_many": too_many}
        self.constants |= {"read_tag_count": read_tag_count, "skip_tags": skip_counted_tags}

    def function(self) -> Decoder:
        self.line("end = len(buf)")
        self.struct(self.cls, "m")
        self.line("return m, pos")
        decoder: Decoder = self.compiled("def decode(buf, pos, left):")
        return decoder

    def fixed(self, target: str, code: str) -> None:
        self.run.append((target, code))

    def flush(self) -> None:
        if not self.run:
            return
        codes = "".join(code for _, code in self.run)
        targets = "".join(target + ", " for target, _ in self.run)
        self.line(
            f"{targets[:-1] if len(self.run) == 1 else targets[:-2]} = {self.shape(codes, 'unpack_from')}(buf, pos)"
        )
        self.line(f"pos += {struct.calcsize('>' + codes)}")
        self.run = []

    def length(self, prefix: str, code: str) -> str:
        """Read a length into a fresh variable: -1 or less is null or nonsense."""
        size = self.name(prefix)
        self.fixed(size, "B" if self.flexible else code)
        self.flush()
        if self.flexible:
            with self.block(f"if {size} > 127:"):
                self.line(f"{size}, pos = read_uvarint(buf, pos - 1)")
            self.line(f"{size} -= 1")
        return size

    def struct(self, cls: type[Any], target: str) -> None:
        self.line(f"{target} = new({self.constant(cls, 'Struct')})")
        tagged = []
        for spec in STRUCTS[cls]:
            place = f"{target}.{spec.name}"
            if not spec.carried_by(self.version):
                self.line(f"{place} = {self.default(spec)}")
            elif spec.tag is not None:
                self.line(f"{place} = {self.default(spec)}")
                tagged.append(spec)
            else:
                self.field(spec, place)
        if self.flexible:
            self.tags(tagged, target)
        self.flush()

    def tags(self, known: list[FieldSpec], target: str) -> None:
        count = self.name("t")
        self.fixed(count, "B")
        self.flush()
        with self.block(f"if {count}:"):
            if not known:
                self.line("pos, left = skip_tags(buf, pos - 1, left)")
                return
            tag, stop = self.name("tag"), self.name("stop")
            self.line(f"{count}, pos = read_tag_count(buf, pos - 1)")
            self.spend(count)
            with self.block(f"for {count} in range({count}):"):
                self.line(f"{tag}, pos = read_uvarint(buf, pos)")
                self.line(f"{stop}, pos = read_uvarint(buf, pos)")
                self.line(f"{stop} += pos")
                with self.block(f"if {stop} > end:"):
                    self.line("fail('a tagged field is longer than the message')")
                for number, spec in enumerate(known):
                    with self.block(f"{'elif' if number else 'if'} {tag} == {spec.tag}:"):
                        self.field(spec, f"{target}.{spec.name}")
                        self.flush()
                with self.block("else:"):
                    self.line(f"pos = {stop}")
                with self.block(f"if pos != {stop}:"):
                    self.line("fail('a tagged field has another length than it says')")

    def spend(self, count: str) -> None:
        self.line(f"left -= {count}")
        with self.block("if left < 0:"):
            self.line("too_many()")

    def field(self, spec: FieldSpec, place: str) -> None:
        nullable = self.version >= spec.nullable
        if spec.kind in _VARIABLE:
            self.variable(spec.kind, place, nullable)
        elif spec.kind is FieldKind.ARRAY:
            self.array(spec, place, nullable)
        elif spec.kind is FieldKind.STRUCT:
            self.nested(spec, place, nullable)
        else:
            self.fixed(place, spec.kind.value)

    def variable(self, kind: FieldKind, place: str, nullable: bool) -> None:
        size = self.length("n", "h" if kind is FieldKind.STRING else "i")
        what = place.partition(".")[2] or "an element"
        if nullable:
            with self.block(f"if {size} == -1:"):
                self.line(f"{place} = None")
        with self.block(f"{'elif' if nullable else 'if'} {size} < 0 or {size} > end - pos:"):
            self.line(f"fail(f'{what}: {{{size}}} bytes are claimed, {{end - pos}} are there')")
        with self.block("else:"):
            piece = f"buf[pos:pos + {size}]"
            if kind is FieldKind.STRING:
                piece = f"str({piece}, 'utf-8')" if self.as_view else f"{piece}.decode()"
            elif kind is FieldKind.BYTES and self.as_view:
                piece = f"bytes({piece})"
            self.line(f"{place} = {piece}")
            self.line(f"pos += {size}")

    def nested(self, spec: FieldSpec, place: str, nullable: bool) -> None:
        assert spec.struct is not None
        inner = self.name("s")
        if not nullable:
            self.flush()
            self.struct(spec.struct, inner)
            self.line(f"{place} = {inner}")
            return
        present = self.name("p")
        self.fixed(present, "b")
        self.flush()
        with self.block(f"if {present} == -1:"):
            self.line(f"{place} = None")
        with self.block(f"elif {present} == 1:"):
            self.struct(spec.struct, inner)
            self.line(f"{place} = {inner}")
        with self.block("else:"):
            self.line(f"fail('{spec.name} is neither present nor null')")

    def array(self, spec: FieldSpec, place: str, nullable: bool) -> None:
        assert spec.element is not None
        kind, nested = spec.element
        smallest = smallest_size(kind, nested, self.version, self.flexible)
        assert smallest > 0, "an element of no bytes could be repeated for ever"
        count = self.length("n", "i")
        if nullable:
            with self.block(f"if {count} == -1:"):
                self.line(f"{place} = None")
        with self.block(f"{'elif' if nullable else 'if'} {count} < 0 or {count} * {smallest} > end - pos:"):
            self.line(
                f"fail(f'{spec.name}: {{{count}}} elements are claimed, {{end - pos}} bytes are there')"
            )
        with self.block("else:"):
            self.spend(count)
            if kind in _NUMBERS:
                few = self.constant(_UNPACK[kind], "few")
                many = self.constant(_UNPACK_MANY[kind], "many")
                self.line(
                    f"{place} = list({few}[{count}](buf, pos) if {count} < {_SMALL_ARRAY} else {many}({count}, buf, pos))"
                )
                self.line(f"pos += {count} * {smallest}")
                return
            items = self.name("list")
            item = self.name("s")
            self.line(f"{place} = {items} = []")
            with self.block(f"for _ in range({count}):"):
                if nested is not None:
                    self.struct(nested, item)
                elif kind in _VARIABLE:
                    self.variable(kind, item, nullable=False)
                else:
                    self.fixed(item, kind.value)
                    self.flush()
                self.line(f"{items}.append({item})")


class _Encoding(_Source):
    def __init__(self, cls: type[Any], version: int, slice_entries: int = 0) -> None:
        super().__init__(cls, version)
        self.run: list[tuple[str, str]] = []
        self.write = "write"
        self.slice_entries = slice_entries
        """Not 0: the function is a generator that pauses after this many elements."""

    def function(self) -> Any:
        if self.slice_entries:
            self.line("done = 0")
            with self.block("if done:"):
                self.line("yield")
        self.struct(self.cls, "m")
        self.flush()
        if not self.lines:
            self.line("pass")
        return self.compiled("def encode(m, write):")

    def fixed(self, expression: str, code: str) -> None:
        self.run.append((expression, code))

    def packed(self) -> str:
        codes = "".join(code for _, code in self.run)
        if codes.strip("x") == "":
            return repr(bytes(len(codes)))
        return f"{self.shape(codes, 'pack')}({', '.join(e for e, code in self.run if code != 'x')})"

    def flush(self) -> None:
        if self.run:
            self.line(f"{self.write}({self.packed()})")
            self.run = []

    def length(self, size: str, code: str) -> None:
        """Write a length that is in variable `size`, -1 for null."""
        if not self.flexible:
            self.fixed(size, code)
            return
        before = list(self.run)
        with self.block(f"if {size} < 127:"):
            self.fixed(f"{size} + 1", "B")
            self.flush()
        with self.block("else:"):
            self.run = before
            self.flush()
            self.line(f"{self.write}(uvarint({size} + 1))")

    def struct(self, cls: type[Any], source: str) -> None:
        tagged = []
        for spec in STRUCTS[cls]:
            if not spec.carried_by(self.version):
                continue
            if spec.tag is not None:
                tagged.append(spec)
            else:
                self.field(spec, f"{source}.{spec.name}")
        if not self.flexible:
            return
        if not tagged:
            self.fixed("", "x")
            return
        self.flush()
        self.tags(sorted(tagged, key=lambda spec: spec.tag or 0), source)

    def tags(self, fields: list[FieldSpec], source: str) -> None:
        found, count = self.name("tagged"), self.name("t")
        outer = self.write
        self.line(f"{found} = []; {count} = 0")
        for spec in fields:
            value, part = self.name("v"), self.name("part")
            self.line(f"{value} = {source}.{spec.name}")
            if spec.default is None:
                differs = f"{value} is not None"
            elif spec.default is list:
                differs = value
            elif callable(spec.default):
                differs = f"{value} != {self.constant(spec.default(), 'default')}"
            else:
                differs = f"{value} != {self.default(spec)}"
            with self.block(f"if {differs}:"):
                self.line(f"{part} = []; write{part} = {part}.append")
                self.write = f"write{part}"
                self.field(spec, value)
                self.flush()
                self.write = outer
                self.line(f"{part} = b''.join({part})")
                self.line(f"{found} += (uvarint({spec.tag}), uvarint(len({part})), {part}); {count} += 1")
        self.line(f"{outer}(uvarint({count}))")
        with self.block(f"if {count}:"):
            self.line(f"{outer}(b''.join({found}))")

    def field(self, spec: FieldSpec, value: str) -> None:
        nullable = self.version >= spec.nullable
        if spec.kind in _VARIABLE:
            self.variable(spec.kind, value, nullable)
        elif spec.kind is FieldKind.ARRAY:
            self.array(spec, value, nullable)
        elif spec.kind is FieldKind.STRUCT:
            assert spec.struct is not None
            if not nullable:
                self.struct(spec.struct, value)
                return
            self.flush()
            with self.block(f"if {value} is None:"):
                self.line(f"{self.write}(b'\\xff')")
            with self.block("else:"):
                self.fixed("1", "b")
                self.struct(spec.struct, value)
                self.flush()
        else:
            self.fixed(value, spec.kind.value)

    def variable(self, kind: FieldKind, value: str, nullable: bool) -> None:
        data, size = self.name("b"), self.name("n")
        read = f"{value}.encode()" if kind is FieldKind.STRING else value
        if nullable:
            self.line(f"{data} = {value}")
            with self.block(f"if {data} is None:"):
                self.line(f"{data} = b''; {size} = -1")
            with self.block("else:"):
                self.line(
                    f"{data} = {data}.encode(); {size} = len({data})"
                    if kind is FieldKind.STRING
                    else f"{size} = len({data})"
                )
        else:
            self.line(f"{data} = {read}; {size} = len({data})")
        self.length(size, "h" if kind is FieldKind.STRING else "i")
        self.flush()
        self.line(f"{self.write}({data})")

    def array(self, spec: FieldSpec, value: str, nullable: bool) -> None:
        assert spec.element is not None
        kind, nested = spec.element
        items, count, item = self.name("list"), self.name("n"), self.name("s")
        self.line(f"{items} = {value}")
        if nullable:
            with self.block(f"if {items} is None:"):
                self.line(f"{items} = (); {count} = -1")
            with self.block("else:"):
                self.line(f"{count} = len({items})")
        else:
            self.line(f"{count} = len({items})")
        self.length(count, "i")
        self.flush()
        if kind in _NUMBERS:
            few, many = self.constant(_PACK[kind], "few"), self.constant(_PACK_MANY[kind], "many")
            with self.block(f"if 0 < {count} < {_SMALL_ARRAY}:"):
                self.line(f"{self.write}({few}[{count}](*{items}))")
            with self.block(f"elif {count} > 0:"):
                self.line(f"{self.write}({many}({items}))")
            return
        with self.block(f"for {item} in {items}:"):
            if nested is not None:
                self.struct(nested, item)
            elif kind in _VARIABLE:
                self.variable(kind, item, nullable=False)
            else:
                self.fixed(item, kind.value)
            self.flush()
            if self.slice_entries:
                self.line("done += 1")
                with self.block(f"if done >= {self.slice_entries}:"):
                    self.line("done = 0; yield")


def compile_decoder(cls: type[Any], version: int) -> Decoder:
    return _Decoding(cls, version).function()


def compile_encoder(cls: type[Any], version: int) -> Encoder:
    encoder: Encoder = _Encoding(cls, version).function()
    return encoder


def compile_sliced_encoder(cls: type[Any], version: int, slice_entries: int) -> SlicedEncoder:
    """As `compile_encoder`, but a generator that pauses after each `slice_entries` array elements."""
    encoder: SlicedEncoder = _Encoding(cls, version, slice_entries).function()
    return encoder
