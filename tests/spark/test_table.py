"""A topic kept as an Iceberg table: every record once, whatever dies, and readable without us (T1 to T10 of specs/tables.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.ids import TopicPartition
from headrace.spark.iceberg.columns import PLACE, Columns, SchemaProblem, from_json_schema
from headrace.spark.iceberg.files import DataFiles
from headrace.spark.iceberg.partition_fields import parse_partitions
from headrace.spark.iceberg.tables import (
    CommitTaken,
    TableState,
    commit,
    data_directory,
    held,
    open_catalog,
    open_table,
    splitter,
)
from headrace.spark.pipelines import table as table_module
from headrace.spark.pipelines.definition import DefinitionError, Table, parse
from headrace.spark.pipelines.run import run
from headrace.spark.pipelines.table import TablePipeline
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(900)
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "shop": {"type": ["string", "null"]},
        "_offset": {"type": "number"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    },
}


@pytest.fixture
def define(broker: BrokerProcess, topic: str, tmp_path: Path) -> Any:
    def make(extra: str = "") -> Table:
        text = f'kind="table"\nname="t-{topic}"\ntopic="{topic}"\nwarehouse="{tmp_path}/warehouse"\n{extra}'
        found = parse(text, overrides={"bootstrap": broker.bootstrap, "state": str(tmp_path / "state")})
        assert isinstance(found, Table)
        return found

    return make


@pytest.fixture
def publish_values(broker: BrokerProcess, topic: str) -> Any:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def send(values: list[str | None], timestamp: int = 1_700_000_000_000) -> None:
        for number, value in enumerate(values):
            producer.produce(
                topic, value, str(number), partition=number % 4, timestamp=timestamp, headers={"h": "x"}
            )
        assert producer.flush(120) == 0

    return send


def _rows(definition: Table, suffix: str = "") -> pa.Table:
    """By pyiceberg alone."""
    catalog = open_catalog(definition.warehouse, {})
    return catalog.load_table(definition.table_name + suffix).scan().to_arrow()


def _paths(table: Any) -> list[str]:
    return [str(one["file_path"]) for one in table.inspect.files().select(["file_path"]).to_pylist()]


def _order(number: int) -> str:
    return json.dumps({"id": number, "shop": "north", "_offset": 0.5, "lines": [{"sku": f"s{number}"}]})


def test_a_topic_is_a_table_once_through_every_crash(
    spark: Any, topic: str, define: Any, publish_values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies before, between and after the two commits of a round; the table is what the topic is."""
    import duckdb

    definition = define(f'json_schema=\'{json.dumps(SCHEMA)}\'\non_error="dead_letter"\npartition_by="day"')
    publish_values([_order(number) for number in range(200)] + ["null", '{"id": "x"}', None, '{"id": 1} x'])
    real = commit
    for dies_at in (1, 2, 3):
        calls: list[str] = []

        def dying(table: Any, *rest: Any, at: int = dies_at, calls: list[str] = calls) -> None:
            calls.append(table.name()[-1])
            if len(calls) == at:
                raise OSError("dead")
            real(table, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(table_module, "commit", dying)
            if dies_at < 3:
                with pytest.raises(OSError, match="dead"):
                    run(definition, once=True, spark=spark)
            else:
                entry = run(definition, once=True, spark=spark)
                assert (entry["records"], entry["dead_rows"], entry["lag"]) == (201, 3, 0)
    publish_values([_order(number) for number in range(200, 300)], timestamp=1_700_200_000_000)
    assert run(definition, once=True, spark=spark)["records"] == 100
    assert run(definition, once=True, spark=spark)["records"] == 0
    rows = _rows(definition)
    places = set(zip(rows["_topic_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))
    assert len(places) == rows.num_rows == 301
    ids = [number for number in rows["id"].to_pylist() if number is not None]
    assert sorted(ids) == list(range(300)), "one row is a null value and has no columns"
    dead = _rows(definition, "__dead")
    assert sorted(dead["_value"].to_pylist()) == sorted([b"null", b'{"id": "x"}', b'{"id": 1} x'])
    with duckdb.connect() as engine:
        engine.register("orders", rows)
        answer = engine.execute(
            "select count(*), sum(id), count(distinct lines[1].sku), min(_offset_) from orders"
        ).fetchone()
    assert answer == (301, sum(range(300)), 300, 0.5)
    table = open_catalog(definition.warehouse, {}).load_table(definition.table_name)
    assert spark.read.parquet(*_paths(table)).count() == 301, "plain Parquet to Spark without a jar"


def test_t3_a_run_whose_lease_is_over_commits_nothing(
    spark: Any, topic: str, define: Any, publish_values: Any
) -> None:
    """It may look at the table after its successor has committed: then the compare-and-swap alone would let it go on."""
    definition = define('value_format="string"')
    publish_values(["a", "b"])
    assert TablePipeline(definition, spark, fence=9).round().records == 2
    publish_values(["c"])
    late = TablePipeline(definition, spark, fence=8)
    for work in (late.round, late.upkeep):
        with pytest.raises(CommitTaken, match="another supervisor"):
            work()
    assert TablePipeline(definition, spark).round().records == 1, "by hand: the compare-and-swap decides"
    table = open_catalog(definition.warehouse, {}).load_table(definition.table_name)
    assert held(table).fence == 9 and _rows(definition).num_rows == 3
    assert TablePipeline(definition, spark, fence=10).round().records == 0


def test_small_files_become_one_and_the_offsets_stay(
    spark: Any, topic: str, define: Any, publish_values: Any
) -> None:
    definition = define('value_format="string"\ncompact_files=2')
    for start in range(0, 60, 20):
        publish_values([str(number) for number in range(start, start + 20)])
        run(definition, once=True, spark=spark)
    table = open_catalog(definition.warehouse, {}).load_table(definition.table_name)
    assert len(_paths(table)) == 1
    assert sum(held(table).offsets.values()) == 60
    assert sorted(int(text) for text in _rows(definition)["value"].to_pylist()) == list(range(60))
    assert run(definition, once=True, spark=spark)["records"] == 0


def test_t8_the_table_of_the_dead_is_kept_in_order_too(
    spark: Any, topic: str, define: Any, publish_values: Any
) -> None:
    definition = define(f"json_schema='{json.dumps(SCHEMA)}'\non_error=\"dead_letter\"\ncompact_files=2")
    for number in range(3):
        publish_values([_order(number), "no JSON"])
        run(definition, once=True, spark=spark)
    grave = open_catalog(definition.warehouse, {}).load_table(f"{definition.table_name}__dead")
    assert len(_paths(grave)) == 1
    assert (
        _rows(definition, "__dead")["_reason"].to_pylist()
        == ["not JSON: no object is where one should be"] * 3
    )
    publish_values(["no JSON either"])
    run(definition, once=True, spark=spark)
    assert len(_rows(definition, "__dead")) == 4, "its offsets have stayed with it"


def test_t10_a_round_takes_so_much_of_the_log(
    spark: Any, topic: str, define: Any, publish_values: Any
) -> None:
    """400 records of 10 KB: one round would do, and a megabyte for each makes it four or five."""
    definition = define('value_format="string"\nmax_commit_mb=1')
    publish_values([f"{number:010000}" for number in range(400)])
    assert run(definition, once=True, spark=spark)["records"] == 400
    table = open_catalog(definition.warehouse, {}).load_table(definition.table_name)
    written = [one.summary["added-records"] for one in table.snapshots() if one.summary]
    added = [int(count) for count in written if count is not None]
    assert len(added) >= 4 and max(added) <= 130 and len(_rows(definition)) == 400


# -- without a JVM ---------------------------------------------------------------------------------------------------


def _made(tmp_path: Path, name: str = "n.t") -> tuple[Any, pa.Schema]:
    schema = Columns("string").schema
    return open_catalog(str(tmp_path / "w"), {}), schema


def _file(
    table: Any, schema: pa.Schema, count: int = 10, parts: tuple[str, ...] = (), step_us: int = 1
) -> list[dict[str, Any]]:
    rows = pa.Table.from_arrays(
        [
            pa.array(np.zeros(count, dtype=np.int32)),
            pa.array(np.arange(count, dtype=np.int64)),
            pa.array(np.arange(count, dtype=np.int64) * step_us).cast(PLACE.field("_timestamp").type),
            pa.array(np.zeros(count, dtype=np.int32)),
            pa.nulls(count, pa.binary()),
            pa.nulls(count, PLACE.field("_headers").type),
            pa.nulls(count, pa.int32()),
            pa.array([str(number) for number in range(count)]),
        ],
        schema=schema,
    )
    split = splitter(table, parse_partitions(parts))
    with DataFiles(data_directory(table), schema, "ZSTD", split) as files:
        files.write(rows)
        return files.finish()


def test_a_zombie_can_not_commit(tmp_path: Path) -> None:
    """T2: pyiceberg would try again by itself, and add the files on top of what the other has committed."""
    catalog, schema = _made(tmp_path)
    table = open_table(catalog, "n.t", schema)
    said = TableState("t", "ab" * 16, {TopicPartition("t", 0): 10}).properties("p", "d")
    zombie = open_table(catalog, "n.t", schema)
    commit(table, _file(table, schema), said)
    with pytest.raises(CommitTaken):
        commit(zombie, _file(zombie, schema), said)
    fresh = catalog.load_table("n.t")
    assert fresh.scan().to_arrow().num_rows == 10
    assert held(fresh) == TableState("t", "ab" * 16, {TopicPartition("t", 0): 10})
    # Somebody took the property away: it is found before the commit.
    with fresh.transaction() as change:
        change.remove_properties("commit.retry.num-retries")
    stale = catalog.load_table("n.t")
    commit(catalog.load_table("n.t"), _file(fresh, schema), said)
    with pytest.raises(CommitTaken):
        commit(stale, _file(stale, schema), said)
    assert catalog.load_table("n.t").scan().to_arrow().num_rows == 20


def test_many_days_in_few_open_files(tmp_path: Path) -> None:
    """T7: 300 days are 300 files and never more than 64 of them open; each has one value of the partition."""
    catalog, schema = _made(tmp_path)
    table = open_table(catalog, "n.t", schema, parse_partitions("day"))
    paths = _file(table, schema, 300, ("day",), step_us=86_400_000_000)
    commit(table, paths, TableState("t", "ab" * 16, {TopicPartition("t", 0): 300}).properties("p", "d"))
    found = catalog.load_table("n.t").scan(row_filter="_offset >= 290").to_arrow()
    assert len(paths) == 300 and found.num_rows == 10


def test_a_foreign_snapshot_says_nothing_about_offsets(tmp_path: Path) -> None:
    catalog, schema = _made(tmp_path)
    table = open_table(catalog, "n.t", schema)
    commit(
        table,
        _file(table, schema),
        TableState("t", "ab" * 16, {TopicPartition("t", 0): 10}).properties("p", "d"),
    )
    table.delete("_offset < 3")
    assert held(catalog.load_table("n.t")).offsets == {TopicPartition("t", 0): 10}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON"),
        ("{}", "properties"),
        ('{"properties": {"a": {}}}', "a: say one type"),
        ('{"properties": {"a": {"type": "strong"}}}', "no type of JSON Schema"),
        ('{"properties": {"a": {"type": "array"}}}', '"items"'),
        ('{"properties": {"a": {"type": "string"}, "A": {"type": "string"}}}', "differ in case"),
    ],
)
def test_schemas_that_make_no_columns(text: str, told: str) -> None:
    with pytest.raises(SchemaProblem, match=told):
        from_json_schema(text)


def test_definitions_of_tables() -> None:
    text = 'kind="table"\nname="x"\ntopic="a.b"\nwarehouse="w"\n'
    found = parse(text)
    assert isinstance(found, Table) and found.table_name == "topics.a_b"
    for extra, told in (
        ('partition_by="week"', "partition_by"),
        ('on_error="ignore"', "on_error"),
        ("target_file_mb=0", "target_file_mb"),
        ('compresion="zstd"', "compresion"),
    ):
        with pytest.raises(DefinitionError, match=told):
            parse(text + extra)
    with pytest.raises(DefinitionError, match="catalog"):
        parse(text.replace('"w"', '"s3://bucket/w"'))
