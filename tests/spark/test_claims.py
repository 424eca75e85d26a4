"""A worker that lives through many micro-batches keeps its transactional id, and notices when somebody else took it (S3)."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

from headrace.spark import writer
from headrace.spark.fetching import fetch_range
from headrace.spark.options import SinkOptions, sink_options
from headrace.spark.plan import OffsetRange
from headrace.spark.sync_client import READ_COMMITTED, SyncClient
from headrace.spark.transactions import SinkTransaction
from headrace.spark.writer import write_task
from headrace.testing.broker_process import BrokerProcess


@pytest.fixture
def options(broker: BrokerProcess, topic: str) -> SinkOptions:
    return sink_options({"bootstrap": broker.bootstrap, "topic": topic, "delivery": "exactly-once"})


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every claim of a transactional id that is asked for."""
    asked: list[str] = []
    claim = SinkTransaction._claim

    def counting(self: SinkTransaction, timeout_ms: int) -> Any:
        asked.append(self._id)
        return claim(self, timeout_ms)

    monkeypatch.setattr(SinkTransaction, "_claim", counting)
    return asked


def _write(options: SinkOptions, sink: str, batch: int) -> writer.Written:
    values = pa.array([b"%d" % (batch * 10 + number) for number in range(10)], pa.binary())
    rows = pa.RecordBatch.from_arrays([values, values], names=["key", "value"])
    return write_task(options, iter([rows]), sink, batch)


def _count(client: SyncClient, topic: str, ends: Any) -> int:
    return sum(
        header.record_count
        for number, end in ends(topic).items()
        for piece in fetch_range(
            client, OffsetRange(topic, number, 0, end),
            isolation=READ_COMMITTED, fail_on_data_loss=True, max_bytes=1 << 20,
        )
        for _, header in piece.batches
    )  # fmt: skip


def test_one_claim_for_many_batches(
    options: SinkOptions, claims: list[str], client: SyncClient, topic: str, ends: Any
) -> None:
    sink = uuid.uuid4().hex
    for batch in range(4):
        assert _write(options, sink, batch).records == 10
    assert len(claims) == 1
    assert _write(options, sink, 3).skipped, "a replay is found out, with a claim to be sure"
    assert len(claims) == 2 and _count(client, topic, ends) == 40


def test_a_claim_that_somebody_else_took_is_not_trusted(
    options: SinkOptions, claims: list[str], client: SyncClient, topic: str, ends: Any
) -> None:
    """Another worker did the batch meanwhile; ours still believes that it is next."""
    sink = uuid.uuid4().hex
    _write(options, sink, 0)
    stale = dict(writer._claims)
    writer._claims.clear()
    assert _write(options, sink, 1).records == 10
    writer._claims.update(stale)
    assert _write(options, sink, 1).skipped
    assert _write(options, sink, 2).records == 10
    assert _count(client, topic, ends) == 30


def test_a_batch_that_failed_leaves_no_claim(options: SinkOptions, claims: list[str]) -> None:
    sink = uuid.uuid4().hex
    _write(options, sink, 0)

    def broken() -> Any:
        yield pa.RecordBatch.from_arrays([pa.array([b"1"])], names=["value"])
        raise RuntimeError("the task dies")

    with pytest.raises(RuntimeError, match="the task dies"):
        write_task(options, broken(), sink, 1)
    assert _write(options, sink, 1).records == 10
    assert len(claims) == 2
