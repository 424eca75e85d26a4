"""Codec: what a pipeline is: a small TOML file. Everything that is wrong with it is said before anything runs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headrace.spark.connection import ClusterAccess
from headrace.spark.iceberg.partition_fields import PartitionField, parse_partitions
from headrace.spark.pipelines import checks
from headrace.spark.pipelines.login import Login

NAME = re.compile(r"[a-zA-Z0-9._-]{1,80}")


class DefinitionError(ValueError):
    """The file does not describe a pipeline; the text names the key."""


class SparkSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    master: str = "local[*]"
    """local[N], spark://host:7077, or sc://host:15002 for Spark Connect."""
    settings: dict[str, str] = {}


class PipelineDefinition(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, tag_field="kind"
):
    """What all kinds have in common."""

    name: str
    bootstrap: str = "localhost:9092"
    state: str = ""
    """Directory for checkpoints and reports; next to the definition when not given."""
    every: str = "10s"
    """How often a continuous run looks for more."""
    restart: str = "on-failure"
    """on-failure: started again when it fails, after a while that grows to five minutes; always: also when it ended well; or never."""
    cron: str = ""
    """When a supervisor runs it, in UTC: each tick does what is there then. Without it all the time, or once for kinds that end."""
    login: Login = Login()
    on_loss: str = "fail"
    """About records that are gone before they were read: fail; skip (pass over and count them); reset (skip, and a topic that was
    deleted and created again is read from its beginning)."""
    on_error: str = "fail"
    """About values that are not what the schema says: fail; dead_letter (they go to `dead_letter`, with the reason); null."""
    dead_letter: str = ""
    """A topic; the target with -dead behind it when not given."""
    spark: SparkSettings = SparkSettings()

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def has_end(self) -> bool:
        """It does what is there and is done; others go on until they are stopped."""
        return self.kind in ("replay", "audit", "redrive")

    @property
    def options(self) -> dict[str, str]:
        """How its sources and sinks reach the cluster."""
        return self.login.options(self.bootstrap)

    def access(self, seconds: float = 30.0) -> ClusterAccess:
        return self.login.access(self.bootstrap, seconds)

    def problems(self) -> list[str]:
        found = []
        if not NAME.fullmatch(self.name):
            found.append(f'name = "{self.name}": 1 to 80 characters out of a-z A-Z 0-9 . _ -')
        if seconds(self.every) is None:
            found.append(f'every = "{self.every}": write 10s, 5m or 1h')
        found += checks.not_of("restart", self.restart, ("on-failure", "always", "never"))
        found += checks.cron(self.cron) + self.login.problems("login")
        found += checks.not_of("on_loss", self.on_loss, ("fail", "skip", "reset"))
        found += checks.not_of("on_error", self.on_error, ("fail", "dead_letter", "null"))
        if self.kind not in ("table", "transform", "aggregate") and (
            self.on_error != "fail" or self.dead_letter
        ):
            found.append(
                f"on_error and dead_letter are for values that are parsed, and {self.kind} parses none"
            )
        if self.has_end and self.on_loss != "fail":
            found.append(f"on_loss is for what follows a topic, and {self.kind} does not")
        if self.dead_letter and self.on_error != "dead_letter":
            found.append('dead_letter is of use with on_error = "dead_letter"')
        found += checks.addresses("bootstrap", self.bootstrap)
        return found + checks.master(self.spark.master)


class Archive(PipelineDefinition, tag="archive", frozen=True, kw_only=True):
    """Topics into Parquet files by date and hour, exactly once."""

    topics: list[str]
    path: str
    starting: str = "earliest"
    compression: str = "zstd"
    max_records_per_round: int = 20_000_000
    headers: bool = True
    direct_read: bool = False
    compact_files: int = 8
    """So many small files of one hour are made into one."""
    small_file_mb: int = 32

    def problems(self) -> list[str]:
        found = super().problems() + _no_topics(self.topics)
        if self.compression not in ("none", "snappy", "zstd", "lz4", "gzip"):
            found.append(f'compression = "{self.compression}": one of none, snappy, zstd, lz4, gzip')
        found += checks.local_directory("path", self.path) + checks.starting(self.starting)
        return (
            found
            + checks.at_least(
                1, max_records_per_round=self.max_records_per_round, small_file_mb=self.small_file_mb
            )
            + checks.at_least(2, compact_files=self.compact_files)
        )


