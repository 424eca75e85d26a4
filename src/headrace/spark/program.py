"""Adapter: pipelines as programs: `from headrace.spark import Pipeline`. Frames are Spark's own, so everything that Spark does with a stream is there: joins, Python
functions, state of your own (`transformWithState`); this adds where they come from, where they go exactly once, and one thing to run and to ask about.

    pipeline = Pipeline("orders-paid", bootstrap="localhost:9092", state="state/orders-paid")
    orders = pipeline.topic("orders", value_schema="shop string, amount double")
    shops = pipeline.table("warehouse", "topics.shops")
    pipeline.to_topic("orders-paid", orders.join(shops, orders.value.shop == shops.name).selectExpr("key", "to_json(value) value"))
    pipeline.to_parquet("state/all", orders)
    pipeline.run()

Each sink is a query with a checkpoint of its own, so a sink that is added later begins at the beginning and disturbs no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.spark.options import OptionError
from headrace.spark.sync_client import pause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S = 0.05
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,80}")


class Pipeline:
    def __init__(
        self,
        name: str,
        *,
        bootstrap: str = "localhost:9092",
        state: str = "",
        spark: SparkSession | None = None,
        options: dict[str, str] | None = None,
        every: str = "1 second",
    ) -> None:
        """`state`: where checkpoints are, .NAME when not given. `options`: of every source and sink, such as user and passwordFile."""
        if not _NAME.fullmatch(name):
            raise OptionError(
                f'"{name}" is no name of a pipeline: 1 to 80 characters out of a-z A-Z 0-9 . _ -'
            )
        self.name = name
        self.state = Path(state or f".{name}").resolve()
        self._options = {"bootstrap": bootstrap, **(options or {})}
        self._spark = spark
        self._every = every
        self._sinks: dict[str, Callable[[bool], StreamingQuery]] = {}

    @property
    def spark(self) -> SparkSession:
        """The session: the given one, or one with our settings."""
        if self._spark is None:
            from headrace.spark import register
            from headrace.spark.session import local_session

            self._spark = local_session(f"headrace {self.name}")
            register(self._spark)
        return self._spark

    # -- where rows come from ----------------------------------------------------------------------------------------

    def topic(
        self, *names: str, value_schema: str = "", starting: str = "earliest", **options: str
    ) -> DataFrame:
        """A stream of topics, values as text or, with a schema, as `from_json` reads them; other options are those of docs/spark.md."""
        from pyspark.sql import functions as F

        given = {
            "keyFormat": "string",
            "valueFormat": "string",
            "groupId": f"headrace-program-{self.name}",
            **options,
        }
        reader = self.spark.readStream.format("headrace").options(**self._options).options(**given)
        frame = reader.option("subscribe", ",".join(names)).option("startingOffsets", starting).load()
        return frame.withColumn("value", F.from_json("value", value_schema)) if value_schema else frame

    def table(self, warehouse: str, table: str, *, live: bool = False, **catalog: str) -> DataFrame:
        """A table that a pipeline keeps, as it is when each micro-batch asks for it; `live`: with what its topic has since."""
        from headrace.spark.iceberg.source import table_frame
        from headrace.spark.iceberg.view import TableView

        return table_frame(
            self.spark, TableView(warehouse, table, catalog, live=dict(self._options) if live else None)
        )

    # -- where they go -----------------------------------------------------------------------------------------------

    def to_topic(
        self, topic: str, frame: DataFrame, *, delivery: str = "exactly-once", **options: str
    ) -> None:
        """Columns as the sink wants them: value, and if wanted key, headers, timestamp, partition. Rows are appended: Spark knows no other mode
        for such a sink, so stateful operators say "Append" too."""
        writer = frame.writeStream.format("headrace").options(**self._options).options(**options)
        self._add(f"topic-{topic}", writer.option("topic", topic).option("delivery", delivery))

    def to_parquet(self, path: str, frame: DataFrame) -> None:
        self._add(
            f"parquet-{Path(path).name}",
            frame.writeStream.format("parquet").option("path", str(Path(path).resolve())),
        )

    def to(
        self, name: str, write: Callable[[DataFrame, int], None], frame: DataFrame, *, mode: str = "append"
    ) -> None:
        """Anything else: `write(rows of a micro-batch, its number)`, which may come twice with one number after a crash."""
        self._add(name, frame.writeStream.foreachBatch(write).outputMode(mode))

    def _add(self, name: str, writer: Any) -> None:
        if name in self._sinks:
            raise OptionError(f"{self.name} has a sink {name} already")
        where = str(self.state / "checkpoints" / re.sub(r"[^a-zA-Z0-9._-]", "_", name))
        writer = writer.queryName(f"{self.name}/{name}").option("checkpointLocation", where)

        def begin(once: bool) -> StreamingQuery:
            trigger = {"availableNow": True} if once else {"processingTime": self._every}
            query: StreamingQuery = writer.trigger(**trigger).start()
            return query

        self._sinks[name] = begin

    # -- at work -----------------------------------------------------------------------------------------------------

    def start(self, *, once: bool = False) -> list[StreamingQuery]:
        """All sinks at once; `once`: what is there now."""
        if not self._sinks:
            raise OptionError(f"{self.name} writes nothing: give it a sink, as with to_topic(…)")
        started: list[StreamingQuery] = []
        try:
            for begin in self._sinks.values():
                started.append(begin(once))
                _wait_for_its_sources(started[-1])
        except BaseException:
            for query in started:
                query.stop()
            raise
        return started

    def run(self, *, once: bool = False) -> None:
        """Until all sinks are done (`once`), or one fails: then the others stop, and its error is raised."""
        queries = self.start(once=once)
        try:
            while any(not query.awaitTermination(1) for query in queries):
                for query in queries:
                    if not query.isActive:
                        query.awaitTermination()
        finally:
            for query in queries:
                query.stop()


def _wait_for_its_sources(query: StreamingQuery) -> None:
    """Spark gives each new Python ten seconds to start, and each source is one: several at once miss that on a busy machine."""
    while query.isActive and str(query.status["message"]).startswith("Initializing"):
        pause(_LOOK_S)
