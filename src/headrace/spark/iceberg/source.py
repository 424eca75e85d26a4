"""Adapter: `format("headrace-table")`: a table of a pipeline for Spark, without Iceberg's jar. Options: warehouse, table, catalog.… (pyiceberg's
properties), snapshot or asOf; live=true with bootstrap adds what the topic has since."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.core.errors import HeadraceError
from headrace.spark.options import OptionError
from headrace.spark.reader import explained
from headrace.spark.worker_memory import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark.iceberg.view import TableView, Unit

FORMAT = "headrace-table"
_OWN = ("warehouse", "table", "snapshot", "asof", "live")
_DDL = {
    pa.bool_(): "boolean", pa.int32(): "int", pa.int64(): "bigint", pa.float32(): "float", pa.float64(): "double",
    pa.string(): "string", pa.binary(): "binary", pa.date32(): "date", pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", tz="UTC"): "timestamp",
}  # fmt: skip


def ddl_of(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'`{one.name}`: {ddl_of(one.type)}' for one in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{ddl_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl_of(kind.key_type)}, {ddl_of(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if kind not in _DDL:
        raise OptionError(f"Spark gets no column of type {kind} from here")
    return _DDL[kind]


class UnitPartition(InputPartition):
    def __init__(self, unit: Unit | None) -> None:
        super().__init__(None)
        self.unit = unit


class TableReader(DataSourceReader):
    def __init__(self, view: TableView) -> None:
        self._view = view

    def partitions(self) -> list[InputPartition]:
        try:
            return [UnitPartition(unit) for unit in self._view.units()] or [UnitPartition(None)]
        except HeadraceError as problem:
            raise explained(problem) from problem

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, UnitPartition)
        settle()
        try:
            yield from partition.unit.read() if partition.unit is not None else ()
        except HeadraceError as problem:
            raise explained(problem) from problem


class TableDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def _view(self) -> TableView:
        # Here: whoever only registers this needs no pyiceberg.
        from headrace.spark.iceberg.view import TableView

        given: dict[str, Any] = {str(key).lower(): value for key, value in self.options.items()}
        if not given.get("warehouse") or not given.get("table"):
            raise OptionError("say warehouse and table")
        catalog = {
            key.removeprefix("catalog."): value for key, value in given.items() if key.startswith("catalog.")
        }
        live = None
        if str(given.get("live", "false")).lower() == "true":
            live = {
                key: value
                for key, value in given.items()
                if key not in _OWN and not key.startswith("catalog.")
            }
        snapshot = int(given["snapshot"]) if given.get("snapshot") else None
        return TableView(
            given["warehouse"], given["table"], catalog, snapshot, str(given.get("asof", "")), live
        )

    def schema(self) -> str:
        try:
            return ", ".join(f"`{one.name}` {ddl_of(one.type)}" for one in self._view().schema())
        except HeadraceError as problem:
            raise explained(problem) from problem

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(self._view())


def table_frame(spark: SparkSession, view: TableView) -> DataFrame:
    spark.dataSource.register(TableDataSource)
    reader = spark.read.format(FORMAT).option("warehouse", view.warehouse).option("table", view.table)
    reader = reader.options(**{f"catalog.{key}": value for key, value in view.catalog.items()})
    if view.live is not None:
        reader = reader.option("live", "true").options(**view.live)
    if view.snapshot_id is not None:
        reader = reader.option("snapshot", str(view.snapshot_id))
    return (reader.option("asOf", view.as_of) if view.as_of else reader).load()