class Table(PipelineDefinition, tag="table", frozen=True, kw_only=True):
    """A topic kept as an Iceberg table, exactly once."""

    topic: str
    warehouse: str
    """A directory, or s3://… with a [catalog]."""
    table: str = ""
    """namespace.name; topics.TOPIC when not given."""
    catalog: dict[str, str] = {}
    """Properties of a pyiceberg catalog; SQLite beside the warehouse when there are none."""
    value_format: str = "binary"
    json_schema: str = ""
    """A JSON Schema, or the file that has it: its properties are the columns."""
    keep_raw: bool = False
    """Also keep the bytes of each value, in _raw."""
    avro_schema: str = ""
    """The same of an Avro schema of a record; values may have Confluent's header before them."""
    schema_registry: str = ""
    """URL of a registry in Confluent's form: the newest schema of the subject has the columns."""
    subject: str = ""
    """TOPIC-value when not given."""
    on_schema: str = "fail"
    """About a column whose type has changed and is not wider: fail; new_column; dead_letter (rows that do not fit the old type)."""
    partition_by: str | list[str] = ""
    """day or hour of the record's timestamp, or as in hour(shipped_at), identity(country), bucket(16, shop), truncate(4, zip)."""
    starting: str = "earliest"
    compression: str = "zstd"
    max_records_per_round: int = 20_000_000
    max_commit_mb: int = 0
    """Of the log, by its average record, that one round takes; 0: only records are counted."""
    compact_files: int = 16
    """So many small files of one partition are made into one."""
    target_file_mb: int = 256
    keep_snapshots_days: int = 7

    @property
    def table_name(self) -> str:
        name = self.table or "".join(char if char.isalnum() else "_" for char in self.topic)
        return name if "." in name else f"topics.{name}"

    @property
    def partitions(self) -> list[PartitionField]:
        return parse_partitions(self.partition_by)

    @property
    def registry_subject(self) -> str:
        return self.subject or f"{self.topic}-value"

    def with_schema_texts(self) -> Table:
        """With the schemas themselves where files were named."""
        return msgspec.structs.replace(
            self,
            json_schema=_schema_text("json_schema", self.json_schema),
            avro_schema=_schema_text("avro_schema", self.avro_schema),
        )

    def problems(self) -> list[str]:
        found = super().problems()
        found += checks.not_of("value_format", self.value_format, ("binary", "string"))
        found += checks.not_of("on_schema", self.on_schema, ("fail", "new_column", "dead_letter"))
        try:
            if len({one.name for one in self.partitions}) < len(self.partitions):
                found.append("partition_by names one partition twice")
        except ValueError as problem:
            found.append(f"partition_by = {problem}")
        if sum(map(bool, (self.json_schema, self.avro_schema, self.schema_registry))) > 1:
            found.append("say the columns with one of json_schema, avro_schema and schema_registry")
        if self.on_schema == "dead_letter" and self.on_error != "dead_letter":
            found.append('on_schema = "dead_letter" goes with on_error = "dead_letter"')
        found += checks.not_of("compression", self.compression, ("none", "snappy", "zstd", "lz4", "gzip"))
        if "://" in self.warehouse and not self.catalog:
            found.append(
                f'warehouse = "{self.warehouse}" needs a [catalog]: SQLite goes with a local directory'
            )
        found += checks.topic_names("topic", [self.topic]) + checks.starting(self.starting)
        found += checks.at_least(
            1,
            max_records_per_round=self.max_records_per_round,
            target_file_mb=self.target_file_mb,
            keep_snapshots_days=self.keep_snapshots_days,
        )
        if self.dead_letter:
            found.append("dead_letter: the dead rows of a table are a table, NAME__dead")
        found += checks.at_least(0, max_commit_mb=self.max_commit_mb)
        return found + checks.at_least(2, compact_files=self.compact_files)


class Replay(PipelineDefinition, tag="replay", frozen=True, kw_only=True):
    """A table or an archive back into a topic: a time range, a filter, a rate."""

    path: str = ""
    """Of an archive; or warehouse and table."""
    warehouse: str = ""
    table: str = ""
    catalog: dict[str, str] = {}
    topic: str
    source_topic: str = ""
    since: str = ""
    until: str = ""
    where: str = ""
    rate: int = 0
    """Records a second; 0: as fast as it goes."""
    keep_partitions: bool = False
    delivery: str = "exactly-once"

    def problems(self) -> list[str]:
        found = super().problems() + _bad_delivery(self.delivery) + checks.at_least(0, rate=self.rate)
        found += checks.topic_names("topic", [self.topic]) + checks.local_directory("path", self.path)
        found += _bad_history(self.path, self.warehouse, self.table)
        found += checks.moment("since", self.since) + checks.moment("until", self.until)
        if self.since and self.until and not found and self.since >= self.until:
            found.append("until is not behind since")
        return found + (checks.sql("where", self.where, expression=True) if self.where else [])


