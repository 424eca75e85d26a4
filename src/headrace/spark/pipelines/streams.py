"""Pipelines: transform and aggregate: Structured Streaming from topics to a topic or Parquet, from a checkpoint."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.spark.pipelines.definition import (
    Aggregate,
    DefinitionError,
    Program,
    Redrive,
    Transform,
    seconds,
)
from headrace.spark.program import Pipeline
from headrace.spark.sync_client import SyncClient
from headrace.spark.versions import HAS_LIMITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


_CORRUPT = "_corrupt"
_HEADERS = "array<struct<key:string,value:binary>>"


def group_of(definition: Transform | Aggregate) -> str:
    return f"headrace-{definition.kind}-{definition.name}"


def source_frame(spark: SparkSession, definition: Transform | Aggregate) -> DataFrame:
    """What is read: values as text, or parsed. Those that are not what the schema says are marked in the column `_dead`."""
    schema = definition.value_schema
    is_json = bool(schema) and (isinstance(definition, Aggregate) or definition.value_format == "json")
    value_format = definition.value_format if isinstance(definition, Transform) and not is_json else "string"
    reader = (
        spark.readStream.format("headrace")
        .options(**definition.options)
        .option("subscribe", ",".join(definition.topics))
        .option("startingOffsets", definition.starting)
        .option("groupId", group_of(definition))
        .option("onLoss", definition.on_loss)
        .option("includeHeaders", str(_wants_headers(definition)).lower())
        .option("keyFormat", "string")
        .option("valueFormat", value_format)
    )
    if HAS_LIMITS or definition.max_records_per_trigger != type(definition).max_records_per_trigger:
        # An older Spark takes what is there at once; who has set a limit hears that it can't be held.
        reader = reader.option("maxRecordsPerTrigger", str(definition.max_records_per_trigger))
    if schema and not is_json:
        reader = reader.option("valueSchema", schema)
    frame = reader.load()
    return _parsed(frame, schema, definition.on_error) if is_json else frame


def _wants_headers(definition: Transform | Aggregate) -> bool:
    """They are the dearest column; a function may want them, and SQL that names them does."""
    return isinstance(definition, Transform) and (bool(definition.python) or "headers" in definition.sql)


def _parsed(frame: DataFrame, schema: str, on_error: str) -> DataFrame:
    from pyspark.sql import functions as F

    if on_error == "null":
        return frame.withColumn("value", F.from_json("value", schema))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    read = F.from_json("value", f"{schema}, {_CORRUPT} string", options)
    is_dead = F.expr(f"value is not null and (_read is null or _read.{_CORRUPT} is not null)")
    frame = frame.withColumn("_read", read).withColumn("_dead", is_dead)
    place = "concat('offset ', offset, ' of ', topic, '-', partition, ': the value is not what value_schema says')"
    sound = F.col("_read").dropFields(_CORRUPT)
    if on_error == "fail":
        sound = F.when(F.col("_dead"), F.raise_error(F.expr(place))).otherwise(sound)
        return frame.withColumn("value", sound).drop("_read", "_dead")
    return frame.withColumn("_raw", F.col("value")).withColumn("value", sound).drop("_read")


def _buried(rows: DataFrame, dead: DataFrame, definition: Transform | Aggregate) -> DataFrame:
    """The good rows to the target and the others, as they came and with the reason, to the topic of dead letters: one query, one
    checkpoint, so that both have each record once."""
    from pyspark.sql import functions as F

    if "partition" in rows.columns:
        raise DefinitionError("with on_error = dead_letter the result can't have the column partition")
    kinds = dict(rows.dtypes)
    reason = "the value is not what value_schema says"
    texts = {
        "reason": F.lit(reason),
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
    }
    told = F.array(
        *(
            F.struct(
                F.lit(f"headrace-dead-{name}").alias("key"), text.cast("string").cast("binary").alias("value")
            )
            for name, text in texts.items()
        )
    )
    if "headers" not in kinds:
        rows = rows.withColumn("headers", F.lit(None).cast(_HEADERS))
    # As without dead letters: the target is the target, whatever the column of that name says.
    rows = rows.withColumn("topic", F.lit(definition.target))
    if "key" not in kinds:
        rows = rows.withColumn("key", F.lit(None).cast("string"))
    letters = dead.select(
        F.col("key").cast(kinds.get("key", "string")).alias("key"),
        F.col("_raw").cast(kinds["value"]).alias("value"),
        told.cast(_HEADERS).alias("headers"),
        F.lit(dead_topic(definition)).alias("topic"),
    )
    return rows.select("key", "value", "headers", "topic").unionByName(letters)


def dead_topic(definition: Transform | Aggregate) -> str:
    return definition.dead_letter or f"{definition.target}-dead"


def mended(spark: SparkSession, frame: DataFrame, definition: Transform | Redrive) -> DataFrame:
    """The rows to write. SQL sees what is read as the view `source`."""
    if definition.sql:
        frame.createOrReplaceTempView("source")
        return spark.sql(definition.sql)
    result: DataFrame = _function(definition)(frame)
    return result


def _function(definition: Transform | Redrive | Program) -> Any:
    module, _, function = definition.python.partition(":")
    here = str(Path(definition.state).parent)
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
        chosen = getattr(found, function)
    except (ImportError, AttributeError) as problem:
        raise DefinitionError(f'python = "{definition.python}": {problem}') from None
    _send_by_value(found)
    return chosen


def _send_by_value(module: Any) -> None:
    """What the module defines and Spark's workers call goes to them as it is: they do not have the file."""
    try:
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    except (ImportError, AttributeError):
        # A Spark without it: the module has to be where workers find it.
        return


