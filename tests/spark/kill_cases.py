"""What each kind of pipeline is given, how it is seen to work, and what must be there in the end: computed here from the records
themselves, which a client of others reads (confluent-kafka, pyiceberg), not from what the pipeline says."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from applications import environment, pipeline_run
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition as Place
from headrace.spark.connection import ClusterAccess
from headrace.spark.iceberg.tables import open_catalog
from headrace.spark.sync_client import LATEST, SyncClient
from headrace.testing.broker_process import BrokerProcess

PARTITIONS = 4
BEGIN_MS = 1_700_000_040_000
"""A full minute. Records are a second of event time apart, however fast they come."""
SHOPS = 3
WINDOW_S = 60
HISTORY = 4_000
"""Records that one replay has."""


class Seen(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: Any


def value_of(number: int) -> str:
    return json.dumps({"n": number, "shop": f"s{number % SHOPS}", "amount": number % 7})


def produce(producer: Producer, topic: str, number: int, value: str, **extra: Any) -> None:
    producer.produce(
        topic, value, str(number % 100), number % PARTITIONS, timestamp=BEGIN_MS + number * 1000,
        headers={"n": str(number)}, **extra,
    )  # fmt: skip


def records(broker: BrokerProcess, topic: str) -> dict[int, list[Seen]]:
    """Every partition up to its end, as any client sees it that reads what is committed."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "count", "isolation.level": "read_committed",
         "enable.auto.commit": False, "enable.partition.eof": True}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: dict[int, list[Seen]] = {number: [] for number in range(PARTITIONS)}
    ended: set[int] = set()
    try:
        while len(ended) < PARTITIONS:
            for message in consumer.consume(1000, 1.0):
                number = message.partition()
                if message.error() is not None:
                    ended.add(number)
                    continue
                found[number].append(
                    Seen(message.offset(), message.timestamp()[1], message.key(), message.value(), message.headers())
                )  # fmt: skip
    finally:
        consumer.close()
    return found


def differences(what: str, wanted: Iterable[Any], found: Iterable[Any]) -> list[str]:
    """Missing, repeated and foreign ones, a few of each by name."""
    want, have = Counter(wanted), Counter(found)
    told = []
    for word, more in (("missing or fewer", want - have), ("repeated or foreign", have - want)):
        if more:
            told.append(f"{what}: {more.total()} {word} of {want.total()}, as {list(more)[:5]}")
    return told


@dataclass
class Ground:
    """Where a case stands: the brokers, a directory, and what Spark's own JVM is started with."""

    source: BrokerProcess
    target: BrokerProcess
    work: Path
    java: str = ""


class Case(ABC):
    kind = ""
    ends = False
    """A life comes to its end by itself."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.rows = 0
        """Records of the input that were compared."""

    @abstractmethod
    def keys(self) -> dict[str, Any]: ...

    @property
    def file(self) -> Path:
        return self.ground.work / f"{self.kind}.toml"

    def value(self, number: int) -> str:
        return value_of(number)

    def prepare(self, java: str, first_java: str) -> None:
        """Everything before the first kill. A run that finds nothing to do, with `first_java`, leaves the others an archive of classes."""
        self._create(self.ground.source, "in")
        self._create(self.ground.target, "out")
        if first_java:
            self.ground.java = first_java
            self.write(self.kind, self.keys())
            assert self.once() == []
        self.ground.java = java
        self.write(self.kind, self.keys())

    def write(self, name: str, keys: dict[str, Any]) -> Path:
        work = self.ground.work
        whole = {
            "kind": self.kind, "name": name, "bootstrap": self.ground.source.bootstrap, "every": "200ms",
            "state": str(work / f"state-{name}"), **keys,
        }  # fmt: skip
        tables = {key: value for key, value in whole.items() if isinstance(value, dict)}
        lines = [f"{key} = {json.dumps(value)}" for key, value in whole.items() if key not in tables]
        for key, table in tables.items():
            lines += [
                f"[{key}]",
                *(f"{json.dumps(one)} = {json.dumps(value)}" for one, value in table.items()),
            ]
        lines += ["[spark]", 'master = "local[2]"', "[spark.settings]"]
        settings = {
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": self.ground.java,
            "spark.sql.shuffle.partitions": "2",
            # A life has few micro-batches: compiling code for them takes longer than interpreting.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items()]
        self.file.write_text("\n".join(lines) + "\n")
        return self.file

    @staticmethod
    def _create(broker: BrokerProcess, topic: str) -> None:
        with SyncClient(ClusterAccess(broker.bootstrap)) as client:
            client.create_topic(topic, PARTITIONS)

    def mark(self) -> Any:
        """Is another one as soon as the pipeline has done something; None when it can't be seen now."""
        return _ends(self.ground.target, "out")

    def after_end(self) -> list[str]:
        """A life has come to its end, as those do that have one."""
        return []

    def close_input(self) -> list[str]:
        """Nothing comes any more; what is wrong with the run that takes what is there."""
        return self.once()

    def once(self) -> list[str]:
        ran = subprocess.run(
            pipeline_run(self.file, "--once"),
            check=False,
            capture_output=True,
            timeout=600,
            env=environment(),
        )
        return (
            []
            if ran.returncode == 0
            else [f"the last run: exit {ran.returncode}: {ran.stderr.decode()[-3000:]}"]
        )

    def input(self) -> dict[int, list[Seen]]:
        found = records(self.ground.source, "in")
        self.rows = sum(map(len, found.values()))
        return found

    @abstractmethod
    def problems(self) -> list[str]:
        """What is wrong with the output."""


