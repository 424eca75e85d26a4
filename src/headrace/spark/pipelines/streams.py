"""Pipelines: transform and aggregate: Structured Streaming from topics to a topic or Parquet, from a checkpoint."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.spark.pipelines.definition import Aggregate, DefinitionError, Redrive, Transform, seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def group_of(definition: Transform | Aggregate) -> str:
    return f"headrace-{definition.kind}-{definition.name}"


def source_frame(spark: SparkSession, definition: Transform | Aggregate) -> DataFrame:
    if isinstance(definition, Transform):
        value_format, value_schema = definition.value_format, definition.value_schema
    else:
        value_format, value_schema = (
            ("json" if definition.value_schema else "string"),
            definition.value_schema,
        )
    reader = (
        spark.readStream.format("headrace")
        .option("bootstrap", definition.bootstrap)
        .option("subscribe", ",".join(definition.topics))
        .option("startingOffsets", definition.starting)
        .option("groupId", group_of(definition))
        .option("maxRecordsPerTrigger", str(definition.max_records_per_trigger))
        .option("keyFormat", "string")
        .option("valueFormat", value_format)
    )
    return (reader.option("valueSchema", value_schema) if value_schema else reader).load()


def mended(spark: SparkSession, frame: DataFrame, definition: Transform | Redrive) -> DataFrame:
    """The rows to write. SQL sees what is read as the view `source`."""
    if definition.sql:
        frame.createOrReplaceTempView("source")
        return spark.sql(definition.sql)
    module, _, function = definition.python.partition(":")
    here = str(Path(definition.state).parent)
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as problem:
        raise DefinitionError(f'python = "{definition.python}": {problem}') from None
    result: DataFrame = found(frame)
    return result


def aggregated(frame: DataFrame, definition: Aggregate) -> DataFrame:
    """One row for each window and group: start, end, the groups, the aggregates."""
    from pyspark.sql import functions as F

    groups = [F.expr(text).alias(text.rsplit(".", 1)[-1]) for text in definition.by]
    return (
        frame.withWatermark("timestamp", definition.watermark)
        .groupBy(F.window("timestamp", definition.window), *groups)
        .agg(*[F.expr(text).alias(name) for name, text in definition.aggregates.items()])
        .selectExpr("window.start as window_start", "window.end as window_end", "* except (window)")
    )


def as_messages(frame: DataFrame, definition: Aggregate) -> DataFrame:
    """JSON values, keyed by window and group so that equal keys meet in one partition."""
    from pyspark.sql import functions as F

    names = [text.rsplit(".", 1)[-1] for text in definition.by]
    key = F.to_json(F.struct("window_start", *names))
    return frame.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))


def start(spark: SparkSession, definition: Transform | Aggregate, *, once: bool) -> StreamingQuery:
    frame = source_frame(spark, definition)
    if isinstance(definition, Transform):
        rows = mended(spark, frame, definition)
        writer = _to_topic(rows, definition.target, definition)
    else:
        rows = aggregated(frame, definition)
        if definition.path:
            writer = rows.writeStream.format("parquet").option("path", definition.path)
        else:
            writer = _to_topic(as_messages(rows, definition), definition.target, definition)
        writer = writer.outputMode("append")
    writer = writer.queryName(definition.name).option(
        "checkpointLocation", str(Path(definition.state).resolve() / "checkpoint")
    )
    every = f"{int((seconds(definition.every) or 0) * 1000)} milliseconds"
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
    return writer.start()


def _to_topic(frame: DataFrame, topic: str, definition: Transform | Aggregate) -> DataStreamWriter:
    return (
        frame.writeStream.format("headrace")
        .option("bootstrap", definition.bootstrap)
        .option("topic", topic)
        .option("delivery", definition.delivery)
    )