def start_program(spark: SparkSession, definition: Program, *, once: bool) -> list[StreamingQuery]:
    every = f"{int((seconds(definition.every) or 0) * 1000)} milliseconds"
    options = {key: value for key, value in definition.options.items() if key != "bootstrap"}
    pipeline = Pipeline(
        definition.name,
        bootstrap=definition.bootstrap,
        state=definition.state,
        spark=spark,
        options=options,
        every=every,
    )
    _function(definition)(pipeline)
    return pipeline.start(once=once)


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


def analysed(spark: SparkSession, definition: Transform | Aggregate) -> tuple[DataFrame, bool]:
    """What would be written, and whether dead letters are among it. Spark has looked at every name and type; nothing runs yet."""
    frame = source_frame(spark, definition)
    dead = frame.where("_dead") if "_dead" in frame.columns else None
    good = frame.where("not _dead").drop("_dead", "_raw") if dead is not None else frame
    if isinstance(definition, Transform):
        rows = mended(spark, good, definition)
    else:
        rows = aggregated(good, definition)
        rows = rows if definition.path else as_messages(rows, definition)
    return (rows, False) if dead is None else (_buried(rows, dead, definition), True)


def start(spark: SparkSession, definition: Transform | Aggregate, *, once: bool) -> StreamingQuery:
    rows, buries = analysed(spark, definition)
    if buries:
        with SyncClient(definition.access()) as client:
            client.create_topic(dead_topic(definition))
    if isinstance(definition, Aggregate) and definition.path:
        writer = rows.writeStream.format("parquet").option("path", definition.path)
    else:
        # With dead letters each row names its topic; the option would win over it.
        writer = _to_topic(rows, "" if buries else definition.target, definition)
    if isinstance(definition, Aggregate):
        writer = writer.outputMode("append")
    writer = writer.queryName(definition.name).option(
        "checkpointLocation", str(Path(definition.state).resolve() / "checkpoint")
    )
    every = f"{int((seconds(definition.every) or 0) * 1000)} milliseconds"
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
    return writer.start()


def _to_topic(frame: DataFrame, topic: str, definition: Transform | Aggregate) -> DataStreamWriter:
    writer = (
        frame.writeStream.format("headrace")
        .options(**definition.options)
        .option("delivery", definition.delivery)
    )
    return writer.option("topic", topic) if topic else writer
