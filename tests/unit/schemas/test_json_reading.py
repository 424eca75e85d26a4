"""What was valid under a JSON Schema is valid under the next one, or it is said why not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.schemas import json_schema
from headrace.schemas.json_reading import problems
from headrace.schemas.model import BadSchema, Reference, Schema


def nobody(reference: Reference) -> Schema:
    raise BadSchema(f"no {reference.subject}")


def read(source: Any) -> json_schema.SchemaDocument:
    return json_schema.parse(Schema("JSON", json.dumps(source)), nobody)


def thing(
    properties: dict[str, Any], *, closed: bool = True, required: tuple[str, ...] = (), **more: Any
) -> Any:
    made: dict[str, Any] = {"type": "object", "properties": properties, **more}
    if closed:
        made["additionalProperties"] = False
    if required:
        made["required"] = list(required)
    return made


A, B = {"type": "string"}, {"type": "integer"}

TABLE = [
    # new, old, what is wrong
    (thing({"a": A}), thing({"a": A}), ""),
    (thing({"a": A, "b": B}), thing({"a": A}), ""),
    (thing({"a": A, "b": B}, closed=False), thing({"a": A}, closed=False), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    (thing({"a": A, "b": {}}, closed=False), thing({"a": A}, closed=False), ""),
    (thing({"a": A}), thing({"a": A, "b": B}), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    (thing({"a": A}, closed=False), thing({"a": A, "b": B}, closed=False), ""),
    (thing({"a": A}), thing({"a": A}, closed=False), "ADDITIONAL_PROPERTIES_REMOVED"),
    (thing({"a": A}, closed=False), thing({"a": A}), ""),
    (thing({"a": A}, required=("a",)), thing({"a": A}), "REQUIRED_ATTRIBUTE_ADDED"),
    (thing({"a": {**A, "default": ""}}, required=("a",)), thing({"a": A}), ""),
    (thing({"a": A}), thing({"a": A}, required=("a",)), ""),
    (thing({"a": B}), thing({"a": A}), "TYPE_CHANGED"),
    ({"type": "number"}, {"type": "integer"}, ""),
    ({"type": "integer"}, {"type": "number"}, "TYPE_NARROWED"),
    ({"type": ["string", "null"]}, {"type": "string"}, ""),
    ({"type": "string"}, {"type": ["string", "null"]}, "TYPE_NARROWED"),
    ({"type": "string", "maxLength": 10}, {"type": "string", "maxLength": 5}, ""),
    ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 10}, "maxLength"),
    ({"type": "string", "minLength": 1}, {"type": "string"}, "minLength"),
    ({"type": "number", "minimum": 0}, {"type": "number", "minimum": 1}, ""),
    ({"type": "number", "maximum": 5}, {"type": "number"}, "maximum"),
    ({"type": "integer", "multipleOf": 5}, {"type": "integer", "multipleOf": 10}, ""),
    ({"type": "integer", "multipleOf": 10}, {"type": "integer", "multipleOf": 5}, "multipleOf"),
    ({"enum": ["a", "b", "c"]}, {"enum": ["a", "b"]}, ""),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, "ENUM_ARRAY_NARROWED"),
    ({"enum": ["a"]}, {"const": "a"}, ""),
    ({"type": "string", "pattern": "a+"}, {"type": "string"}, "pattern"),
    ({"type": "string"}, {"type": "string", "pattern": "a+"}, ""),
    ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": B}, ""),
    ({"type": "array", "items": B}, {"type": "array", "items": {"type": "number"}}, "items"),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}, "uniqueItems"),
    ({"oneOf": [A, B, {"type": "null"}]}, {"oneOf": [A, B]}, ""),
    ({"oneOf": [A]}, {"oneOf": [A, B]}, "SUM_TYPE_NARROWED"),
    ({"anyOf": [A, B]}, A, ""),
    (A, {"anyOf": [A, B]}, "SUM_TYPE_NARROWED"),
    ({"allOf": [thing({"a": A}, closed=False)]}, thing({"a": A}), ""),
    (thing({"a": A, "b": B}), {"allOf": [thing({"a": A}), {"properties": {"b": B}}]}, ""),
    (True, {"type": "string"}, ""),
    (False, {"type": "string"}, "nothing is valid"),
    ({"not": {"type": "string"}}, {}, "not"),
    (
        {**thing({"a": {"$ref": "#/$defs/x"}}), "$defs": {"x": {"type": "number"}}},
        thing({"a": {"$ref": "#/definitions/y"}}, definitions={"y": B}),
        "",
    ),
    (
        thing({"next": {"$ref": "#"}}),
        thing({"next": {"$ref": "#"}}),
        "",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("new", "old", "trouble"), TABLE)
def test_what_was_valid_stays_valid(new: Any, old: Any, trouble: str) -> None:
    found = problems(read(new), read(old))
    assert bool(found) == bool(trouble), found
    assert not trouble or any(trouble in one for one in found), found


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"type": "text"}, "type"),
        ({"properties": []}, "properties"),
        ({"required": ["a", 1]}, "required"),
        ({"allOf": {}}, "allOf"),
        ({"$ref": "#/nowhere"}, "nowhere"),
        ({"$ref": "other.json"}, "other.json"),
        ({"maximum": "1"}, "maximum"),
        ([], "object"),
    ],
)
def test_a_bad_schema_says_what_is_wrong(source: Any, words: str) -> None:
    with pytest.raises(BadSchema, match=words):
        read(source)


def test_a_reference_is_called_by_its_name() -> None:
    schema = Schema("JSON", '{"$ref": "address.json"}', (Reference("address.json", "address", 1),))
    old = json_schema.parse(schema, lambda reference: Schema("JSON", '{"type": "integer"}'))
    new = json_schema.parse(schema, lambda reference: Schema("JSON", '{"type": "number"}'))
    assert not problems(new, old)
    assert problems(old, new)


def test_order_counts_unless_it_is_normalized() -> None:
    one, other = '{"type":"object","title":"t"}', '{ "title": "t", "type": "object" }'
    assert json_schema.compact(one) != json_schema.compact(other)
    assert json_schema.canonical(one) == json_schema.canonical(other)
