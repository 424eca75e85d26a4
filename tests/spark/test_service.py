"""Pipelines as a service with Spark itself (F65, decision 0053): submitted, supervised, killed, taken over; every row once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from headrace.cli.main import main
from headrace.spark.connection import ClusterAccess
from headrace.spark.iceberg.tables import open_catalog
from headrace.spark.sync_client import SyncClient, pause
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def own_broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as broker:
        yield broker


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 300
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline
        pause(0.3)


class Service:
    def __init__(self, broker: BrokerProcess, directory: Path) -> None:
        self._broker = broker
        self._directory = directory
        self.supervisors: list[subprocess.Popen[bytes]] = []
        self._producer = Producer({"bootstrap.servers": broker.bootstrap})

    def command(self, *words: str) -> Any:
        ran = CliRunner().invoke(
            main, ["pipeline", *words, "--json", "-b", self._broker.bootstrap], prog_name="headrace"
        )
        assert ran.exit_code == 0, ran.output
        return json.loads(ran.stdout)

    def running(self, is_so: Callable[[Any], bool]) -> Any:
        def look() -> Any:
            row = self.command("status", "orders")
            return row if row["state"] == "running" and is_so(row) else None

        return until(look)

    def supervise(self) -> subprocess.Popen[bytes]:
        with (self._directory / f"supervisor-{len(self.supervisors)}.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "headrace", "pipeline", "supervise", "-b", self._broker.bootstrap,
                    "--work-dir", str(self._directory / "work"),
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        self.supervisors.append(process)
        return process

    def publish(self, numbers: range) -> None:
        for number in numbers:
            self._producer.produce("orders", str(number), partition=number % 2)
        assert self._producer.flush(240) == 0

    def rows(self) -> Counter[int]:
        """By pyiceberg alone; the table is there once a run has said so."""
        catalog = open_catalog(str(self._directory / "warehouse"), {})
        values = catalog.load_table("topics.orders").scan().to_arrow().column("value").to_pylist()
        return Counter(int(value) for value in values)

    def close(self) -> None:
        for process in self.supervisors:
            if process.poll() is None:
                # Its runs end with it.
                process.kill()
                process.wait()


def group_lives(group: int) -> bool:
    """Is any process of a run left, its JVM above all?"""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                return True
    return False


def test_f65_submitted_supervised_killed_and_taken_over_every_row_once(
    java: None, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    with SyncClient(ClusterAccess(own_broker.bootstrap)) as client:
        client.create_topic("orders", 2)
    file = tmp_path / "orders.toml"
    file.write_text(
        'kind = "table"\nname = "orders"\ntopic = "orders"\nwarehouse = "warehouse"\nvalue_format = "string"\nevery = "1s"\n'
        '[spark]\nmaster = "local[1]"\n[spark.settings]\n"spark.ui.enabled" = "true"\n"spark.ui.port" = "0"\n'
    )
    service = Service(own_broker, tmp_path)
    try:
        service.publish(range(500))
        service.command("submit", str(file))
        first = service.supervise()
        row = service.running(lambda one: one["records"] == 500)
        assert len(service.rows()) == 500
        assert row["ui"].startswith("http://") and row["table"] == "topics.orders" and row["host"]
        # kill -9 of the run, with work under way.
        service.publish(range(500, 1000))
        os.kill(row["pid"], signal.SIGKILL)
        until(lambda: not group_lives(row["pid"]))
        until(lambda: len(service.rows()) == 1000)
        again = service.running(lambda one: one["run_number"] >= 2)
        # SIGTERM of the supervisor: the second takes over.
        service.supervise()
        service.publish(range(1000, 1500))
        first.terminate()
        assert first.wait(240) == 0
        # Killed before it left: what a large process takes to go is the machine's to say.
        until(lambda: not group_lives(again["pid"]))
        until(lambda: len(service.rows()) == 1500)
        assert service.rows() == Counter(range(1500))
        runs = [(run["outcome"], run["reason"]) for run in service.command("history", "orders")["items"]]
        # A machine that stalls for longer than a lease has more of them.
        assert ("failed", "ended by signal 9") in runs and ("stopped", "its supervisor was stopped") in runs
        position = service.command("checkpoint", "orders")["items"]
        assert sum(one["position"] for one in position) == 1500 and {one["lag"] for one in position} == {0}
        assert service.command("stop", "orders", "--wait")["state"] == "stopped"
        service.supervisors[1].terminate()
        assert service.supervisors[1].wait(240) == 0
    finally:
        service.close()
