"""Codec: schemas in Avro: read from JSON into types that know their names, and written in one form for all ways to say the same."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.schemas.model import MAX_DEPTH, BadSchema, Resolve, Schema, resolved

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_NAMED = ("record", "error", "enum", "fixed")


@dataclass(slots=True, eq=False)
class Field:
    name: str
    type: AvroType
    has_default: bool
    aliases: tuple[str, ...]


@dataclass(slots=True, eq=False)
class AvroType:
    """`kind` is a primitive, record, enum, fixed, array, map or union. A record may hold itself."""

    kind: str
    name: str = ""
    """In full, of what has one."""
    aliases: tuple[str, ...] = ()
    fields: list[Field] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    has_default: bool = False
    size: int = 0
    parts: list[AvroType] = field(default_factory=list)
    """The branches of a union; what an array or a map holds."""

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def shown(self) -> str:
        return self.name or self.kind


def parse(schema: Schema, resolve: Resolve) -> AvroType:
    """Raises BadSchema."""
    names: dict[str, AvroType] = {}
    for _, other in resolved(schema, resolve):
        _Reader(names).read(_json(other.text), "", 0)
    return _Reader(names).read(_json(schema.text), "", 0)


def canonical(text: str) -> str:
    """The same for every way to write the same schema: full names, sorted attributes, no spaces."""
    return msgspec.json.encode(_canonical(_json(text), ""), order="deterministic").decode()


def compact(text: str) -> str:
    return msgspec.json.encode(_json(text)).decode()


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as problem:
        if _NAME.fullmatch(text.strip()):
            return text.strip()  # a bare name, which Java takes as well
        raise BadSchema(f"it is not JSON: {problem}") from None


class _Reader:
    def __init__(self, names: dict[str, AvroType]) -> None:
        self._names = names

    def read(self, source: Any, namespace: str, depth: int) -> AvroType:
        if depth > MAX_DEPTH:
            raise BadSchema(f"types within types, more than {MAX_DEPTH} deep")
        if isinstance(source, str):
            return self._by_name(source, namespace)
        if isinstance(source, list):
            return self._union(source, namespace, depth)
        if not isinstance(source, dict) or "type" not in source:
            raise BadSchema(f"a type is a name, a list or an object with a type, not {_shown(source)}")
        kind = source["type"]
        if isinstance(kind, dict | list):
            return self.read(kind, namespace, depth + 1)
        if kind == "array" or kind == "map":
            inner = "items" if kind == "array" else "values"
            if inner not in source:
                raise BadSchema(f"{kind} without {inner}")
            return AvroType(kind, parts=[self.read(source[inner], namespace, depth + 1)])
        if kind in _NAMED:
            return self._named(kind, source, namespace, depth)
        return self._by_name(kind, namespace)

    def _by_name(self, name: Any, namespace: str) -> AvroType:
        if not isinstance(name, str):
            raise BadSchema(f"a type is called by a text, not by {_shown(name)}")
        if name in PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            raise BadSchema(f'there is no type "{full}"')
        return found

    def _union(self, branches: list[Any], namespace: str, depth: int) -> AvroType:
        made = AvroType("union", parts=[self.read(branch, namespace, depth + 1) for branch in branches])
        seen: set[str] = set()
        for part in made.parts:
            if part.kind == "union":
                raise BadSchema("a union holds no other union")
            if part.shown in seen:
                raise BadSchema(f"a union holds {part.shown} twice")
            seen.add(part.shown)
        return made

    def _named(self, kind: str, source: dict[str, Any], namespace: str, depth: int) -> AvroType:
        name = full_name(source, namespace)
        if name in self._names:
            raise BadSchema(f'"{name}" is defined twice')
        space = name.rpartition(".")[0]
        aliases = tuple(a if "." in a or not space else f"{space}.{a}" for a in _texts(source, "aliases"))
        made = AvroType("record" if kind == "error" else kind, name, aliases)
        self._names[name] = made
        if kind == "enum":
            made.symbols = _texts(source, "symbols", needed=True)
            if len(set(made.symbols)) != len(made.symbols):
                raise BadSchema(f'the enum "{name}" has a symbol twice')
            made.has_default = "default" in source
            if made.has_default and source["default"] not in made.symbols:
                raise BadSchema(f'the default of the enum "{name}" is none of its symbols')
        elif kind == "fixed":
            size = source.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise BadSchema(f'"{name}" needs a size')
            made.size = size
        else:
            made.fields = self._fields(name, source.get("fields"), space, depth)
        return made

    def _fields(self, record: str, sources: Any, namespace: str, depth: int) -> list[Field]:
        if not isinstance(sources, list):
            raise BadSchema(f'the record "{record}" needs a list of fields')
        made: list[Field] = []
        for source in sources:
            if not isinstance(source, dict) or "type" not in source:
                raise BadSchema(f'a field of "{record}" needs a name and a type')
            name = _checked(source.get("name"), f'a field of "{record}"')
            if any(other.name == name for other in made):
                raise BadSchema(f'"{record}" has the field "{name}" twice')
            kind = self.read(source["type"], namespace, depth + 1)
            made.append(Field(name, kind, "default" in source, _texts(source, "aliases")))
        return made


def full_name(source: dict[str, Any], namespace: str) -> str:
    name = source.get("name")
    if not isinstance(name, str) or not name:
        raise BadSchema(f"{source.get('type')} without a name")
    if "." not in name:
        space = source.get("namespace", namespace)
        name = f"{space}.{name}" if space else name
    for part in name.split("."):
        _checked(part, "a name")
    return name


def _checked(name: Any, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadSchema(f"{what} is made of letters, digits and _, not {_shown(name)}")
    return name


def _texts(source: dict[str, Any], key: str, *, needed: bool = False) -> tuple[str, ...]:
    found = source.get(key, None if needed else [])
    if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
        raise BadSchema(f"{key} is a list of texts")
    return tuple(found)


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:80]


def _canonical(source: Any, namespace: str) -> Any:
    if isinstance(source, str):
        return source if source in PRIMITIVES or "." in source or not namespace else f"{namespace}.{source}"
    if isinstance(source, list):
        return [_canonical(branch, namespace) for branch in source]
    if not isinstance(source, dict):
        return source
    kind = source.get("type")
    made = dict(source)
    if isinstance(kind, str) and kind in _NAMED:
        made["name"] = name = full_name(source, namespace)
        made.pop("namespace", None)
        if isinstance(source.get("fields"), list):
            space = name.rpartition(".")[0]
            made["fields"] = [_canonical_field(entry, space) for entry in source["fields"]]
        return made
    for key in ("items", "values"):
        if key in made:
            made[key] = _canonical(made[key], namespace)
    if isinstance(kind, dict | list) or kind not in ("array", "map"):
        made["type"] = _canonical(kind, namespace)
    return made["type"] if set(made) == {"type"} else made


def _canonical_field(source: Any, namespace: str) -> Any:
    if not isinstance(source, dict) or "type" not in source:
        return source
    return {**source, "type": _canonical(source["type"], namespace)}
