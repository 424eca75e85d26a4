"""Adapter: `format("headrace")`: what Spark asks for a reader or a writer. It lives in Spark's planner processes too, so it
is imported by name there: the package has to be installed on the driver and the executors (trap 10)."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headrace.spark.options import OptionError, SourceOptions, sink_options, source_options
from headrace.spark.queue_peek import QueuePeekReader
from headrace.spark.queue_reader import QueueStreamReader
from headrace.spark.reader import HeadraceReader, PushdownReader
from headrace.spark.schema import source_ddl
from headrace.spark.stream_reader import HeadraceStreamReader, UnlimitedStreamReader
from headrace.spark.versions import HAS_LIMITS, need_limits
from headrace.spark.worker_memory import settle
from headrace.spark.writer import HeadraceStreamWriter, HeadraceWriter


class HeadraceDataSource(DataSource):
    push_filters = False

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def _source(self) -> SourceOptions:
        # Spark's own mapping, which ignores case; dict(options) would not (trap 7).
        return source_options(self.options, push_filters=self.push_filters)

    def schema(self) -> StructType | str:
        return source_ddl(self._source())

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._source()
        if options.queue is not None:
            if str(self.options.get("peek", "false")).lower() == "true":
                return QueuePeekReader(options, schema)
            raise OptionError(
                "what is taken from a queue has to be acknowledged; read it with readStream, "
                "or look at what is in it with peek=true"
            )
        return (PushdownReader if options.push_filters else HeadraceReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._source()
        if options.queue is not None:
            need_limits("a queue as a stream")
            return QueueStreamReader(options, schema)
        return (HeadraceStreamReader if HAS_LIMITS else UnlimitedStreamReader)(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError('a topic can not be overwritten; use .mode("append")')
        return HeadraceWriter(sink_options(self.options), schema)

    # The parameters keep Spark's names: its commit runner passes them by keyword (trap 6).
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        # Asked for twice a micro-batch, by the planner and by the runner of commits.
        settle()
        return HeadraceStreamWriter(sink_options(self.options), schema)


class PushdownDataSource(HeadraceDataSource):
    """What `register(spark, push_down=True)` installs after it has switched filter push-down on in the session."""

    push_filters = True
