"""What tasks do, without a JVM: the transaction of the sink, the mirror's copy, the archive's files, the board."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.records.read import read_records
from headrace.spark.connection import ClusterAccess
from headrace.spark.fetching import fetch_range
from headrace.spark.ledger import ensure_ledger, enter, ledger_partition, read
from headrace.spark.options import sink_options, source_options
from headrace.spark.pipelines.archive import ArchiveTask, _reader
from headrace.spark.pipelines.archive_log import ArchiveLog, RoundTaken
from headrace.spark.pipelines.board import PipelineBoard
from headrace.spark.pipelines.mirror import MirrorTask
from headrace.spark.plan import OffsetRange
from headrace.spark.sync_client import EARLIEST, LATEST, READ_COMMITTED, SyncClient
from headrace.spark.transactions import SinkTransaction
from headrace.spark.writer import write_task
from headrace.testing.broker_process import BrokerProcess


def _rows(numbers: range) -> Iterator[pa.RecordBatch]:
    values = pa.array([str(number).encode() for number in numbers], pa.binary())
    yield pa.RecordBatch.from_arrays([values, values], names=["key", "value"])


def _values(client: SyncClient, topic: str, isolation: int = READ_COMMITTED) -> list[int]:
    found: list[int] = []
    for number in client.topics([topic])[topic].leaders:
        tp = TopicPartition(topic, number)
        start = client.list_offsets({tp: EARLIEST})[tp]
        end = client.list_offsets({tp: LATEST}, isolation)[tp]
        wanted = OffsetRange(*tp, start, end)
        for piece in fetch_range(
            client, wanted, isolation=isolation, fail_on_data_loss=True, max_bytes=1 << 20
        ):
            for position, _ in piece.batches:
                found += [
                    int(one.value or b"") for one in read_records(piece.buffer, position, max_bytes=1 << 24)
                ]
    return sorted(found)


def _settled(client: SyncClient, topic: str, count: int) -> list[int]:
    """A transaction is decided before its last marker is written, so what it wrote shows a moment later."""
    deadline = time.monotonic() + 240
    while len(found := _values(client, topic)) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def test_a_replayed_batch_writes_nothing(broker: BrokerProcess, client: SyncClient, topic: str) -> None:
    options = sink_options({"bootstrap": broker.bootstrap, "topic": topic, "delivery": "exactly-once"})
    sink = uuid.uuid4().hex
    assert write_task(options, _rows(range(100)), sink, 0).records == 100
    assert write_task(options, _rows(range(100)), sink, 0).skipped
    assert write_task(options, _rows(range(100, 150)), sink, 1).records == 50
    assert write_task(options, _rows(range(100)), sink, 0).skipped
    assert _settled(client, topic, 150) == list(range(150))


def test_a_task_that_dies_before_its_commit_leaves_nothing(
    broker: BrokerProcess, client: SyncClient, topic: str
) -> None:
    options = sink_options({"bootstrap": broker.bootstrap, "topic": topic, "delivery": "exactly-once"})
    sink = uuid.uuid4().hex

    def dying() -> Iterator[pa.RecordBatch]:
        yield from _rows(range(50_000))
        yield from _rows(range(50_000, 200_000))
        raise RuntimeError("the task dies")

    with pytest.raises(RuntimeError):
        write_task(options, dying(), sink, 0)
    assert write_task(options, _rows(range(100)), sink, 0).records == 100
    assert _settled(client, topic, 100) == list(range(100))


def test_a_zombie_is_fenced(broker: BrokerProcess, topic: str) -> None:
    """A task that was given up and comes back can neither write nor commit."""
    group = uuid.uuid4().hex
    with (
        SyncClient(ClusterAccess(broker.bootstrap)) as one,
        SyncClient(ClusterAccess(broker.bootstrap)) as two,
    ):
        zombie = SinkTransaction(one, f"{group}-0", 60_000)
        zombie.add_partitions([TopicPartition(topic, 0)])
        heir = SinkTransaction(two, f"{group}-0", 60_000)
        with pytest.raises(HeadraceError):
            enter(zombie, group, {"offset": 1})
            zombie.commit()
        enter(heir, group, {"offset": 5})
        heir.commit()
        assert read(two, group) == {"offset": 5}


def test_the_ledger_follows_the_markers_and_waits_for_nobody(broker: BrokerProcess) -> None:
    """F58: the last committed entry, though an aborted one is behind it and somebody else's transaction is open in front of it."""
    key = uuid.uuid4().hex
    with SyncClient(ClusterAccess(broker.bootstrap)) as client:
        ensure_ledger(client)
        with SinkTransaction(client, f"{key}-other", 60_000) as other:
            enter(other, f"{key}-other", {"offset": 1})
            other.add_partitions([ledger_partition(key)])
            other.producer.flush()
            assert read(client, key) is None
            for number, is_kept in ((1, True), (2, True), (3, False)):
                with SinkTransaction(client, key, 60_000) as ours:
                    enter(ours, key, {"offset": number})
                    if is_kept:
                        ours.commit()
                    else:
                        ours.producer.flush()
            with SinkTransaction(client, key, 60_000):
                assert read(client, key) == {"offset": 2}