class Transform(PipelineDefinition, tag="transform", frozen=True, kw_only=True):
    """Topics into a topic through SQL over the view `source`, or through a Python function(frame) -> frame."""

    topics: list[str]
    target: str
    sql: str = ""
    python: str = ""
    """module:function"""
    value_format: str = "string"
    value_schema: str = ""
    starting: str = "earliest"
    max_records_per_trigger: int = 1_000_000
    delivery: str = "exactly-once"

    def problems(self) -> list[str]:
        found = super().problems() + _no_topics(self.topics)
        if bool(self.sql) == bool(self.python):
            found.append("say what to do with one of sql and python")
        found += checks.not_of("value_format", self.value_format, ("binary", "string", "json", "avro"))
        if self.value_format in ("json", "avro") and not self.value_schema:
            found.append(f'value_format = "{self.value_format}" needs value_schema')
        if self.value_format == "json":
            found += checks.schema("value_schema", self.value_schema)
        if self.on_error != "fail" and self.value_format != "json":
            found.append('on_error is for value_format = "json" with value_schema')
        found += (
            checks.sql("sql", self.sql) + checks.python_name(self.python) + checks.starting(self.starting)
        )
        found += checks.topic_names("target", [self.target])
        found += checks.no_loop(self.topics, [self.target, self.dead_letter])
        found += checks.at_least(1, max_records_per_trigger=self.max_records_per_trigger)
        return found + _bad_delivery(self.delivery)


class Aggregate(PipelineDefinition, tag="aggregate", frozen=True, kw_only=True):
    """Windowed, watermarked aggregates of topics into a topic (JSON) or Parquet."""

    topics: list[str]
    aggregates: dict[str, str]
    """Name -> SQL expression, as in total = "sum(amount)"."""
    window: str = "1 minute"
    watermark: str = "1 minute"
    by: list[str] = []
    """SQL expressions to group by, besides the window."""
    value_schema: str = ""
    """Of the JSON values, as in "amount double, shop string"."""
    target: str = ""
    path: str = ""
    starting: str = "earliest"
    max_records_per_trigger: int = 1_000_000
    delivery: str = "exactly-once"

    def problems(self) -> list[str]:
        found = super().problems() + _no_topics(self.topics) + _bad_delivery(self.delivery)
        if bool(self.target) == bool(self.path):
            found.append("say where to with one of target (a topic) and path (Parquet)")
        if not self.aggregates:
            found.append('aggregates is empty: say what to compute, as in orders = "count(*)"')
        for name, text in self.aggregates.items():
            found += checks.sql(f"aggregates.{name}", text, expression=True)
        for text in self.by:
            found += checks.sql("by", text, expression=True)
        if self.on_error != "fail" and not self.value_schema:
            found.append("on_error needs a value_schema to say what is wrong")
        if self.on_error == "dead_letter" and self.path:
            found.append("on_error = dead_letter goes with a target that is a topic")
        found += checks.interval("window", self.window) + checks.interval("watermark", self.watermark)
        found += checks.schema("value_schema", self.value_schema) + checks.starting(self.starting)
        found += checks.topic_names("target", [self.target] if self.target else [])
        found += checks.no_loop(self.topics, [self.target, self.dead_letter])
        return found + checks.at_least(1, max_records_per_trigger=self.max_records_per_trigger)


class Program(PipelineDefinition, tag="program", frozen=True, kw_only=True):
    """A Python function that is given a `headrace.spark.Pipeline` and adds sources and sinks to it."""

    python: str
    """module:function"""

    def problems(self) -> list[str]:
        found = super().problems() + checks.python_name(self.python)
        return found if self.python else [*found, 'say what to run with python = "module:function"']


class Mirror(PipelineDefinition, tag="mirror", frozen=True, kw_only=True):
    """Topics to the same topics on another cluster, batch for batch, exactly once."""

    topics: list[str] = []
    pattern: str = ""
    """A regular expression instead of names; topics that come to match it later are mirrored too."""
    target_bootstrap: str
    target_login: Login = Login()
    starting: str = "earliest"
    max_records_per_round: int = 20_000_000

    def problems(self) -> list[str]:
        found = super().problems() + (
            _no_topics(self.topics) if not self.pattern else checks.pattern(self.pattern)
        )
        if self.pattern and self.topics:
            found.append("say which topics with one of topics and pattern")
        if self.target_bootstrap == self.bootstrap:
            found.append("target_bootstrap is the cluster itself")
        found += self.target_login.problems("target_login")
        found += checks.addresses("target_bootstrap", self.target_bootstrap) + checks.starting(self.starting)
        return found + checks.at_least(1, max_records_per_round=self.max_records_per_round)


