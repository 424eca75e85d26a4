"""Codec: the options of the source and the sink, named as people know them from Spark's Kafka source.

Names are case-insensitive as everywhere in Spark (trap 7: keep Spark's own mapping). A wrong value is refused with what
would be right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from headrace.core.ids import TopicPartition
from headrace.core.limits import MIB
from headrace.core.units import parse_duration_ms
from headrace.records.filters import FilterProblem, compile_filter
from headrace.spark.connection import ClusterAccess
from headrace.spark.plan import BATCH_RECORDS_PER_TASK
from headrace.spark.sync_client import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no", "")
_COMPRESSIONS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


ON_LOSS = ("fail", "skip", "reset")


class OptionError(ValueError):
    """An option is missing or says something impossible."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Where to start or end: one answer for all partitions, and exceptions to it."""

    everywhere: int | None
    """An offset word (EARLIEST, LATEST) or, by time, milliseconds. None: only those in `given`."""
    given: tuple[tuple[TopicPartition, int], ...] = ()
    by_time: bool = False


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Which queue a stream works off, and how."""

    name: str
    url: str
    visibility_ms: int = 60_000
    max_messages: int = 1000
    filter: str = ""
    token: str | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    access: ClusterAccess
    queue: QueueOptions | None = None
    subscribe: tuple[str, ...] = ()
    pattern: str | None = None
    assign: tuple[TopicPartition, ...] = ()
    starting: Positions = Positions(EARLIEST)
    ending: Positions = Positions(LATEST)
    group: str | None = None
    max_records_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    on_loss: str = "fail"
    """What to do about records that are gone before they were read: fail, skip them, or reset to another topic's beginning."""
    include_headers: bool = False
    key_format: str = "binary"
    value_format: str = "binary"
    value_schema: str | None = None
    isolation: int = READ_COMMITTED
    raw: bool = False
    min_partitions: int = 0
    max_records_per_partition: int = BATCH_RECORDS_PER_TASK
    push_filters: bool = False
    direct_read: bool = False
    direct_read_paths: tuple[str, ...] = ()
    header_filter: tuple[str, str] | None = None
    where: str = ""
    """In the filter language: the broker leaves out what does not match."""
    fetch_bytes: int = 4 * MIB

    @property
    def fail_on_data_loss(self) -> bool:
        return self.on_loss == "fail"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    access: ClusterAccess
    topic: str | None = None
    exactly_once: bool = False
    sink_id: str | None = None
    """Stands for the query in exactly-once; the query's own id when not given."""
    batch_id: int = 0
    compression: int = 0
    max_batch_bytes: int = MIB
    transaction_timeout_ms: int = 300_000
    max_records_per_second: int | None = None


class _Reader:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def text(self, *names: str) -> str | None:
        for name in names:
            value = self._options.get(name)
            if value is not None:
                return str(value).strip()
        return None

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in _TRUE + _FALSE:
            raise OptionError(f'{name}="{text}" is not true or false')
        return text.lower() in _TRUE

    def count(self, *names: str) -> int | None:
        text = self.text(*names)
        if text is None:
            return None
        if not text.replace("_", "").isdecimal() or int(text) < 1:
            raise OptionError(f'{names[0]}="{text}" is not a whole number above 0')
        return int(text)

    def choice(self, default: str, choices: tuple[str, ...], *names: str) -> str:
        text = (self.text(*names) or default).lower()
        if text not in choices:
            raise OptionError(f'{names[0]}="{text}" is not one of {", ".join(choices)}')
        return text

    def json(self, name: str) -> Any:
        text = self.text(name) or ""
        try:
            return json.loads(text)
        except json.JSONDecodeError as problem:
            raise OptionError(f"{name} is not JSON: {problem}") from None


