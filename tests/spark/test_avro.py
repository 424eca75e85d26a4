"""valueFormat=avro: the Spark type of a schema, values with and without a Confluent header, and what does not parse."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from headrace.spark.avro import parse_avro, value_ddl
from headrace.spark.options import OptionError
from headrace.testing.broker_process import BrokerProcess

SCHEMA = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "shop", "type": ["null", "string"], "default": None},
        {"name": "amounts", "type": {"type": "array", "items": "double"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "state", "type": {"type": "enum", "name": "state", "symbols": ["OPEN", "PAID"]}},
    ],
}
TEXT = json.dumps(SCHEMA)
DDL = "struct<`id`: bigint, `shop`: string, `amounts`: array<double>, `tags`: map<string, int>, `state`: string>"


def encoded(order: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(TEXT)), order)
    return out.getvalue()


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "shop": None if number % 2 else "s",
        "amounts": [0.5, number],
        "tags": {"a": number},
        "state": "PAID",
    }


def test_types() -> None:
    assert value_ddl(TEXT) == DDL
    for schema, words in (("{", "not JSON"), ('["int", "string"]', "union"), ('"date"', "not supported")):
        with pytest.raises(OptionError, match=words):
            value_ddl(schema)


def test_values_with_and_without_a_registry_header_and_broken_ones() -> None:
    kind = pa.struct(
        [
            ("id", pa.int64()),
            ("shop", pa.string()),
            ("amounts", pa.list_(pa.float64())),
            ("tags", pa.map_(pa.string(), pa.int32())),
            ("state", pa.string()),
        ]
    )
    plain = encoded(order(1))
    raw = pa.array([plain, b"\0\0\0\0\x07" + plain, b"\xff\xff", None, plain + b"x"], pa.binary())
    found = parse_avro(raw, TEXT, kind).to_pylist()
    assert found[0] == found[1] == {**order(1), "tags": [("a", 1)]}
    assert found[2:] == [None, None, None]


def test_on_spark(spark: Any, broker: BrokerProcess, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(50):
        producer.produce(topic, encoded(order(number)), partition=number % 4)
    producer.produce(topic, b"no order", partition=0)
    assert producer.flush(120) == 0
    frame = (
        spark.read.format("headrace")
        .option("bootstrap", broker.bootstrap)
        .option("subscribe", topic)
        .option("valueFormat", "avro")
        .option("valueSchema", TEXT)
        .load()
    )
    rows = frame.selectExpr("value.id", "value.shop", "value.amounts[1] last", "value.tags['a'] a").collect()
    good = sorted((row.id, row.shop, row.last, row.a) for row in rows if row.id is not None)
    assert good == [(n, None if n % 2 else "s", float(n), n) for n in range(50)]
    assert len(rows) == 51