class Audit(PipelineDefinition, tag="audit", frozen=True, kw_only=True):
    """Is everything there, once and in order? Between two topics, or a topic and its archive."""

    topic: str
    other_topic: str = ""
    other_bootstrap: str = ""
    other_login: Login = Login()
    path: str = ""
    warehouse: str = ""
    """With table: the table that a pipeline keeps of the topic."""
    table: str = ""
    catalog: dict[str, str] = {}
    report: str = ""
    """Directory for report.html and report.json; `state` when not given."""

    def problems(self) -> list[str]:
        found = super().problems()
        if sum(map(bool, (self.other_topic, self.path, self.warehouse))) != 1:
            found.append(
                "say what to compare with: one of other_topic, warehouse and table, or path (an archive)"
            )
        elif not self.other_topic:
            found += _bad_history(self.path, self.warehouse, self.table)
        if self.other_topic == self.topic and self.other_bootstrap in ("", self.bootstrap):
            found.append(f"{self.topic} would be compared with itself")
        found += self.other_login.problems("other_login")
        found += checks.addresses("other_bootstrap", self.other_bootstrap) if self.other_bootstrap else []
        return found + checks.topic_names("topic", [self.topic]) + checks.local_directory("path", self.path)


class Redrive(PipelineDefinition, tag="redrive", frozen=True, kw_only=True):
    """Dead letters back to where they came from, mended on the way if wanted."""

    queue: str
    """The dead-letter queue."""
    to: str = ""
    """A topic; when not given, each letter goes where it came from."""
    url: str = ""
    """REST of the broker; port 9324 of `bootstrap` when not given."""
    filter: str = ""
    """Headrace's filter language, as in header.kind = 'a' and value.amount > 10; others stay where they are."""
    sql: str = ""
    python: str = ""
    rate: int = 0
    """Letters a second; 0: as fast as it goes."""
    visibility: str = "60s"
    max_messages_per_trigger: int = 1000

    def problems(self) -> list[str]:
        found = super().problems()
        if self.sql and self.python:
            found.append("mend letters with sql or with python, not both")
        if seconds(self.visibility) is None:
            found.append(f'visibility = "{self.visibility}": write 60s or 5m')
        found += (
            checks.python_name(self.python) + checks.sql("sql", self.sql) + checks.filter_text(self.filter)
        )
        found += checks.no_loop([self.queue], [self.to]) + checks.at_least(0, rate=self.rate)
        return found + checks.at_least(1, max_messages_per_trigger=self.max_messages_per_trigger)


def _schema_text(key: str, given: str) -> str:
    if not given or given.lstrip().startswith(("{", "[")):
        return given
    try:
        return Path(given).read_text()
    except OSError as problem:
        raise DefinitionError(f'{key} = "{given}": {problem.strerror}') from None


Kinds = Archive | Table | Replay | Transform | Aggregate | Program | Mirror | Audit | Redrive
KINDS = {
    kind.__struct_config__.tag: kind
    for kind in (Archive, Table, Replay, Transform, Aggregate, Program, Mirror, Audit, Redrive)
}


def _bad_history(path: str, warehouse: str, table: str) -> list[str]:
    if bool(path) == bool(warehouse) or bool(warehouse) != bool(table):
        return ["say where history is: warehouse and table, or path (an archive)"]
    return []


def _no_topics(topics: list[str]) -> list[str]:
    return checks.topic_names("topics", topics) if topics else ["topics is empty"]


def _bad_delivery(delivery: str) -> list[str]:
    if delivery in ("at-least-once", "exactly-once"):
        return []
    return [f'delivery = "{delivery}": one of at-least-once, exactly-once']


def parse(
    text: str, *, overrides: Mapping[str, Any] | None = None, here: Mapping[str, Any] | None = None
) -> Kinds:
    """`here`: the cluster of who asks, `bootstrap` and `login`, for a definition that names none."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise DefinitionError(f"not TOML: {problem}") from None
    table.update(overrides or {})
    if "bootstrap" not in table:
        table = {**(here or {}), **table}
    return checked(table)


def checked(table: dict[str, Any]) -> Kinds:
    if table.get("kind") not in KINDS:
        raise DefinitionError(f'kind = "{table.get("kind", "")}": one of {", ".join(map(str, KINDS))}')
    try:
        found: Kinds = msgspec.convert(table, Kinds)
    except msgspec.ValidationError as problem:
        raise DefinitionError(str(problem)) from None
    problems = found.problems()
    if problems:
        raise DefinitionError("; ".join(problems))
    return found


def seconds(text: str) -> float | None:
    """12.0 for "12s"; None when it is no duration."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text.strip())
    scale = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    return float(found[1]) * scale[found[2]] if found else None
