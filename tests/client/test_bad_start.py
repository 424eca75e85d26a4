"""Starts that must not succeed: each says why, on one line a person can act on, and changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from raw_client import RawClient

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


def serve(*arguments: str, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "headrace", "serve", "--json", *arguments]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}, check=False
    )
    return ran.returncode, ran.stdout + ran.stderr


def snapshot(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def refused(problem: str, *arguments: str, **environment: str) -> str:
    code, text = serve(*arguments, **environment)
    assert code not in (0, 70), f"70 is a bug, 0 a start: {text}"
    assert "Traceback" not in text and problem in text, text
    return text


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        text = refused(port, "--kafka-port", port, "--http-port", "0", "--data-dir", str(tmp_path / "d"))
        assert "in use" in text
        refused(port, "--kafka-port", "0", "--http-port", port, "--data-dir", str(tmp_path / "d"))


def test_a_data_directory_that_is_in_use(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """S27."""
    broker = fresh_broker()
    refused(str(broker.pid), "--kafka-port", "0", "--http-port", "0", "--data-dir", str(broker.data_dir))
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic("still-there")


def test_a_data_directory_of_another_node_or_cluster(
    fresh_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """S27: a mixed-up or copied directory is refused before anything is written to it."""
    first, second = fresh_broker(), fresh_broker()
    with RawClient(first.kafka_port) as raw:
        raw.create_topic("t")
    first.stop()
    second.stop()
    before = snapshot(first.data_dir / "topics")
    ports = ("--kafka-port", "0", "--http-port", "0")
    refused("node 1", *ports, "--data-dir", str(first.data_dir), HEADRACE_NODE_ID="2")
    mixed = tmp_path / "mixed"
    shutil.copytree(first.data_dir, mixed)
    shutil.copy(second.data_dir / "coordinator.db", mixed / "coordinator.db")
    refused("cluster", *ports, "--data-dir", str(mixed))
    assert snapshot(mixed / "topics").keys() == {
        name.replace(str(first.data_dir), str(mixed)) for name in before
    }
    assert snapshot(first.data_dir / "topics") == before
    first.start()
    with RawClient(first.kafka_port) as raw:
        assert raw.fetch("t", 0).error_code == 0


@pytest.mark.parametrize(
    ("arguments", "environment", "problem"),
    [
        (("--kafka-port", "70000"), {}, "kafka_port"),
        ((), {"HEADRACE_NUM_PARTITIONS": "many"}, "num_partitions"),
        ((), {"HEADRACE_FLUSH": "sometimes"}, "flush"),
        (("--host", "0.0.0.0"), {}, "insecure"),
    ],
)
def test_settings_that_make_no_sense(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], problem: str
) -> None:
    """X1 and the settings: all is checked before anything is made."""
    directory = tmp_path / "d"
    refused(problem, *arguments, "--data-dir", str(directory), **environment)
    assert not directory.exists()


def test_a_data_directory_that_can_not_be_written(tmp_path: Path) -> None:
    """A file where the directory should be."""
    (tmp_path / "file").write_text("mine")
    refused("file", "--kafka-port", "0", "--http-port", "0", "--data-dir", str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_damaged_node_file_stops_the_start(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """S12, S13: loud, and nothing is deleted."""
    broker = fresh_broker()
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic("t")
    broker.stop()
    node = broker.data_dir / "node"
    content = node.read_bytes()
    node.write_bytes(content[:-5] + b"XXXXX")
    before = snapshot(broker.data_dir / "topics")
    refused("node", "--kafka-port", "0", "--http-port", "0", "--data-dir", str(broker.data_dir))
    assert snapshot(broker.data_dir / "topics") == before
    node.write_bytes(content)
    broker.start()


def test_the_failure_is_machine_readable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        _, text = serve("--kafka-port", port, "--http-port", "0", "--data-dir", str(tmp_path / "d"))
    report = json.loads(text.strip().splitlines()[-1])
    assert report["detail"] and report["hint"] and report["exit_code"] != 0