def test_aborted_records_are_never_read(broker: BrokerProcess, client: SyncClient, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(20)
    for start, commit in ((0, True), (100, False), (200, True), (300, False)):
        producer.begin_transaction()
        for number in range(start, start + 10):
            producer.produce(topic, str(number), partition=0)
        producer.commit_transaction(120) if commit else producer.abort_transaction(120)
    assert _settled(client, topic, 20) == [*range(10), *range(200, 210)]


def test_a_mirror_task_copies_once(
    broker: BrokerProcess, client: SyncClient, topic: str, publish: Any
) -> None:
    publish(topic, range(1000), 1, headers=[("a", b"b")])
    with BrokerProcess() as other, SyncClient(ClusterAccess(other.bootstrap)) as target:
        target.create_topic(topic, 4)
        task = MirrorTask(
            "m",
            ClusterAccess(broker.bootstrap),
            ClusterAccess(other.bootstrap),
            OffsetRange(topic, 0, 0, 900),
        )
        assert task.run()["records"] == 900
        assert task.run()["records"] == 0
        task.wanted = OffsetRange(topic, 0, 0, 1000)
        assert task.run()["records"] == 100
        assert _settled(target, topic, 1000) == list(range(1000))


def test_an_archive_task_writes_hours(
    broker: BrokerProcess, client: SyncClient, topic: str, publish: Any, tmp_path: Path
) -> None:
    for hour in range(3):
        publish(topic, range(hour * 100, hour * 100 + 100), 1, timestamp=1_700_000_000_000 + hour * 3_600_000)
    options = source_options({"bootstrap": broker.bootstrap, "subscribe": topic, "includeHeaders": "true"})
    log = ArchiveLog(tmp_path)
    state = log.open_for_writing()
    wanted = OffsetRange(topic, 0, 0, 300)
    result = ArchiveTask(_reader(options), (wanted,), str(log.staging), "SNAPPY").run()
    assert [file["rows"] for file in result["files"]] == [100, 100, 100]
    log.commit(state, start={wanted.tp: 0}, end={wanted.tp: 300}, files=result["files"])
    paths = sorted(
        str(path.relative_to(tmp_path).parent) for path in tmp_path.glob("date=*/hour=*/*.parquet")
    )
    assert paths == ["date=2023-11-14/hour=22", "date=2023-11-14/hour=23", "date=2023-11-15/hour=00"]
    table = pq.read_table([str(path) for path in tmp_path.glob("date=*/hour=*/*.parquet")], partitioning=None)
    assert sorted(table.column("offset").to_pylist()) == list(range(300))


def test_two_archivers_can_not_write_the_same_round(tmp_path: Path) -> None:
    one, two = ArchiveLog(tmp_path), ArchiveLog(tmp_path)
    state, late = one.open_for_writing(), two.open_for_writing()
    tp = TopicPartition("t", 0)
    one.commit(state, start={tp: 0}, end={tp: 10}, files=[])
    with pytest.raises(RoundTaken):
        two.commit(late, start={tp: 0}, end={tp: 12}, files=[])
    assert one.read().end == {tp: 10}


def test_a_crash_between_log_and_move_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ArchiveLog(tmp_path)
    state = log.open_for_writing()
    (log.staging / "staged").write_text("rows")
    (log.staging / "orphan").write_text("rows of a round that never was")
    file = {
        "path": "date=2026-01-01/hour=00/a.parquet",
        "staged": "staged",
        "topic": "t",
        "rows": 1,
        "bytes": 4,
    }
    monkeypatch.setattr(log, "_settle", lambda entry: None)
    log.commit(state, start={}, end={}, files=[file])
    assert not (tmp_path / str(file["path"])).exists()
    assert ArchiveLog(tmp_path).open_for_writing().rows() == 1
    assert (tmp_path / str(file["path"])).read_text() == "rows"
    assert not list(log.staging.iterdir())


def test_the_log_is_cut_by_snapshots(tmp_path: Path) -> None:
    log = ArchiveLog(tmp_path)
    state = log.open_for_writing()
    tp = TopicPartition("t", 0)
    for number in range(250):
        file = {"path": f"f{number}", "staged": "x", "topic": "t", "rows": 1, "bytes": 1}
        log.commit(state, start={tp: number}, end={tp: number + 1}, files=[file])
    again = log.read()
    assert (again.next_round, again.end, again.rows(), again.start) == (250, {tp: 250}, 250, {tp: 0})
    assert len(list((tmp_path / "_log").iterdir())) < 60


def test_the_board_tells_states_and_carries_stops(client: SyncClient) -> None:
    board = PipelineBoard(client)
    name = uuid.uuid4().hex
    board.post(name, {"state": "running", "run": "r1", "updated_ms": 1_000})
    assert board.pipelines(2_000)[name]["state"] == "running"
    assert board.pipelines(100_000)[name]["state"] == "lost"
    other = PipelineBoard(client)
    assert not other.is_asked_to_stop(name, "r1")
    board.ask_to_stop(name, "r1")
    assert other.is_asked_to_stop(name, "r1") and not other.is_asked_to_stop(name, "r2")


def test_partitions_of_keys_are_kafkas() -> None:
    """Known values of the Java client's tests."""
    from headrace.spark.columns.ragged import Ragged
    from headrace.spark.partitioner import murmur2

    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
             b"a-little-bit-longer-string": -1486304829, b"abc": 479470107}  # fmt: skip
    offsets = np.cumsum([0, *(len(key) for key in known)]).astype(np.int64)
    values = Ragged(np.frombuffer(b"".join(known), dtype=np.uint8), offsets)
    assert murmur2(values).view(np.int32).tolist() == list(known.values())
