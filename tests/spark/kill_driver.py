"""Kills a whole Spark application between the sink's write and Spark's commit, again and again, and counts every row (S3).

    .venv/bin/python tests/spark/kill_driver.py --kills 20

A child process runs a stream from topic to topic with exactly-once. Its sink, when Spark calls `commit` for a batch that it
has not died at yet, kills the JVM and the driver with -9: the rows are written and their transactions committed, and Spark
does not know. The next child replays that batch. In the end every row has to be in the target once.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from applications import driver_java, environment

ROWS_PER_BATCH = 500
PARTITIONS = 4
JAVA = "KILL_DRIVER_JAVA_OPTIONS"


def kill_application(script: int) -> None:
    """This process is a worker below the JVM below the script: -9 to all of them, the eldest first."""
    line = []
    pid = os.getpid()
    while pid > 1:
        line.append(pid)
        if pid == script:
            break
        status = Path(f"/proc/{pid}/status").read_text()
        pid = int(next(row for row in status.splitlines() if row.startswith("PPid:")).split()[1])
    for pid in reversed(line):
        os.kill(pid, signal.SIGKILL)


def child(bootstrap: str, source: str, target: str, work: Path) -> None:
    """One life of the application."""
    from headrace.spark.session import STATELESS_SETTINGS, local_session
    from headrace.spark.source import HeadraceDataSource
    from headrace.spark.writer import HeadraceStreamWriter

    script = os.getpid()

    class DyingWriter(HeadraceStreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            mark = work / f"killed-{batchId}"
            if not mark.exists():
                mark.touch()
                kill_application(script)

    class DyingSource(HeadraceDataSource):
        @classmethod
        def name(cls) -> str:
            return "dying"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            from headrace.spark.options import sink_options

            return DyingWriter(sink_options(self.options), schema)

    settings = {
        **STATELESS_SETTINGS,
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": os.environ[JAVA],
        # A life has two micro-batches: compiling code for them takes longer than interpreting.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    spark = local_session("dying", master="local[2]", settings=settings, quiet=True)
    spark.dataSource.register(HeadraceDataSource)
    spark.dataSource.register(DyingSource)
    query = (
        spark.readStream.format("headrace").option("bootstrap", bootstrap).option("subscribe", source)
        .option("maxRecordsPerTrigger", ROWS_PER_BATCH).option("minPartitions", 2).load().select("key", "value")
        .writeStream.format("dying").option("bootstrap", bootstrap).option("topic", target)
        .option("delivery", "exactly-once").option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    spark.stop()


def rows_of(bootstrap: str, topic: str) -> Counter[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "count", "isolation.level": "read_committed",
         "enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": False}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: Counter[int] = Counter()
    quiet = time.monotonic()
    while time.monotonic() - quiet < 3:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                found[int(message.value())] += 1
                quiet = time.monotonic()
    consumer.close()
    return found


def _life(bootstrap: str, directory: str, java: str) -> bool:
    """Whether it was killed; else it came to its end."""
    ended = subprocess.run(
        [sys.executable, __file__, "--child", bootstrap, directory],
        check=False, capture_output=True, timeout=300, start_new_session=True, env={**environment(), JAVA: java},
    )  # fmt: skip
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr.decode()[-3000:]
    return ended.returncode != 0


def kill_many(kills: int) -> tuple[int, Counter[int], int]:
    """(how often it was killed, how often each row is there, how many rows there should be)."""
    from confluent_kafka import Producer

    from headrace.spark.connection import ClusterAccess
    from headrace.spark.sync_client import SyncClient
    from headrace.testing.broker_process import BrokerProcess

    total = ROWS_PER_BATCH * kills
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory, BrokerProcess() as broker:
        with SyncClient(ClusterAccess(broker.bootstrap)) as client:
            client.create_topic("in", PARTITIONS)
            client.create_topic("out", PARTITIONS)
        classes = Path(directory) / "classes.jsa"
        if kills > 2:
            warm = Path(directory) / "warm"
            warm.mkdir()
            _life(broker.bootstrap, str(warm), driver_java(classes, writes=True))
            print(f"classes archived after {time.monotonic() - started:.0f} s", flush=True)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(total):
            producer.produce("in", str(number), str(number), number % PARTITIONS)
        assert producer.flush(120) == 0
        died = 0
        for _ in range(kills + 3):
            if not _life(broker.bootstrap, directory, driver_java(classes)):
                break
            died += 1
            print(f"killed {died} times after {time.monotonic() - started:.0f} s", flush=True)
        return died, rows_of(broker.bootstrap, "out"), total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--child", nargs=2)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child[0], "in", "out", Path(arguments.child[1]))
        return
    started = time.monotonic()
    died, found, total = kill_many(arguments.kills)
    repeated = sum(count - 1 for count in found.values())
    missing = total - len(found)
    print(
        f"killed {died} times in {time.monotonic() - started:.0f} s: {total} rows, "
        f"{missing} missing, {repeated} repeated"
    )
    sys.exit(0 if not missing and not repeated and died >= arguments.kills else 1)


if __name__ == "__main__":
    main()
