"""S3 from below: sink tasks are killed with -9 at any moment, thirty times and more, and run again: every row once.

No JVM: what Spark adds is only that it runs the same task of the same batch again, which is what happens here.
"""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from headrace.core.ids import TopicPartition
from headrace.records.read import read_records
from headrace.spark import fetching
from headrace.spark.fetching import fetch_range
from headrace.spark.options import SinkOptions, sink_options
from headrace.spark.plan import OffsetRange
from headrace.spark.sync_client import LATEST, READ_COMMITTED, SyncClient
from headrace.spark.writer import write_task
from headrace.testing.broker_process import BrokerProcess

KILLS = 30
ROWS = 400
BATCHES = 7


def _rows(batch: int) -> Iterator[pa.RecordBatch]:
    for start in range(batch * ROWS, batch * ROWS + ROWS, 100):
        values = pa.array([b"%d" % number for number in range(start, start + 100)], pa.binary())
        yield pa.RecordBatch.from_arrays([values, values], names=["key", "value"])


def _child(options: SinkOptions, sink: str, batch: int) -> int:
    """A task in a process of its own."""
    pid = os.fork()
    if pid:
        return pid
    try:
        # The parent's connections are not ours.
        fetching._clients.clear()
        write_task(options, _rows(batch), sink, batch)
        os._exit(0)
    except BaseException:
        os._exit(1)


def _ended(pid: int, seconds: float) -> bool:
    """Whether it ended by itself in time and well; else it is killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def test_tasks_killed_anywhere_write_every_row_once(
    broker: BrokerProcess, client: SyncClient, topic: str
) -> None:
    options = sink_options(
        {
            "bootstrap": broker.bootstrap,
            "topic": topic,
            "delivery": "exactly-once",
            "transactionTimeoutMs": "60000",
        }
    )
    sink = uuid.uuid4().hex
    dice = random.Random(3)
    usual = _time_of_one(options, sink)
    kills = 0
    for batch in range(1, BATCHES):
        # Killed a few times at moments all over its run, and after it has ended: a commit that Spark never heard of.
        for _ in range(-(-KILLS // (BATCHES - 1))):
            _ended(_child(options, sink, batch), dice.uniform(0, min(1.3 * usual, 1.0)))
            kills += 1
        while not _ended(_child(options, sink, batch), 60):
            kills += 1
    assert kills >= KILLS
    wanted = list(range(BATCHES * ROWS))
    found = _settled(client, topic, len(wanted))
    assert sorted(found) == wanted and set(found.values()) == {1}


def _time_of_one(options: SinkOptions, sink: str) -> float:
    started = time.monotonic()
    assert _ended(_child(options, sink, 0), 60)
    return time.monotonic() - started


def _settled(client: SyncClient, topic: str, count: int) -> Counter[int]:
    deadline = time.monotonic() + 240
    while sum((found := _read(client, topic)).values()) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _read(client: SyncClient, topic: str) -> Counter[int]:
    found: Counter[int] = Counter()
    for number in client.topics([topic])[topic].leaders:
        tp = TopicPartition(topic, number)
        wanted = OffsetRange(*tp, 0, client.list_offsets({tp: LATEST})[tp])
        for piece in fetch_range(
            client, wanted, isolation=READ_COMMITTED, fail_on_data_loss=True, max_bytes=1 << 20
        ):
            for position, _ in piece.batches:
                found.update(
                    int(one.value or b"") for one in read_records(piece.buffer, position, max_bytes=1 << 24)
                )
    return found