def _ends(broker: BrokerProcess, topic: str) -> Any:
    """Records of open transactions move them too: it is killed in the middle of one."""
    access = ClusterAccess(broker.bootstrap, request_seconds=2.0)
    with contextlib.suppress(HeadraceError, OSError), SyncClient(access) as client:
        return client.list_offsets({Place(topic, number): LATEST for number in range(PARTITIONS)})
    return None


class TableCase(Case):
    """JSON by columns, some of it none; partitions, small files made one, a table of the dead."""

    kind = "table"

    def value(self, number: int) -> str:
        return value_of(number) if number % 41 else "no JSON"

    def keys(self) -> dict[str, Any]:
        whole, text = {"type": "integer"}, {"type": "string"}
        schema = {"type": "object", "properties": {"n": whole, "shop": text, "amount": whole}}
        return {
            "topic": "in", "warehouse": self._warehouse, "json_schema": json.dumps(schema), "on_error": "dead_letter",
            "partition_by": "hour", "compact_files": 4, "max_records_per_round": 400,
        }  # fmt: skip

    @property
    def _warehouse(self) -> str:
        return str(self.ground.work / "warehouse")

    def mark(self) -> Any:
        """Files of the round that are not committed yet move it too."""
        folders = [Path(self._warehouse, "topics", name) for name in ("in", "in__dead")]
        times = []
        for top in folders:
            for folder, _, _ in os.walk(top):
                with contextlib.suppress(FileNotFoundError):
                    times.append(os.stat(folder).st_mtime_ns)
        return sorted(times)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        table = open_catalog(self._warehouse, {}).load_table(name)
        rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return rows

    def problems(self) -> list[str]:
        good, dead = [], []
        for number, seen in self.input().items():
            for one in seen:
                if one.value == b"no JSON":
                    dead.append((number, one.offset))
                else:
                    row = json.loads(one.value)
                    place = (number, one.offset, one.timestamp, one.key)
                    good.append((*place, row["n"], row["shop"], row["amount"]))
        rows = [
            (row["_topic_partition"], row["_offset"], int(row["_timestamp"].timestamp() * 1000), row["_key"],
             row["n"], row["shop"], row["amount"])
            for row in self._rows("topics.in")
        ]  # fmt: skip
        buried = [(row["_topic_partition"], row["_offset"]) for row in self._rows("topics.in__dead")]
        return differences("table", good, rows) + differences("dead rows", dead, buried)


class TransformCase(Case):
    kind = "transform"

    def keys(self) -> dict[str, Any]:
        return {
            "topics": ["in"], "target": "out", "max_records_per_trigger": 400,
            "sql": "select key, concat('seen ', value) as value, headers, timestamp from source "
            "where cast(get_json_object(value, '$.n') as bigint) % 10 != 3",
        }  # fmt: skip

    def mark(self) -> Any:
        """A micro-batch is planned, or committed."""
        found = []
        for name in ("offsets", "commits"):
            folder = self.ground.work / f"state-{self.kind}" / "checkpoint" / name
            with contextlib.suppress(FileNotFoundError):
                found.append(max((int(one) for one in os.listdir(folder) if one.isdigit()), default=-1))
        return found

    def problems(self) -> list[str]:
        wanted = [
            (one.timestamp, one.key, b"seen " + one.value, str(one.headers))
            for seen in self.input().values()
            for one in seen
            if json.loads(one.value)["n"] % 10 != 3
        ]
        out = [
            (one.timestamp, one.key, one.value, str(one.headers))
            for seen in records(self.ground.target, "out").values()
            for one in seen
        ]
        return differences("transform", wanted, out)


