"""Avro's schema resolution, as its specification has it, and one form for all ways to write a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.schemas import avro
from headrace.schemas.avro_reading import problems
from headrace.schemas.model import BadSchema, Reference, Schema


def nobody(reference: Reference) -> Schema:
    raise BadSchema(f"no {reference.subject}")


def read(source: Any) -> avro.AvroType:
    return avro.parse(Schema("AVRO", json.dumps(source)), nobody)


def record(*fields: Any, name: str = "Order", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


ID = field("id", "long")
ENUM = {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}

TABLE = [
    # reader, writer, what is wrong
    (record(ID), record(ID), ""),
    (record(ID, field("note", "string", default="")), record(ID), ""),
    (record(ID, field("note", "string")), record(ID), "READER_FIELD_MISSING_DEFAULT_VALUE"),
    (record(ID), record(ID, field("note", "string")), ""),
    (record(ID, name="Other"), record(ID), "NAME_MISMATCH"),
    (record(ID, name="Other", aliases=["Order"]), record(ID), ""),
    (record(field("key", "long", aliases=["id"])), record(ID), ""),
    (record(field("id", "string")), record(ID), "TYPE_MISMATCH"),
    ("long", "int", ""),
    ("double", "long", ""),
    ("int", "long", "TYPE_MISMATCH"),
    ("float", "double", "TYPE_MISMATCH"),
    ("bytes", "string", ""),
    ("string", "bytes", ""),
    (["null", "string"], "string", ""),
    (["null", "string"], "int", "MISSING_UNION_BRANCH"),
    ("string", ["null", "string"], "MISSING_UNION_BRANCH"),
    (["null", "string", "int"], ["null", "string"], ""),
    (["null"], ["null", "string"], "MISSING_UNION_BRANCH"),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, ""),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, "TYPE_MISMATCH"),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, "TYPE_MISMATCH"),
    ({**ENUM, "symbols": ["NEW", "PAID", "SENT"]}, ENUM, ""),
    ({**ENUM, "symbols": ["NEW"]}, ENUM, "MISSING_ENUM_SYMBOLS"),
    ({**ENUM, "symbols": ["NEW"], "default": "NEW"}, ENUM, ""),
    ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, "FIXED_SIZE_MISMATCH"),
    (
        record(field("next", ["null", "Order"], default=None)),
        record(field("next", ["null", "Order"], default=None)),
        "",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer", "trouble"), TABLE)
def test_what_a_reader_can_read(reader: Any, writer: Any, trouble: str) -> None:
    found = problems(read(reader), read(writer))
    assert bool(found) == bool(trouble), found
    assert all(trouble in one for one in found)


def test_a_problem_deep_inside_says_where() -> None:
    inner = record(field("street", "string"), name="Address")
    old = record(field("to", {"type": "array", "items": inner}))
    new = record(
        field(
            "to",
            {
                "type": "array",
                "items": record(field("street", "string"), field("zip", "string"), name="Address"),
            },
        )
    )
    (found,) = problems(read(new), read(old))
    assert "/fields/to/items/fields/zip" in found


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"type": "record", "name": "R"}, "fields"),
        ({"type": "nonsense"}, "nonsense"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "twice"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "default"),
        (["int", "int"], "twice"),
        (record(field("a", "int"), field("a", "int")), "twice"),
        (record(field("a-b", "int")), "letters"),
        ({"type": "fixed", "name": "F"}, "size"),
        ({"type": "array"}, "items"),
        (record(field("a", "Missing")), "Missing"),
        (7, "type"),
    ],
)
def test_a_bad_schema_says_what_is_wrong(source: Any, words: str) -> None:
    with pytest.raises(BadSchema, match=words):
        read(source)


def test_text_that_is_not_json() -> None:
    with pytest.raises(BadSchema, match="not JSON"):
        avro.parse(Schema("AVRO", "{"), nobody)


def test_depth_is_bounded() -> None:
    deep: Any = "int"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    with pytest.raises(BadSchema, match="deep"):
        read(deep)


def test_the_same_schema_written_in_several_ways_is_one() -> None:
    plain = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}],
    }
    other = {"fields": [{"type": {"type": "long"}, "name": "id"}], "name": "shop.Order", "type": "record"}
    assert avro.canonical(json.dumps(plain)) == avro.canonical(json.dumps(other, indent=4))
    named = {**plain, "fields": [{"name": "id", "type": "int"}]}
    assert avro.canonical(json.dumps(plain)) != avro.canonical(json.dumps(named))


def test_names_come_from_references() -> None:
    address = Schema("AVRO", json.dumps(record(field("street", "string"), name="shop.Address")))
    order = Schema(
        "AVRO",
        json.dumps(record(field("to", "shop.Address"))),
        (Reference("shop.Address", "address", 1),),
    )
    made = avro.parse(order, lambda reference: address)
    assert made.fields[0].type.name == "shop.Address"
    with pytest.raises(BadSchema):
        avro.parse(Schema("AVRO", order.text), nobody)
