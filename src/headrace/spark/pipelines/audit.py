"""Pipeline: is everything there, once, and in order? Between a topic and its archive, or a topic and another topic.

With an archive records are compared by partition and offset, with another topic by their content, because a copy has offsets
of its own. The order of each key is compared as a whole. The result is a JSON document and a page for people.
"""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.core.ids import TopicPartition
from headrace.spark.connection import ClusterAccess
from headrace.spark.pipelines.archive_log import ArchiveLog, ArchiveState
from headrace.spark.pipelines.definition import Audit
from headrace.spark.pipelines.rounds import Round
from headrace.spark.pipelines.tables import archive_frame, topic_frame
from headrace.spark.positions import earliest, latest
from headrace.spark.session import need_iceberg
from headrace.spark.sync_client import SyncClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SAMPLES = 20
FAULTS = ("missing", "repeated", "changed", "keys_out_of_order", "never_archived", "skipped")


class AuditPipeline:
    def __init__(self, definition: Audit, spark: SparkSession) -> None:
        self._definition = definition
        self._spark = spark
        self.report: dict[str, Any] = {}
        self.compares_values = True

    @property
    def facts(self) -> dict[str, Any]:
        return {"topics": [self._definition.topic], "report": str(self._directory()), **self._verdict()}

    def _verdict(self) -> dict[str, Any]:
        return {"verdict": self.report["verdict"]} if self.report else {}

    def _directory(self) -> Path:
        return Path(self._definition.report or self._definition.state)

    def round(self) -> Round:
        if self.report:
            return Round()
        from pyspark.sql import functions as F

        definition = self._definition
        left = topic_frame(self._spark, definition.bootstrap, definition.topic, login=definition.login)
        reach: Reach | None = None
        if definition.path:
            state = ArchiveLog(Path(definition.path).resolve()).read()
            right = archive_frame(self._spark, definition.path, definition.topic, state)
            reach = reach_of(definition.access(), definition.topic, state)
            identity = ["partition", "offset"]
            other = definition.path
        elif definition.warehouse:
            right, reach = self._kept()
            identity = ["partition", "offset"]
            other = f"{definition.table} in {definition.warehouse}"
        else:
            bootstrap = definition.other_bootstrap or definition.bootstrap
            login = definition.other_login if definition.other_bootstrap else definition.login
            right = topic_frame(self._spark, bootstrap, definition.other_topic, login=login)
            identity = ["key", "value", "timestamp"]
            other = f"{definition.other_topic} on {bootstrap}"
        if not self.compares_values:
            left, right = (frame.withColumn("value", F.lit(None)) for frame in (left, right))
        self.report = compare(left, right, identity, reach)
        self.report["values_compared"] = self.compares_values
        self.report.update(topic=definition.topic, other=other)
        directory = self._directory()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "report.json").write_text(json.dumps(self.report, indent=2))
        (directory / "report.html").write_text(page(self.report))
        return Round(records=self.report["left"]["records"] + self.report["right"]["records"])

    def _kept(self) -> tuple[DataFrame, Reach]:
        """The table and its dead rows, as far as the snapshot says it is. A value of which only columns are kept is not compared."""
        need_iceberg()
        from headrace.spark.iceberg.view import TableView
        from headrace.spark.pipelines.kept_tables import has_bytes, state_of, table_records

        definition = self._definition
        view = TableView(definition.warehouse, definition.table, dict(definition.catalog))
        known, snapshot = state_of(view)
        ids = {known.topic: known.topic_id} if known.topic else {}
        state = ArchiveState(end=known.offsets, start=known.begins, ids=ids, skipped=known.skipped)
        self.compares_values = has_bytes(view)
        frame = table_records(self._spark, replace(view, snapshot_id=snapshot or None))
        return frame, reach_of(definition.access(), definition.topic, state)

    def upkeep(self) -> int:
        return 0

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Reach:
    """What an archive says it holds of a topic, and what the topic holds now: by the log and the broker, not by the rows that are
    found, because rows that are missing would hide themselves."""

    is_same_topic: bool
    compared: dict[int, tuple[int, int]]
    """Partition -> from, to (not included): both must have exactly the same there."""
    never: dict[int, tuple[int, int]]
    """Partitions that the archive has never met."""
    waiting: int
    """Offsets behind the end of the archive: not archived yet."""
    skipped: int
    """Records that were gone before they were archived."""


