"""Machine: whether a JSON Schema accepts whatever an earlier one accepted.

What one schema lets through is held against the other, keyword by keyword, and in doubt the answer is no. An object that leaves
`additionalProperties` open may have held anything under a name, so a property that is new there is a promise about the past.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.schemas.json_schema import TYPES, SchemaDocument, SchemaNode
from headrace.schemas.model import MAX_DEPTH

_LOWER = {"minimum": "number", "exclusiveMinimum": "number", "minLength": "string", "minItems": "array",
          "minProperties": "object"}  # fmt: skip
_UPPER = {"maximum": "number", "exclusiveMaximum": "number", "maxLength": "string", "maxItems": "array",
          "maxProperties": "object"}  # fmt: skip
_AS_THEY_ARE = {"pattern": "string", "contains": "array", "propertyNames": "object", "dependencies": "object",
                "dependentRequired": "object", "dependentSchemas": "object", "if": "", "then": "", "else": "",
                "unevaluatedProperties": "object"}  # fmt: skip
"""Keywords that may go away and may not come or change; and which type they speak of."""
_SAYS_NOTHING = ("title", "description", "default", "examples", "$schema", "$id", "id", "$comment", "definitions",
                 "$defs", "$anchor", "format", "deprecated", "readOnly", "writeOnly")  # fmt: skip


def problems(new: SchemaDocument, old: SchemaDocument) -> list[str]:
    """Empty: what was valid is valid. Each says where and what."""
    return _Comparison().compare(new.node(), old.node(), "#")


class _Comparison:
    def __init__(self) -> None:
        self._under_way: set[tuple[int, int]] = set()
        self._kept: list[Any] = []
        """What was made on the way lives as long as the ids by which it is known."""

    def compare(self, new: SchemaNode, old: SchemaNode, path: str) -> list[str]:
        new, old = _followed(new), _followed(old)
        pair = (id(new.source), id(old.source))
        if pair in self._under_way and isinstance(new.source, dict):
            return []
        self._under_way.add(pair)
        try:
            return self._compared(new, old, path)
        finally:
            self._under_way.discard(pair)

    def _compared(self, new: SchemaNode, old: SchemaNode, path: str) -> list[str]:
        if _is_anything(new.source) or old.source is False:
            return []
        if new.source is False:
            return [f"{path}: nothing is valid any more"]
        before = {} if old.source is True else old.source
        for key in ("anyOf", "oneOf"):
            if key in before:
                return self._each_branch(new, old, before, key, path)
        if "allOf" in before:
            return self.compare(new, SchemaNode(self._merged(old), old.document), path)
        return self._against_plain(new, new.source, SchemaNode(before, old.document), before, path)

    def _each_branch(
        self, new: SchemaNode, old: SchemaNode, before: dict[str, Any], key: str, path: str
    ) -> list[str]:
        """What a sum accepted is what its branches did, each within what else was said."""
        rest = {name: value for name, value in before.items() if name != key}
        self._kept.append(rest)
        if not _says_nothing(rest) and not self.compare(new, SchemaNode(rest, old.document), path):
            return []
        found: list[str] = []
        for number, branch in enumerate(before[key]):
            if self.compare(new, SchemaNode(branch, old.document), f"{path}/{key}/{number}"):
                found.append(f"{path}/{key}/{number}: SUM_TYPE_NARROWED: a branch is not accepted any more")
        return found

    def _merged(self, node: SchemaNode) -> dict[str, Any]:
        """All of `allOf` as one: objects are put together, of anything else the first word counts."""
        made: dict[str, Any] = {}
        parts: list[Any] = [{key: value for key, value in node.source.items() if key != "allOf"}]
        parts += [_followed(SchemaNode(part, node.document)).source for part in node.source["allOf"]]
        for part in parts:
            if not isinstance(part, dict):
                continue
            for key, value in part.items():
                if key == "properties":
                    made[key] = {**value, **made.get(key, {})}
                elif (key == "required" and isinstance(value, list)) or key == "allOf":
                    made[key] = [*made.get(key, []), *value]
                else:
                    made.setdefault(key, value)
        self._kept.append(made)
        return made

    def _against_plain(
        self, new: SchemaNode, after: dict[str, Any], old: SchemaNode, before: dict[str, Any], path: str
    ) -> list[str]:
        found: list[str] = []
        for number, part in enumerate(after.get("allOf", ())):
            found += self.compare(SchemaNode(part, new.document), old, f"{path}/allOf/{number}")
        for key in ("anyOf", "oneOf"):
            branches = after.get(key)
            if branches and all(self.compare(SchemaNode(part, new.document), old, path) for part in branches):
                found.append(f"{path}/{key}: no branch accepts what was accepted before")
        if "not" in after:
            if "not" not in before:
                found.append(f"{path}/not: NOT_TYPE_EXTENDED: it was not there before")
            else:
                inner = SchemaNode(before["not"], old.document), SchemaNode(after["not"], new.document)
                found += self.compare(*inner, f"{path}/not")
        types = _types(before)
        found += _narrowed_types(after, before, path)
        found += _bounds(after, before, types, path)
        found += _values(after, before, path)
        if "array" in types:
            found += self._items(new, after, old, before, path)
        if "object" in types:
            found += self._properties(new, after, old, before, path)
        return found

    # -- arrays --------------------------------------------------------------------------------------------------------

    def _items(
        self, new: SchemaNode, after: dict[str, Any], old: SchemaNode, before: dict[str, Any], path: str
    ) -> list[str]:
        found: list[str] = []
        if after.get("uniqueItems") is True and before.get("uniqueItems") is not True:
            found.append(f"{path}/uniqueItems: UNIQUE_ITEMS_ADDED")
        heads, tail = _places(after)
        heads_before, tail_before = _places(before)
        for number in range(max(len(heads), len(heads_before))):
            one = heads[number] if number < len(heads) else tail
            other = heads_before[number] if number < len(heads_before) else tail_before
            found += self.compare(
                SchemaNode(one, new.document), SchemaNode(other, old.document), f"{path}/items/{number}"
            )
        return found + self.compare(
            SchemaNode(tail, new.document), SchemaNode(tail_before, old.document), f"{path}/items"
        )

    # -- objects -------------------------------------------------------------------------------------------------------

    def _properties(
        self, new: SchemaNode, after: dict[str, Any], old: SchemaNode, before: dict[str, Any], path: str
    ) -> list[str]:
        found: list[str] = []
        properties, properties_before = after.get("properties", {}), before.get("properties", {})
        for name, part in properties_before.items():
            place, one = f"{path}/properties/{name}", SchemaNode(part, old.document)
            if name in properties:
                found += self.compare(SchemaNode(properties[name], new.document), one, place)
            elif _is_closed(after):
                if part is not False:
                    found.append(f"{place}: PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")
            elif not _is_open(after) and self.compare(_others(new, False), one, place):
                found.append(f"{place}: PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
        for name, part in properties.items():
            if name not in properties_before:
                found += self._added(SchemaNode(part, new.document), name, old, before, path)
        found += _required(after, before, path)
        rest = SchemaNode(after.get("additionalProperties", True), new.document)
        rest_before = SchemaNode(before.get("additionalProperties", True), old.document)
        if self.compare(rest, rest_before, path):
            word = "REMOVED" if rest.source is False else "NARROWED"
            found.append(f"{path}/additionalProperties: ADDITIONAL_PROPERTIES_{word}")
        return found

    def _added(
        self, part: SchemaNode, name: str, old: SchemaNode, before: dict[str, Any], path: str
    ) -> list[str]:
        place = f"{path}/properties/{name}"
        if _is_closed(before) or _is_anything(part.source):
            return []
        if _is_open(before):
            return [
                f"{place}: PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL: what was valid may have anything under this "
                "name; additionalProperties false lets properties be added"
            ]
        if self.compare(part, _others(old, True), place):
            return [f"{place}: PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]
        return []


def _followed(node: SchemaNode) -> SchemaNode:
    for _ in range(MAX_DEPTH):
        if not isinstance(node.source, dict) or "$ref" not in node.source:
            break
        rest = {key: value for key, value in node.source.items() if key != "$ref"}
        found = node.document.find(node.source["$ref"])
        if not _says_nothing(rest) and isinstance(found.source, dict) and found.document is node.document:
            return SchemaNode({**found.source, **rest}, node.document)
        node = found
    return node


def _says_nothing(source: Mapping[str, Any]) -> bool:
    return all(key in _SAYS_NOTHING for key in source)


def _is_anything(source: Any) -> bool:
    return source is True or (isinstance(source, dict) and _says_nothing(source))


def _types(source: dict[str, Any]) -> frozenset[str]:
    found = source.get("type")
    if found is None:
        return TYPES
    kinds = frozenset(found if isinstance(found, list) else [found])
    return kinds | {"integer"} if "number" in kinds else kinds


def _narrowed_types(after: dict[str, Any], before: dict[str, Any], path: str) -> list[str]:
    if "type" not in after:
        return []
    missing = sorted(_types(before) - _types(after))
    if not missing or ("type" not in before and ("enum" in before or "const" in before)):
        return []  # what an enumeration held is looked at value by value
    word = "TYPE_NARROWED" if _types(before) & _types(after) else "TYPE_CHANGED"
    return [f"{path}/type: {word}: {', '.join(missing)} is not accepted any more"]


def _bounds(after: dict[str, Any], before: dict[str, Any], types: frozenset[str], path: str) -> list[str]:
    def concerns(kind: str) -> bool:
        return not kind or kind in types or (kind == "number" and "integer" in types)

    found: list[str] = []
    for key, kind in _LOWER.items():
        if key in after and concerns(kind) and (key not in before or before[key] < after[key]):
            if key.startswith("min") and after[key] == 0 and kind != "number":
                continue
            found.append(f"{path}/{key}: {'INCREASED' if key in before else 'ADDED'}")
    for key, kind in _UPPER.items():
        if key in after and concerns(kind) and (key not in before or before[key] > after[key]):
            found.append(f"{path}/{key}: {'DECREASED' if key in before else 'ADDED'}")
    for key, kind in _AS_THEY_ARE.items():
        if key in after and concerns(kind) and before.get(key) != after[key]:
            found.append(f"{path}/{key}: {'CHANGED' if key in before else 'ADDED'}")
    step, step_before = after.get("multipleOf"), before.get("multipleOf")
    if step is not None and concerns("number") and (step_before is None or step_before % step != 0):
        found.append(f"{path}/multipleOf: {'ADDED' if step_before is None else 'CHANGED'}")
    return found


def _values(after: dict[str, Any], before: dict[str, Any], path: str) -> list[str]:
    allowed = [after["const"]] if "const" in after else after.get("enum")
    if allowed is None:
        return []
    held = [before["const"]] if "const" in before else before.get("enum")
    if held is None or any(value not in allowed for value in held):
        return [f"{path}/enum: ENUM_ARRAY_NARROWED: not every value of before is left"]
    return []


def _places(source: dict[str, Any]) -> tuple[list[Any], Any]:
    """Schemas of the first entries, and of all that come after them."""
    items = source.get("items", True)
    if isinstance(items, list):
        return items, source.get("additionalItems", True)
    return source.get("prefixItems", []), items


def _is_closed(source: dict[str, Any]) -> bool:
    return source.get("additionalProperties") is False and not source.get("patternProperties")


def _is_open(source: dict[str, Any]) -> bool:
    return _is_anything(source.get("additionalProperties", True)) and not source.get("patternProperties")


def _others(node: SchemaNode, unsure: bool) -> SchemaNode:
    """What a partly open object says of a property that it does not name. Patterns are not tried: whoever wrote them chooses how long
    that takes."""
    if node.source.get("patternProperties"):
        return SchemaNode(unsure, node.document)
    return SchemaNode(node.source.get("additionalProperties", True), node.document)


def _required(after: dict[str, Any], before: dict[str, Any], path: str) -> list[str]:
    needed, needed_before = after.get("required", []), before.get("required", [])
    if not isinstance(needed, list):
        return []
    properties = after.get("properties", {})
    found = []
    for name in needed:
        part = properties.get(name)
        has_default = isinstance(part, dict) and "default" in part
        if not has_default and name not in (needed_before if isinstance(needed_before, list) else []):
            found.append(f"{path}/required/{name}: REQUIRED_ATTRIBUTE_ADDED")
    return found