class AggregateCase(TransformCase):
    """Windows close all the time: the watermark is twenty minutes of event time behind, some 1,200 records."""

    kind = "aggregate"

    def keys(self) -> dict[str, Any]:
        return {
            "topics": ["in"], "target": "out", "max_records_per_trigger": 400, "by": ["value.shop"],
            "window": f"{WINDOW_S} seconds", "watermark": "20 minutes",
            "value_schema": "n bigint, shop string, amount bigint",
            "aggregates": {"orders": "count(*)", "total": "sum(value.amount)", "first": "min(value.n)"},
        }  # fmt: skip

    def close_input(self) -> list[str]:
        """Records a day later close every window before them; the second time the watermark has heard of the first."""
        told = []
        producer = Producer({"bootstrap.servers": self.ground.source.bootstrap})
        for _ in range(2):
            for number in range(PARTITIONS):
                value = json.dumps({"n": -1, "shop": "closing", "amount": 0})
                producer.produce("in", value, None, number, timestamp=BEGIN_MS + 10**10)
            assert producer.flush(120) == 0
            told += self.once()
        return told

    def problems(self) -> list[str]:
        wanted: dict[tuple[int, str], list[int]] = {}
        for seen in self.input().values():
            for one in seen:
                row = json.loads(one.value)
                if row["n"] >= 0:
                    window = (one.timestamp - BEGIN_MS) // 1000 // WINDOW_S
                    wanted.setdefault((window, row["shop"]), []).append(row["n"])
        rows = [
            (shop, window, len(numbers), sum(n % 7 for n in numbers), min(numbers))
            for (window, shop), numbers in wanted.items()
        ]
        return differences("aggregate", rows, map(_window, self._out()))

    def _out(self) -> list[dict[str, Any]]:
        return [json.loads(one.value) for seen in records(self.ground.target, "out").values() for one in seen]


def _window(row: dict[str, Any]) -> tuple[Any, ...]:
    from datetime import datetime

    began_ms = datetime.fromisoformat(row["window_start"].replace("Z", "+00:00")).timestamp() * 1000
    window = int(began_ms - BEGIN_MS) // 1000 // WINDOW_S
    return row["shop"], window, row["orders"], row["total"], row["first"]


class MirrorCase(Case):
    """Two clusters, and either may be killed."""

    kind = "mirror"

    def keys(self) -> dict[str, Any]:
        return {
            "topics": ["in"],
            "target_bootstrap": self.ground.target.bootstrap,
            "max_records_per_round": 400,
        }

    def mark(self) -> Any:
        return _ends(self.ground.target, "in")

    def problems(self) -> list[str]:
        copied = records(self.ground.target, "in")
        told = []
        for number, seen in self.input().items():
            wanted, found = ([one[1:] for one in some] for some in (seen, copied[number]))
            if wanted != found:
                what = f"partition {number}"
                counted = ([(one[0], one[2]) for one in some] for some in (wanted, found))
                told += differences(what, *counted) or [f"{what}: another order, other keys or headers"]
        return told


class ReplayCase(Case):
    """A history that stands still, again and again into new topics, from a table and from an archive in turn."""

    kind = "replay"
    ends = True

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self.number = 0

    def keys(self) -> dict[str, Any]:
        work = self.ground.work
        where = (
            {"warehouse": str(work / "warehouse"), "table": "topics.in"}
            if self.number % 2 == 0
            else {"path": str(work / "archive")}
        )
        # Two of four tasks at a time: two to four seconds in all.
        return {**where, "topic": self._topic, "keep_partitions": True, "rate": 2_000}

    @property
    def _topic(self) -> str:
        return f"again-{self.number}"

    def prepare(self, java: str, first_java: str) -> None:
        self.ground.java = first_java or java
        self._create(self.ground.source, "in")
        producer = Producer({"bootstrap.servers": self.ground.source.bootstrap})
        for number in range(HISTORY):
            produce(producer, "in", number, value_of(number))
        assert producer.flush(120) == 0
        work = self.ground.work
        warehouse = {"kind": "table", "topic": "in", "warehouse": str(work / "warehouse")}
        archive = {"kind": "archive", "topics": ["in"], "path": str(work / "archive")}
        for name, keys in (("kept", warehouse), ("archived", archive)):
            self.write(name, keys)
            assert self.once() == []
        self.ground.java = java
        self._next()

    def _next(self) -> None:
        self.write(f"replay-{self.number}", self.keys())
        self._create(self.ground.source, self._topic)

    def mark(self) -> Any:
        return _ends(self.ground.source, self._topic)

    def after_end(self) -> list[str]:
        told = self.problems()
        self.number += 1
        self._next()
        return told

    def problems(self) -> list[str]:
        told = []
        again = records(self.ground.source, self._topic)
        rows = self.rows
        for number, seen in self.input().items():
            if [one[1:] for one in seen] != [one[1:] for one in again[number]]:
                what = f"{self._topic}, partition {number}"
                values = ([one.value for one in some] for some in (seen, again[number]))
                told += differences(what, *values) or [f"{what}: another order, other keys, times or headers"]
        self.rows += rows
        return told


CASES: dict[str, type[Case]] = {
    case.kind: case for case in (TableCase, MirrorCase, TransformCase, AggregateCase, ReplayCase)
}