def reach_of(access: ClusterAccess, topic: str, state: ArchiveState) -> Reach:
    with SyncClient(access) as client:
        info = client.topic(topic)
        partitions = [TopicPartition(topic, number) for number in info.leaders]
        first, end = earliest(client, partitions), latest(client, partitions)
    met = [tp for tp in partitions if tp in state.end]
    return Reach(
        state.ids.get(topic, info.topic_id.hex()) == info.topic_id.hex(),
        {tp.partition: (max(first[tp], state.start.get(tp, 0)), min(end[tp], state.end[tp])) for tp in met},
        {
            tp.partition: (first[tp], end[tp])
            for tp in partitions
            if tp not in state.end and end[tp] > first[tp]
        },
        sum(max(0, end[tp] - state.end[tp]) for tp in met),
        sum(count for tp, count in state.skipped.items() if tp.topic == topic),
    )


def _within(frame: DataFrame, bounds: dict[int, tuple[int, int]]) -> DataFrame:
    rows = [(number, *span) for number, span in bounds.items()]
    spans = frame.sparkSession.createDataFrame(rows, "partition int, low bigint, high bigint")
    return frame.join(spans, "partition").where("offset >= low and offset < high").drop("low", "high")


def compare(left: DataFrame, right: DataFrame, identity: list[str], reach: Reach | None) -> dict[str, Any]:
    """An archive may hold more than the topic still has, so only what both should have is compared; what the archive never
    met is not left out, but said."""
    from pyspark.sql import functions as F

    mark = F.xxhash64(*identity).alias("id")
    content = F.xxhash64("key", "value").alias("content")
    never = 0
    if reach is not None:
        never = _within(left, reach.never).count() if reach.never else 0
        left, right = _within(left, reach.compared), _within(right, reach.compared)
    marked_left = left.select("partition", "offset", mark, content)
    marked_right = right.select("partition", "offset", mark, content)
    counts = (
        marked_left.groupBy("id").agg(F.count("*").alias("l"), F.first("content").alias("lc"),
                                      F.first("partition").alias("partition"), F.min("offset").alias("offset"))
        .join(marked_right.groupBy("id").agg(F.count("*").alias("r"), F.first("content").alias("rc"),
              F.first("partition").alias("rp"), F.min("offset").alias("ro")), "id", "full")
        .select(F.coalesce("l", F.lit(0)).alias("l"), F.coalesce("r", F.lit(0)).alias("r"), "lc", "rc",
                F.coalesce("partition", "rp").alias("partition"), F.coalesce("offset", "ro").alias("offset"))
        .cache()
    )  # fmt: skip
    totals = counts.select(
        F.sum("l").alias("left"),
        F.sum("r").alias("right"),
        F.sum(F.greatest(F.col("l") - F.col("r"), F.lit(0))).alias("missing"),
        F.sum(F.greatest(F.col("r") - F.col("l"), F.lit(0))).alias("repeated"),
        F.sum(F.when((F.col("l") == F.col("r")) & (F.col("lc") != F.col("rc")), 1).otherwise(0)).alias(
            "changed"
        ),
    ).first()
    assert totals is not None
    samples = [
        {"partition": row.partition, "offset": row.offset, "left": row.l, "right": row.r}
        for row in counts.where("l != r").orderBy("partition", "offset").limit(_SAMPLES).collect()
    ]
    counts.unpersist()
    found: dict[str, Any] = {
        "left": {"records": totals.left or 0, "partitions": _partitions(left)},
        "right": {"records": totals.right or 0, "partitions": _partitions(right)},
        "missing": totals.missing or 0,
        "repeated": totals.repeated or 0,
        "changed": totals.changed or 0,
        "keys_out_of_order": _out_of_order(left, right),
        "samples": samples,
        "never_archived": never,
        "skipped": reach.skipped if reach is not None else 0,
        "waiting": reach.waiting if reach is not None else 0,
    }
    wrong = [name for name in FAULTS if found[name]]
    if reach is not None and not reach.is_same_topic:
        wrong.append("another_topic")
    found["verdict"] = "complete" if not wrong else ", ".join(wrong).replace("_", " ")
    return found


