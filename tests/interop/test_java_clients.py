"""F28: Java's own client, of the years that applications, Spark, Flink and Debezium bring along. F25: its transactions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from kafka_apis import KAFKA_4_3

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
    assert "ROUND TRIP OK" in run("RoundTrip", version)


@pytest.mark.timeout(600)
def test_an_abort_at_once_after_a_commit() -> None:
    """F25 (KAFKA-18464): it was fenced by its own commit."""
    assert "QUICK ABORT OK" in run("QuickAbort", VERSIONS[-1])


def run(program: str, version: str) -> str:
    path = class_path(version)
    with BrokerProcess() as broker:
        command = ["java", "-cp", path, str(HERE / "java" / f"{program}.java")]
        done = subprocess.run(
            [*command, broker.bootstrap, program.lower()], capture_output=True, text=True, timeout=400
        )
    return done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_what_the_tools_ask_through_the_admin_client() -> None:
    """F37: transactions are ended, config resources listed, features and log directories answered for."""
    assert "ADMIN TOOLS OK" in run("AdminTools", VERSIONS[-1])


@pytest.mark.timeout(600)
def test_f37_our_list_of_kafkas_apis_is_kafkas_own() -> None:
    command = ["java", "-cp", class_path(VERSIONS[-1]), str(HERE / "java" / "Apis.java")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=400).stdout
    rows = [line.split()[1:] for line in said.splitlines() if line.startswith("API ")]
    assert {int(key): (int(oldest), int(newest)) for key, oldest, newest in rows} == KAFKA_4_3
