"""Codec: JSON Schema: read, checked as far as comparing needs it, with what its references lead to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from headrace.core.units import is_digits
from headrace.schemas.model import MAX_DEPTH, BadSchema, Resolve, Schema, resolved

TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_META = re.compile(r"https?://json-schema\.org/")
_SCHEMAS = ("items", "additionalItems", "additionalProperties", "unevaluatedProperties", "contains", "not",
            "if", "then", "else", "propertyNames")  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_BY_NAME = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas")


class SchemaNode(NamedTuple):
    """A schema within a document: what its references mean depends on where it stands."""

    source: Any
    document: SchemaDocument


@dataclass(slots=True, eq=False)
class SchemaDocument:
    root: Any
    others: dict[str, SchemaDocument]
    """By the names that `$ref` calls them."""
    anchors: dict[str, Any] = field(default_factory=dict)

    def node(self) -> SchemaNode:
        return SchemaNode(self.root, self)

    def find(self, reference: str) -> SchemaNode:
        """Raises BadSchema."""
        place, _, fragment = reference.partition("#")
        if not place:
            return SchemaNode(self._within(fragment, reference), self)
        if _META.match(place):
            return SchemaNode(True, self)
        if place in self.anchors:
            return SchemaNode(self.anchors[place], self)
        other = self.others.get(reference) or self.others.get(place)
        if other is None:
            raise BadSchema(f'"{reference}" leads nowhere; give a reference with this name')
        return SchemaNode(other._within(fragment, reference), other)

    def _within(self, fragment: str, reference: str) -> Any:
        if not fragment:
            return self.root
        if not fragment.startswith("/"):
            if fragment in self.anchors:
                return self.anchors[fragment]
            raise BadSchema(f'"{reference}" leads nowhere')
        found = self.root
        for part in fragment[1:].split("/"):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and is_digits(key) and len(key) < 10 and int(key) < len(found):
                found = found[int(key)]
            else:
                raise BadSchema(f'"{reference}" leads nowhere')
        return found


def parse(schema: Schema, resolve: Resolve) -> SchemaDocument:
    """Raises BadSchema."""
    others: dict[str, SchemaDocument] = {}
    for name, other in resolved(schema, resolve):
        others[name] = SchemaDocument(_json(other.text), others)
    document = SchemaDocument(_json(schema.text), others)
    for each in (*others.values(), document):
        _check(each, each.root, "#", 0)
    for each in (*others.values(), document):
        for reference in _references(each.root):
            each.find(reference)
    return document


def compact(text: str) -> str:
    return msgspec.json.encode(_json(text)).decode()


def canonical(text: str) -> str:
    return msgspec.json.encode(_json(text), order="deterministic").decode()


def _json(text: str) -> Any:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise BadSchema(f"it is not JSON: {problem}") from None
    if not isinstance(found, dict | bool):
        raise BadSchema("a JSON Schema is an object, true or false")
    return found


def _check(document: SchemaDocument, source: Any, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BadSchema(f"schemas within schemas, more than {MAX_DEPTH} deep")
    if isinstance(source, bool):
        return
    if not isinstance(source, dict):
        raise BadSchema(f"{path}: a schema is an object, true or false")
    _check_words(source, path)
    for key in ("$id", "id", "$anchor"):
        if isinstance(source.get(key), str):
            document.anchors.setdefault(source[key].lstrip("#"), source)
    for key in _SCHEMAS:
        if key in source and not (key == "items" and isinstance(source[key], list)):
            _check(document, source[key], f"{path}/{key}", depth + 1)
    for key in (*_MANY, "items"):
        value = source.get(key)
        if isinstance(value, list):
            for number, entry in enumerate(value):
                _check(document, entry, f"{path}/{key}/{number}", depth + 1)
        elif value is not None and key in _MANY:
            raise BadSchema(f"{path}/{key} is a list of schemas")
    for key in _BY_NAME:
        value = source.get(key, {})
        if not isinstance(value, dict):
            raise BadSchema(f"{path}/{key} is an object of schemas")
        for name, entry in value.items():
            _check(document, entry, f"{path}/{key}/{name}", depth + 1)


def _check_words(source: dict[str, Any], path: str) -> None:
    kinds = source.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in TYPES:
            raise BadSchema(f"{path}/type: there is no type {kind!r}")
    required = source.get("required", [])
    if not isinstance(required, bool) and not (  # a boolean in drafts of long ago
        isinstance(required, list) and all(isinstance(name, str) for name in required)
    ):
        raise BadSchema(f"{path}/required is a list of names")
    if not isinstance(source.get("$ref", ""), str):
        raise BadSchema(f"{path}/$ref is a text")
    if not isinstance(source.get("enum", []), list):
        raise BadSchema(f"{path}/enum is a list")
    for key in ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
                "maxProperties", "multipleOf"):  # fmt: skip
        value = source.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadSchema(f"{path}/{key} is a number")


def _references(source: Any) -> Iterator[str]:
    stack = [source]
    while stack:
        found = stack.pop()
        if isinstance(found, dict):
            if isinstance(found.get("$ref"), str):
                yield found["$ref"]
            stack += [
                value for key, value in found.items() if key not in ("enum", "const", "default", "examples")
            ]
        elif isinstance(found, list):
            stack += found
