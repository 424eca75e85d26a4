"""Adapter: what differs between the versions of Spark, from 4.0 on: each name that one of them lacks is looked for here, and nowhere else.

    4.0   batch reads and writes, streams both ways; what a stream writes comes as rows and not as Arrow
    4.1   filter push-down, streams write Arrow, declarative pipelines
    4.2   limits of a micro-batch, Trigger.AvailableNow with them, losses that are skipped, queues as streams

What a version can't do is refused with a sentence that says which one can (`need_limits`), not with an error of Python's.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from headrace.spark.options import OptionError

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:
    HAS_LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]
        """Stand-in: nobody asks for one."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        pass

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        def __init__(self, max_bytes: int) -> None:
            self.max_bytes = max_bytes

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass


StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)
WRITES_ROWS = StreamArrowWriter is None
"""Spark 4.0 hands a stream's writer rows of Python."""
StreamWriterBase: Any = StreamArrowWriter or DataSourceStreamWriter
HAS_PUSH_DOWN = hasattr(datasource, "Filter")

__all__ = [
    "HAS_LIMITS",
    "HAS_PUSH_DOWN",
    "WRITES_ROWS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "StreamWriterBase",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "arrow_type",
    "checkpoint_files_class",
    "forget_dead_session",
    "need_limits",
    "version",
]


def version() -> str:
    import pyspark

    return str(pyspark.__version__)


def need_limits(what: str) -> None:
    if not HAS_LIMITS:
        raise OptionError(
            f"{what} needs Spark 4.2 or newer, and this is {version()}: leave it out, or upgrade"
        )


def checkpoint_files_class() -> str:
    """The class of Spark that writes checkpoints to a local disk without a process for each file; it has moved."""
    package = "org.apache.spark.sql.execution.streaming"
    middle = "" if version().startswith("4.0.") else ".checkpointing"
    return f"{package}{middle}.FileSystemBasedCheckpointFileManager"


def forget_dead_session() -> None:
    """PySpark keeps the session of a JVM that was killed (the kernel's OOM killer does that) and hands it out for ever, as it keeps the way
    to that JVM; it has no call that gives them up. A session that answers stays."""
    try:
        from py4j.protocol import Py4JError
        from pyspark import SparkContext
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        # A client of Spark Connect has no JVM.
        return
    held = {
        SparkContext: ("_gateway", "_jvm", "_active_spark_context"),
        SparkSession: ("_instantiatedSession",),
    }
    try:
        SparkSession.active()
    except PySparkException:
        # There is none yet.
        return
    except (OSError, Py4JError):
        # Nobody is at the other end.
        for owner, names in held.items():
            for name in names:
                if hasattr(owner, name):
                    setattr(owner, name, None)


_SCALARS = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us"), "void": pa.null(),
}  # fmt: skip


def arrow_type(kind: DataType) -> pa.DataType:
    """Spark has such a function, which is private and has changed its parameters between 4.1 and 4.2."""
    if isinstance(kind, StructType):
        return pa.struct(list(arrow_schema(kind)))
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, MapType):
        value = pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull)
        return pa.map_(pa.field("key", arrow_type(kind.keyType), False), value)
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if kind.typeName() not in _SCALARS:
        raise OptionError(f"a column of type {kind.simpleString()} is not supported here")
    return _SCALARS[kind.typeName()]


def arrow_schema(kind: StructType) -> pa.Schema:
    return pa.schema([pa.field(one.name, arrow_type(one.dataType), one.nullable) for one in kind.fields])