def _partitions(frame: DataFrame) -> dict[str, dict[str, int]]:
    from pyspark.sql import functions as F

    rows = frame.groupBy("partition").agg(
        F.count("*").alias("n"), F.min("offset").alias("low"), F.max("offset").alias("high")
    )
    return {
        str(row.partition): {"records": row.n, "first": row.low, "last": row.high}
        for row in rows.orderBy("partition").collect()
    }


def _out_of_order(left: DataFrame, right: DataFrame) -> int:
    """Keys that have the same records on both sides, in another order."""
    from pyspark.sql import functions as F

    def story(frame: DataFrame, name: str) -> DataFrame:
        row = F.struct("partition", "offset", F.xxhash64("value").alias("v"))
        told = F.sort_array(F.collect_list(row)).getField("v")
        return (
            frame.where("key is not null")
            .groupBy("key")
            .agg(told.alias("told"))
            .select(
                "key", F.xxhash64("told").alias(name), F.xxhash64(F.sort_array("told")).alias(f"{name}_set")
            )
        )

    both = story(left, "a").join(story(right, "b"), "key")
    return int(both.where("a_set = b_set and a != b").count())


def page(report: dict[str, Any]) -> str:
    """The report for people: a verdict, the numbers, and a bar for each partition of both sides."""
    good = report["verdict"] == "complete"
    numbers = "".join(
        f"<tr><td>{name.replace('_', ' ')}</td><td class=n>{report[name]:,}</td></tr>"
        for name in (*FAULTS, "waiting")
    )
    samples = "".join(
        f"<tr><td>{row['partition']}</td><td class=n>{row['offset']}</td><td class=n>{row['left']}</td>"
        f"<td class=n>{row['right']}</td></tr>"
        for row in report["samples"]
    )
    examples = (
        f"<h2>Where to look</h2><table><tr><th>partition<th>offset<th>times left<th>times right</tr>{samples}</table>"
        if samples
        else ""
    )
    title = f"Audit of {html.escape(report['topic'])}"
    return f"""<!doctype html><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px system-ui;margin:3em auto;max-width:50em;color:#222}}td,th{{padding:.2em 1em;text-align:left}}
.n{{text-align:right;font-variant-numeric:tabular-nums}}.verdict{{color:{"#157347" if good else "#b02a37"}}}</style>
<h1>{title}</h1><p>against {html.escape(str(report["other"]))}</p>
<h2 class=verdict>{html.escape(report["verdict"])}</h2>
<p>{report["left"]["records"]:,} records on the left, {report["right"]["records"]:,} on the right.</p>
<table>{numbers}</table><h2>Records per partition</h2>{bars(report)}{examples}"""


def bars(report: dict[str, Any]) -> str:
    """A plot without a library: two bars for each partition."""
    left, right = report["left"]["partitions"], report["right"]["partitions"]
    names = sorted({*left, *right}, key=int)
    most = max([1, *(side[name]["records"] for side in (left, right) for name in side)])
    rows = []
    for index, name in enumerate(names):
        for turn, (side, colour) in enumerate(((left, "#0d6efd"), (right, "#fd7e14"))):
            count = side.get(name, {"records": 0})["records"]
            y, width = index * 44 + turn * 18, 520 * count / most
            rows.append(f'<rect x="60" y="{y}" width="{width:.1f}" height="15" fill="{colour}"/>')
            rows.append(f'<text x="{66 + width:.1f}" y="{y + 12}" font-size="12">{count:,}</text>')
        rows.append(f'<text x="0" y="{index * 44 + 20}" font-size="13">{html.escape(name)}</text>')
    return (
        f'<svg width="700" height="{len(names) * 44}" role="img">{"".join(rows)}</svg>'
        '<p><span style="color:#0d6efd">■</span> left <span style="color:#fd7e14">■</span> right</p>'
    )