def access_from(options: Mapping[str, str]) -> ClusterAccess:
    reader = _Reader(options)
    bootstrap = reader.text("bootstrap", "kafka.bootstrap.servers", "bootstrap.servers")
    if not bootstrap:
        raise OptionError('the option "bootstrap" is missing: the address of a broker, as in localhost:9092')
    protocol = (reader.text("kafka.security.protocol") or "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise OptionError(f'kafka.security.protocol="{protocol}" is not known')
    user = reader.text("user", "kafka.sasl.username")
    password_file, token_file, ca = (reader.text(name) for name in ("passwordFile", "tokenFile", "tls.ca"))
    if reader.text("password") is not None:
        raise OptionError(
            "a password does not belong into an option, which plans and logs show: use passwordFile"
        )
    if (password_file and not user) or (token_file and user):
        raise OptionError("log in with user and passwordFile, or with tokenFile alone")
    if password_file or token_file:
        protocol = "SASL_SSL" if ca or protocol.endswith("SSL") else "SASL_PLAINTEXT"
    elif ca and protocol == "PLAINTEXT":
        protocol = "SSL"
    elif protocol.startswith("SASL"):
        mechanism = (reader.text("kafka.sasl.mechanism", "kafka.sasl.mechanisms") or "PLAIN").upper()
        if mechanism != "PLAIN" or user is None:
            raise OptionError(
                "SASL needs kafka.sasl.mechanism=PLAIN, kafka.sasl.username and kafka.sasl.password"
            )
    timeout_ms = reader.count("kafka.request.timeout.ms", "requestTimeoutMs") or 30_000
    return ClusterAccess(
        bootstrap=bootstrap,
        client_id=reader.text("kafka.client.id") or "headrace-spark",
        request_seconds=timeout_ms / 1000,
        tls=protocol.endswith("SSL"),
        tls_ca=ca or reader.text("kafka.ssl.ca.location"),
        sasl_user=user if protocol.startswith("SASL") else None,
        sasl_password=reader.text("kafka.sasl.password"),
        password_file=password_file,
        token_file=token_file,
    )


def source_options(options: Mapping[str, str], *, push_filters: bool = False) -> SourceOptions:
    reader = _Reader(options)
    names = reader.text("subscribe", "topic")
    pattern = reader.text("subscribePattern")
    assigned = _assigned(reader) if reader.text("assign") else ()
    queue = _queue_options(reader)
    if sum((bool(names), bool(pattern), bool(assigned), queue is not None)) != 1:
        raise OptionError(
            'say what to read with one of "subscribe", "subscribePattern", "assign" and "queue"'
        )
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as problem:
            raise OptionError(f"subscribePattern is not a regular expression: {problem}") from None
    formats = ("binary", "string", "json", "avro")
    value_format = reader.choice("binary", formats, "valueFormat")
    value_schema = reader.text("valueSchema", "avroSchema")
    if value_format == "avro" and value_schema is None:
        raise OptionError("valueFormat=avro needs the Avro schema (JSON) in the option valueSchema")
    isolation = reader.choice(
        "read_committed", ("read_committed", "read_uncommitted"), "isolation", "kafka.isolation.level"
    )
    direct = reader.text("directRead") or "false"
    return SourceOptions(
        access=access_from(options),
        queue=queue,
        subscribe=tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
        if names
        else (),
        pattern=pattern,
        assign=assigned,
        starting=_positions(reader, "starting", EARLIEST),
        ending=_positions(reader, "ending", LATEST),
        group=reader.text("groupId", "kafka.group.id"),
        max_records_per_trigger=reader.count("maxRecordsPerTrigger", "maxOffsetsPerTrigger"),
        max_bytes_per_trigger=reader.count("maxBytesPerTrigger"),
        on_loss=reader.choice(
            "fail" if reader.flag("failOnDataLoss", True) else "reset", ON_LOSS, "onLoss", "on_loss"
        ),
        include_headers=reader.flag("includeHeaders", False),
        key_format=reader.choice("binary", ("binary", "string"), "keyFormat"),
        value_format=value_format,
        value_schema=value_schema,
        isolation=READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED,
        raw=reader.choice("records", ("records", "raw"), "rows") == "raw" or reader.flag("raw", False),
        min_partitions=reader.count("minPartitions") or 0,
        max_records_per_partition=reader.count("maxRecordsPerPartition") or BATCH_RECORDS_PER_TASK,
        push_filters=reader.flag("pushFilters", push_filters),
        direct_read=direct.lower() not in _FALSE,
        direct_read_paths=() if direct.lower() in _TRUE + _FALSE else tuple(direct.split(",")),
        header_filter=_header_filter(reader),
        where=_where(reader),
        fetch_bytes=reader.count("fetchBytes") or 4 * MIB,
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    reader = _Reader(options)
    delivery = reader.choice(
        "at-least-once", ("at-least-once", "exactly-once"), "delivery", "semantics"
    )  # fmt: skip
    return SinkOptions(
        access=access_from(options),
        topic=reader.text("topic"),
        exactly_once=reader.flag("exactlyOnce", delivery == "exactly-once"),
        sink_id=reader.text("sinkId"),
        batch_id=int(reader.text("batchId") or 0),
        compression=_COMPRESSIONS[
            reader.choice("none", tuple(_COMPRESSIONS), "compression", "kafka.compression.type")
        ],
        max_batch_bytes=reader.count("maxBatchBytes") or MIB,
        transaction_timeout_ms=reader.count("transactionTimeoutMs") or 300_000,
        max_records_per_second=reader.count("maxRecordsPerSecond"),
    )


def _queue_options(reader: _Reader) -> QueueOptions | None:
    name = reader.text("queue")
    if name is None:
        return None
    bootstrap = reader.text("bootstrap", "kafka.bootstrap.servers", "bootstrap.servers") or ""
    host = bootstrap.split(",")[0].rpartition(":")[0]
    wanted = reader.text("queueFilter") or ""
    try:
        visibility_ms = parse_duration_ms(reader.text("visibility") or "60s")
        if wanted:
            compile_filter(wanted)
    except FilterProblem as problem:
        raise OptionError(f"queueFilter: {problem}") from None
    except ValueError as problem:
        raise OptionError(f"visibility: {problem}") from None
    if visibility_ms < 1000:
        raise OptionError("visibility is one second at least: a micro-batch takes its time")
    return QueueOptions(
        name,
        reader.text("url") or f"http://{host}:9324",
        visibility_ms,
        reader.count("maxMessagesPerTrigger", "maxRecordsPerTrigger") or 1000,
        wanted,
        reader.text("token"),
    )


def _assigned(reader: _Reader) -> tuple[TopicPartition, ...]:
    given = reader.json("assign")
    try:
        return tuple(sorted(TopicPartition(topic, int(one)) for topic, rows in given.items() for one in rows))
    except (AttributeError, TypeError, ValueError):
        raise OptionError('assign is written like {"orders":[0,1]}') from None


def _where(reader: _Reader) -> str:
    text = reader.text("where") or ""
    if text:
        if reader.choice("records", ("records", "raw"), "rows") == "raw" or reader.flag("raw", False):
            raise OptionError("where looks at records, and rows=raw hands out whole batches")
        try:
            compile_filter(text)
        except FilterProblem as problem:
            raise OptionError(f"where makes no sense:\n{problem.pointed()}") from None
    return text


def _header_filter(reader: _Reader) -> tuple[str, str] | None:
    text = reader.text("headerFilter")
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f'headerFilter="{text}" is not written like name=value')
    return name.strip(), value.strip()


def _positions(reader: _Reader, side: Literal["starting", "ending"], default: int) -> Positions:
    offsets = reader.text(f"{side}Offsets")
    times = reader.text(f"{side}Timestamp", f"{side}OffsetsByTimestamp")
    if times is not None:
        name = f"{side}Timestamp" if reader.text(f"{side}Timestamp") else f"{side}OffsetsByTimestamp"
        if times.startswith("{"):
            return Positions(None, _per_partition(reader.json(name), name), by_time=True)
        return Positions(_milliseconds(times, name), by_time=True)
    if offsets is None:
        return Positions(default)
    words = {"earliest": EARLIEST, "latest": LATEST}
    if offsets.lower() in words:
        if side == "ending" and offsets.lower() == "earliest":
            raise OptionError("endingOffsets can not be earliest")
        return Positions(words[offsets.lower()])
    if not offsets.startswith("{"):
        raise OptionError(
            f'{side}Offsets="{offsets}": write earliest, latest or JSON like ' + '{"orders":{"0":23,"1":-2}}'
        )
    return Positions(default, _per_partition(reader.json(f"{side}Offsets"), f"{side}Offsets"))


def _per_partition(given: Any, name: str) -> tuple[tuple[TopicPartition, int], ...]:
    try:
        return tuple(
            sorted(
                (TopicPartition(topic, int(partition)), int(offset))
                for topic, rows in given.items()
                for partition, offset in rows.items()
            )
        )
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f"{name} is written like " + '{"orders":{"0":23,"1":-2}}') from None


def _milliseconds(text: str, name: str) -> int:
    """Milliseconds since 1970, or an ISO 8601 time (UTC when it says nothing)."""
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f'{name}="{text}" is neither milliseconds nor a time like 2026-01-31T12:00:00Z'
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
