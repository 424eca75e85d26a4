"""Columns, partitions and stores of tables (T4, T5, T7 to T9 of specs/tables.md), without a JVM: what a task writes is committed and read back by pyiceberg."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.spark.iceberg import registry, upkeep
from headrace.spark.iceberg.avro_columns import from_avro_schema
from headrace.spark.iceberg.columns import Columns, SchemaProblem, from_json_schema
from headrace.spark.iceberg.evolution import follow
from headrace.spark.iceberg.files import DataFiles
from headrace.spark.iceberg.partition_fields import parse_partitions
from headrace.spark.iceberg.reasons import NOT_THE_SCHEMA
from headrace.spark.iceberg.tables import (
    TableState,
    commit,
    data_directory,
    held,
    open_catalog,
    open_table,
    remember_columns,
    remembered_columns,
    splitter,
    store_of,
)
from headrace.spark.pipelines.definition import Table, parse
from headrace.spark.pipelines.table import columns_of
from headrace.spark.schema import HEADERS, TIMESTAMP

TP = TopicPartition("t", 0)


def rows_of(values: list[bytes | None], start: int = 0, step_us: int = 1) -> pa.RecordBatch:
    """As the source has read them."""
    count = len(values)
    numbers = np.arange(start, start + count, dtype=np.int64)
    arrays = {
        "partition": pa.array(np.zeros(count, dtype=np.int32)), "offset": pa.array(numbers),
        "timestamp": pa.array(numbers * step_us).cast(TIMESTAMP), "timestampType": pa.array(np.zeros(count, dtype=np.int32)),
        "key": pa.nulls(count, pa.binary()), "headers": pa.nulls(count, HEADERS), "value": pa.array(values, pa.binary()),
    }  # fmt: skip
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


class Kept:
    """A table and what a round does to it, without Spark."""

    def __init__(self, warehouse: str, catalog: dict[str, str] | None = None, parts: Any = ()) -> None:
        self.catalog = open_catalog(warehouse, catalog or {})
        self.parts = parse_partitions(parts)
        self.end = 0

    def add(
        self, columns: Columns, values: list[bytes | None], on_schema: str = "fail", step_us: int = 1
    ) -> pa.Table:
        """The dead rows."""
        table = open_table(self.catalog, "n.t", columns.schema)
        columns = follow(table, columns, on_schema)
        remember_columns(table, columns)
        table = open_table(self.catalog, "n.t", columns.schema, self.parts)
        good, dead = columns.make(rows_of(values, self.end, step_us))
        with DataFiles(
            data_directory(table), columns.schema, "ZSTD", splitter(table, self.parts), store_of(table)
        ) as files:
            files.write(good)
            written = files.finish()
        self.end += len(values)
        commit(table, written, TableState("t", "ab" * 16, {TP: self.end}).properties("p", "d"))
        return dead

    @property
    def table(self) -> Any:
        return self.catalog.load_table("n.t")

    def rows(self) -> list[dict[str, Any]]:
        found = self.table.scan().to_arrow().sort_by("_offset")
        return [dict(row) for row in found.drop_columns(["_headers", "_key", "_timestamp"]).to_pylist()]


def json_columns(**properties: Any) -> Columns:
    text = json.dumps({"properties": {name: {"type": kind} for name, kind in properties.items()}})
    return Columns("json", from_json_schema(text))


def documents(*found: Any) -> list[bytes | None]:
    return [json.dumps(one).encode() for one in found]


def test_t6_each_dead_row_says_why(tmp_path: Path) -> None:
    """And a row of a crowd that is wrong in the same way costs no look of its own."""
    lines = {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}}
    schema = {
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "object", "properties": {"x": {"type": "number"}}},
            "lines": lines,
        }
    }
    columns = Columns("json", from_json_schema(json.dumps(schema)))
    wrong = {
        b'{"id": "seven"}': 'id is no integer: "seven"',
        b'{"id": 1.5}': "id is no integer: 1.5",
        b'{"at": {"x": true}}': "at.x is no number: true",
        b'{"lines": [{"sku": 7}]}': "lines.sku is no string: 7",
        b'{"lines": {}}': "lines is no array: {}",
        b"[1]": "not JSON: no object is where one should be",
        b'{"id": 1': "not JSON: it ends too early",
        b'{"id": 1} x': "something is behind the JSON object",
        b"  ": "nothing where a JSON object should be",
        b'{"id": "\xff"}': "not UTF-8 at byte 8",
    }
    _, dead = columns.make(rows_of([b'{"id": 1}', *wrong]))
    assert dict(zip(dead["_value"].to_pylist(), dead["_reason"].to_pylist(), strict=True)) == wrong
    _, texts = Columns("string").make(rows_of([b"fine", b"no\xfe"]))
    assert texts["_reason"].to_pylist() == ["not UTF-8 at byte 2"]
    avro = json.dumps({"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]})
    _, dead = Columns("avro", from_avro_schema(avro), avro=avro).make(rows_of([b"\x02", b"\x02\x02", b""]))
    assert dead["_reason"][0].as_py() == "1 bytes are behind the Avro record"
    assert dead["_reason"][1].as_py().startswith("not Avro of this schema, at byte 0 of 0")
    _, crowd = columns.make(rows_of([b'{"id": "x"}'] * 1500))
    assert Counter(crowd["_reason"].to_pylist()) == {'id is no integer: "x"': 1000, NOT_THE_SCHEMA: 500}


@pytest.mark.parametrize(
    ("parts", "files"),
    [
        ("day", 5), ("hour", 100), ("identity(shop)", 3), ("bucket(4, id)", 4), ("truncate(10, id)", 10),
        (["day", "identity(shop)"], 15),
    ],
)  # fmt: skip
def test_t7_partitions_of_time_and_of_fields(tmp_path: Path, parts: Any, files: int) -> None:
    """Each file has one value of each partition field, and a scan that asks for one leaves the others alone."""
    kept = Kept(str(tmp_path / "w"), parts=parts)
    orders = documents(*({"id": number, "shop": "nsw"[number % 3]} for number in range(100)))
    kept.add(json_columns(id="integer", shop="string"), orders, step_us=86_400_000_000 // 20)
    if parts == "hour":
        assert len(kept.table.inspect.files()) <= 120
    else:
        assert len(kept.table.inspect.files()) == files
    found = kept.table.scan(row_filter="shop == 'n' and id < 30").to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(0, 30, 3))
    assert len(kept.rows()) == 100


def test_t7_partitions_can_be_changed(tmp_path: Path) -> None:
    columns = json_columns(id="integer", shop="string")
    kept = Kept(str(tmp_path / "w"), parts="day")
    kept.add(columns, documents({"id": 1, "shop": "n"}))
    kept.parts = parse_partitions(["bucket(2, id)"])
    kept.add(columns, documents({"id": 2, "shop": "s"}, {"id": 3, "shop": None}))
    assert [one.name for one in kept.table.spec().fields] == ["id_bucket"]
    assert Counter(row["id"] for row in kept.rows()) == Counter([1, 2, 3])
    assert kept.table.scan(row_filter="id == 2").to_arrow().num_rows == 1
    kept.parts = parse_partitions("identity(nothing)")
    with pytest.raises(HeadraceError, match="no such column"):
        kept.add(columns, [])


@pytest.mark.parametrize("text", ["week", "bucket(shop)", "identity", "truncate(0, a)", "day(", "bucket(4)"])
def test_t7_what_is_no_partition(text: str) -> None:
    with pytest.raises(ValueError, match="write day"):
        parse_partitions(text)


AVRO = {
    "type": "record", "name": "order", "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "line", "fields": [
            {"name": "sku", "type": "string"}]}}},
    ],
}  # fmt: skip


def avro(schema: Any, row: Any, schema_id: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return (b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")) + out.getvalue()


def test_t4_columns_of_avro(tmp_path: Path) -> None:
    from datetime import UTC, datetime
    from decimal import Decimal

    row = {
        "id": 7, "at": datetime(2026, 1, 2, tzinfo=UTC), "price": Decimal("9.99"), "tags": {"a": "b"},
        "lines": [{"sku": "x"}],
    }  # fmt: skip
    columns = Columns("avro", from_avro_schema(json.dumps(AVRO)), avro=json.dumps(AVRO))
    kept = Kept(str(tmp_path / "w"))
    values = [avro(AVRO, row), avro(AVRO, row, 42), b"\1", None]
    dead = kept.add(columns, values)
    assert dead.column("_value").to_pylist() == [b"\1"]
    first, second, nothing = kept.rows()
    assert (first["id"], first["at"], first["price"], dict(first["tags"])) == (
        7,
        row["at"],
        row["price"],
        {"a": "b"},
    )
    assert first["lines"] == [{"sku": "x"}] and (first["_schema_id"], second["_schema_id"]) == (None, 42)
    assert nothing["id"] is None and nothing["_offset"] == 3
    for wrong in (
        '{"type": "string"}',
        '{"type": "record", "fields": [{"name": "a", "type": ["int", "string"]}]}',
    ):
        with pytest.raises(SchemaProblem):
            from_avro_schema(wrong)


def test_t5_columns_follow_the_schema(tmp_path: Path) -> None:
    """New and wider ones by themselves; another type as on_schema says; an older writer fits the wider column."""
    kept = Kept(str(tmp_path / "w"))
    schema: dict[str, Any] = {"type": "record", "name": "o", "fields": [{"name": "id", "type": "int"}]}

    def columns() -> Columns:
        return Columns("avro", from_avro_schema(json.dumps(schema)), avro=json.dumps(schema))

    old = columns()
    kept.add(old, [avro(schema, {"id": 1})])
    before = kept.table.schema().find_field("id").field_id
    schema["fields"] = [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]
    kept.add(columns(), [avro(schema, {"id": 1 << 40, "note": "wide"})])
    kept.add(old, [b"\4"])
    assert [row["id"] for row in kept.rows()] == [1, 1 << 40, 2]
    assert kept.table.schema().find_field("id").field_id == before
    schema["fields"] = [{"name": "id", "type": "string"}]
    with pytest.raises(HeadraceError, match="not wider"):
        kept.add(columns(), [])
    for number in (4, 5):
        kept.add(columns(), [avro(schema, {"id": f"id-{number}"})], "new_column")
    assert [row["id_2"] for row in kept.rows()] == [None, None, None, "id-4", "id-5"]
    dead = kept.add(columns(), [avro(schema, {"id": "x"})], "dead_letter")
    assert dead.num_rows == 1 and len(kept.rows()) == 5


class _Registry(BaseHTTPRequestHandler):
    schemas: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        known = self.schemas
        found: dict[str, Any] | None = None
        if self.path == "/subjects/t-value/versions/latest" and known:
            found = {"subject": "t-value", "version": len(known), "id": len(known), **known[-1]}
        elif self.path.startswith("/schemas/ids/"):
            found = known[int(self.path.rsplit("/", 1)[1]) - 1]
        body = json.dumps(found or {"error_code": 40401}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def registry_url() -> Iterator[str]:
    _Registry.schemas = []
    registry.schema_text.cache_clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_t4_t5_columns_of_a_registry(tmp_path: Path, registry_url: str) -> None:
    """The newest schema has the columns; a value is read by the schema that its id names."""
    found = parse(f'kind="table"\nname="x"\ntopic="t"\nwarehouse="w"\nschema_registry="{registry_url}"')
    assert isinstance(found, Table)
    with pytest.raises(HeadraceError, match="404"):
        columns_of(found)
    first: dict[str, Any] = {"type": "record", "name": "o", "fields": [{"name": "id", "type": "int"}]}
    second = {**first, "fields": [*first["fields"], {"name": "shop", "type": "string", "default": "none"}]}
    kept = Kept(str(tmp_path / "w"))
    _Registry.schemas.append({"schema": json.dumps(first)})
    kept.add(columns_of(found), [avro(first, {"id": 1}, 1)])
    _Registry.schemas.append({"schema": json.dumps(second)})
    dead = kept.add(
        columns_of(found), [avro(first, {"id": 2}, 1), avro(second, {"id": 3, "shop": "n"}, 2), b"x"]
    )
    assert dead.num_rows == 1
    assert [(row["id"], row["shop"], row["_schema_id"]) for row in kept.rows()] == [
        (1, None, 1),
        (2, "none", 1),
        (3, "n", 2),
    ]
    _Registry.schemas.append({"schemaType": "JSON", "schema": '{"properties": {"id": {"type": "integer"}}}'})
    kept.add(columns_of(found), [b"\0\0\0\0\3" + b'{"id": 4}'])
    assert (kept.rows()[-1]["id"], kept.rows()[-1]["_schema_id"]) == (4, 3)
    known = remembered_columns(kept.table)
    assert known is not None and known.registry == registry_url and known.value_format == "json"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    import boto3

    boto3.client(
        "s3", endpoint_url=url, aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1"
    ).create_bucket(Bucket="lake")
    yield url
    server.stop()


def test_t9_a_table_in_an_object_store(tmp_path: Path, s3: str) -> None:
    """pyiceberg's own properties name the store; nothing of it is a local directory."""
    catalog = {
        "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "s3.endpoint": s3, "s3.access-key-id": "k",
        "s3.secret-access-key": "s", "s3.region": "us-east-1",
    }  # fmt: skip
    kept = Kept("s3://lake/warehouse", catalog, "identity(shop)")
    columns = json_columns(id="integer", shop="string")
    for start in (0, 10, 20):
        kept.add(
            columns,
            documents(*({"id": number, "shop": "ab"[number % 2]} for number in range(start, start + 10))),
        )
    assert kept.table.location().startswith("s3://lake/") and held(kept.table).offsets == {TP: 30}
    assert [row["id"] for row in kept.rows()] == list(range(30))
    assert not (tmp_path / "s3:").exists() and not Path("s3:").exists()
    # What compaction reads and writes is there, too.
    paths = [str(one["file_path"]) for one in kept.table.inspect.files().to_pylist()]
    task = upkeep.MergeTask(
        paths[:2],
        f"{data_directory(kept.table)}/merged.parquet",
        columns.schema,
        "ZSTD",
        ("a",),
        store_of(kept.table),
    )
    assert task.run()["rows"] == 10
    with upkeep.opened(f"{data_directory(kept.table)}/merged.parquet", store_of(kept.table)) as file:
        assert file.read(4) == b"PAR1"


def test_t2_files_that_nobody_names_are_swept_after_three_days(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "w"))
    kept.add(json_columns(id="integer"), documents({"id": 1}))
    directory = Path(data_directory(kept.table).removeprefix("file://"))
    old, young = directory / "old.parquet", directory / "young.parquet"
    for path in (old, young):
        path.write_bytes(b"x")
    long_ago = time.time() - upkeep.ORPHAN_SECONDS - 10
    for path in (old, *directory.glob("*.parquet")):
        if path != young:
            os.utime(path, (long_ago, long_ago))
    assert upkeep.sweep(kept.table) == 1
    assert not old.exists() and young.exists() and [row["id"] for row in kept.rows()] == [1]
