"""F28: Java's own client, of the years that applications, Spark, Flink and Debezium bring along."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headrace.testing.broker_process import BrokerProcess

HERE = Path(__file__).parent
KEPT = HERE.parent.parent / ".interop"
VERSIONS = ("2.8.2", "3.3.2", "3.6.2", "3.7.2", "3.9.1", "4.3.1")


def class_path(version: str) -> str:
    jars = KEPT / f"kafka-clients-{version}"
    if not jars.exists():
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run(
            [*copy, f"-Dkafka.version={version}", f"-DoutputDirectory={jars}"], cwd=HERE / "java", check=True
        )
    return f"{jars}/*"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_round_trip_with_kafka_clients(version: str) -> None:
    path = class_path(version)
    with BrokerProcess() as broker:
        program = ["java", "-cp", path, str(HERE / "java" / "RoundTrip.java")]
        done = subprocess.run(
            [*program, broker.bootstrap, "round-trip"], capture_output=True, text=True, timeout=400
        )
    assert "ROUND TRIP OK" in done.stdout, done.stdout + done.stderr
