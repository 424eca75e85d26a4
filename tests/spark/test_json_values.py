"""`valueFormat=json` is from_json, or it refuses the schema (F61, F62): compared with Spark's own, document by document."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from headrace.spark.values import ValueDecoder, parse_json
from headrace.testing.broker_process import BrokerProcess

SCHEMA = (
    "id bigint, s string, d double, b boolean, i int, n struct<x:int,y:string>, l array<bigint>, "
    "m array<struct<x:int,y:string>>"
)
DOCUMENTS = [
    # roots
    "null", "5", '"x"', "true", "", "  ", "{}", "[]", "[1]", '[{"id":1}]', '[{"id":1},{"id":2}]', '[{"id":1}, 5]',
    '{"id":1}{"id":2}', '{"id":1} x', "{broken", '{"id":1,', '  {"id":1}  ', '{"id" : 1 , "s" : "q"}\n', '{"id":1,}',
    "// c\n{\"id\":1}", "{id:1}", '{"ID":1}', "{'id':3,'s':'it\\'s \"x\"'}",
    # numbers
    '{"id":"no"}', '{"id":1.0}', '{"id":1e2}', '{"id":true}', '{"id":9223372036854775808}', '{"id":-9223372036854775808}',
    '{"id":01}', '{"id":+1}', '{"i":2147483648}', '{"i":7}', '{"i":"7"}', '{"d":1}', '{"d":"NaN"}', '{"d":NaN}',
    '{"d":"1.5"}', '{"d":""}', '{"d":-Infinity}', '{"d":"-INF"}', '{"d":.5}', '{"d":1.}', '{"b":"true"}', '{"b":1}', '{"b":false}',
    # texts
    '{"s":5}', '{"s":5.10}', '{"s":1e5}', '{"s":true}', '{"s":null}', '{"s":""}', '{"s":"a\\u00e9\\n"}', '{"s":[1, 2,"x"]}',
    '{"s":{"a": 1.50, "b":[1, 2]}}', '{"s":12345678901234567890123}', '{"s":-0}', '{"s":0.1e-7}', '{"s":0.001}',
    '{"s":123456789.125}', '{"s":-1.5E+7}', '{"s":"a\tb"}', '{"s":"\\x"}', '{"s":"\\ud83d\\ude00"}', '{"s":tru,"id":2}',
    # nested
    '{"id":1,"id":2}', '{"id":1,"id":"x"}', '{"n":{"x":1,"y":"z"}}', '{"n":{"x":"bad","y":"z"},"id":4}', '{"n":5,"id":4}',
    '{"n":[{"x":1}]}', '{"n":null}', '{"n":{}}', '{"l":[1,null,3]}', '{"l":[1,"x",3],"id":1}', '{"l":5}', '{"l":[]}',
    '{"l":{"a":1}}', '{"m":[{"x":1},{"y":"q"},null]}', '{"m":[{"x":1,"y":5}]}',
]  # fmt: skip


def test_every_document_is_what_from_json_makes_of_it(spark: Any) -> None:
    """F62: by Arrow or one by one, beside Spark's own function."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    from headrace.spark.versions import arrow_schema

    frame = spark.createDataFrame(list(enumerate(DOCUMENTS)), "number int, text string")
    theirs = frame.select("number", F.from_json("text", SCHEMA).alias("value")).orderBy("number").collect()
    declared: Any = StructType.fromDDL(SCHEMA)
    schema = arrow_schema(declared)
    ours = parse_json(pa.array(DOCUMENTS, pa.string()), schema).to_pylist()
    alone = [parse_json(pa.array([text], pa.string()), schema).to_pylist()[0] for text in DOCUMENTS]
    for text, row, found, single in zip(DOCUMENTS, theirs, ours, alone, strict=True):
        wanted = row.value.asDict(recursive=True) if row.value is not None else None
        assert (repr(found), repr(single)) == (repr(wanted), repr(wanted)), text


def test_no_record_has_the_data_of_another() -> None:
    """F62: documents that are two, and others that are none, between sound ones."""
    schema = pa.schema([("a", pa.int64())])
    texts = ['{"a":1}', '{"a":2} {"a":3}', "   ", '{"a":4}', '{"a":5', "}", '{"a":6}{"a":7}', "\n", '{"a":8}']
    found = parse_json(pa.array(texts * 40, pa.string()), schema).to_pylist()
    assert [row and row["a"] for row in found[: len(texts)]] == [1, 2, None, 4, None, None, 6, None, 8]
    assert found == found[: len(texts)] * 40


@pytest.mark.parametrize("text", ["null", " null", "null\nnull", "[", "nul", "\x00", "{}null"])
def test_no_document_ends_the_process(text: str) -> None:
    """F61: a `null` at the head of a chunk ended the worker by a signal."""
    code = (
        "import pyarrow as pa\nfrom headrace.spark.values import parse_json\n"
        f"found = parse_json(pa.array([{text!r}, '{{\"a\":1}}']), pa.schema([('a', pa.int64())])).to_pylist()\n"
        "assert found[1] == {'a': 1}, found"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_bytes_that_are_no_text_are_replaced() -> None:
    raw = pa.array([b'{"s":"a\xff"}', b'{"s":"b"}'], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    schema = pa.schema([("s", pa.string())])
    assert parse_json(texts, schema).to_pylist() == [{"s": "a\ufffd"}, {"s": "b"}]
    assert ValueDecoder("json", schema).is_sound(raw) == [True, True]


def test_a_null_value_in_a_stream_of_json(spark: Any, broker: BrokerProcess, topic: str) -> None:
    """F61 through the door: the worker lives, and the rows are there."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for text in ("null", '{"id":7}'):
        producer.produce(topic, text, partition=0)
    assert producer.flush(60) == 0
    frame = (
        spark.read.format("headrace").option("bootstrap", broker.bootstrap).option("subscribe", topic)
        .option("valueFormat", "json").option("valueSchema", "id bigint").load()
    )  # fmt: skip
    assert [row.value.id for row in frame.orderBy("offset").collect()] == [None, 7]


@pytest.mark.parametrize("kind", ["date", "timestamp", "binary", "decimal(9,2)", "map<string,int>", "float"])
def test_a_schema_that_would_be_read_otherwise_is_refused(
    spark: Any, broker: BrokerProcess, topic: str, kind: str
) -> None:
    """F62: dates were nulls, epoch numbers were 1970, base64 was not decoded, a map ended the query."""
    reader = (
        spark.read.format("headrace").option("bootstrap", broker.bootstrap).option("subscribe", topic)
        .option("valueFormat", "json").option("valueSchema", f"id bigint, x array<struct<y:{kind}>>")
    )  # fmt: skip
    with pytest.raises(Exception, match=r"does not read value\.x\[\]\.y of type .*from_json"):
        reader.load().collect()
