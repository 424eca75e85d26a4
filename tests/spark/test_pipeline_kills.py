"""`make pipeline-kills` in short: a table whose JVM is killed under it, and then its driver. Long runs: docs/proofs.md."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.spark.connection import ClusterAccess
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parent))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("java")
def test_a_table_whose_jvm_and_driver_are_killed_has_every_row_once() -> None:
    from pipeline_kills import kill_pipelines

    # A run that has lost its JVM goes on with another: PySpark would hand out the dead session for ever (decision 0125).
    report = kill_pipelines("table", 2, 1, deaths=["java", "driver"])
    assert report.deaths == {"java": 1, "driver": 1} and report.rows


def test_the_comparison_finds_what_is_missing_repeated_and_in_another_order(tmp_path: Path) -> None:
    from kill_cases import PARTITIONS, Ground, MirrorCase, TransformCase, produce, value_of

    with BrokerProcess() as source, BrokerProcess() as target:
        for broker in (source, target):
            with SyncClient(ClusterAccess(broker.bootstrap)) as client:
                for topic in ("in", "out"):
                    client.create_topic(topic, PARTITIONS)

        def write(broker: BrokerProcess, topic: str, numbers: list[int], before: str = "") -> None:
            producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
            for number in numbers:
                produce(producer, topic, number, before + value_of(number))
            assert producer.flush(120) == 0

        mirror = MirrorCase(Ground(source, target, tmp_path))
        transform = TransformCase(Ground(source, target, tmp_path))
        write(source, "in", list(range(40)))
        write(target, "in", list(range(39)))
        wanted = [number for number in range(40) if number % 10 != 3]
        write(target, "out", wanted, "seen ")
        assert transform.problems() == [] and transform.rows == 40
        assert len(mirror.problems()) == 1 and "1 missing" in mirror.problems()[0]
        write(target, "in", [39])
        assert mirror.problems() == []
        write(source, "in", [40, 44])
        write(target, "in", [44, 40])
        assert mirror.problems() == ["partition 0: another order, other keys or headers"]
        write(target, "out", [40, 44, 17], "seen ")
        assert len(transform.problems()) == 1 and "1 repeated" in transform.problems()[0]
