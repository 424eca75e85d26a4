"""Spark Connect and what runs on it (S5): a server process of pip-installed PySpark, and thin clients.

One server for the module: source, sink and pipelines through gRPC from a process without Java, and a declarative pipeline
(whose command needs Java to start, though not to run).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.session import SETTINGS
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("java"), pytest.mark.timeout(900)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_declarative"


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **more}


@pytest.fixture(scope="module")
def server(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """sc://… of what sbin/start-connect-server.sh starts, with the settings that we ship."""
    import pyspark

    work = tmp_path_factory.mktemp("connect")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        **SETTINGS,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    with (work / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=_environment(), cwd=work)
    try:
        deadline = time.monotonic() + 240
        while not _listens(port):
            assert process.poll() is None and time.monotonic() < deadline, (work / "log").read_text()[-3000:]
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _client(command: list[str], **environment: str) -> str:
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=environment.pop("cwd", None),
        env=_environment(**environment),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-3000:]
    return ran.stdout


def test_source_sink_and_pipelines_through_spark_connect(
    server: str,
    broker: BrokerProcess,
    client: SyncClient,
    topic: str,
    publish: Any,
    ends: Any,
    tmp_path: Path,
) -> None:
    publish(topic, range(2000))
    target = f"{topic}-connect"
    for name in (target, f"{target}-batch", f"{target}-stream"):
        client.create_topic(name, 2)
    job = str(Path(__file__).parent / "connect_job.py")
    arguments = [server, broker.bootstrap, topic, target, str(tmp_path)]
    out = _client([sys.executable, job, *arguments], JAVA_HOME="/nowhere")
    assert json.loads(out.splitlines()[-1]) == {
        "session": "pyspark.sql.connect.session",
        "rows": 2000,
        "filtered": 10,
        "ended": True,
        "archived": 2000,
        "transformed": 2000,
    }
    # And the markers of transactions.
    for name, rows in ((target, 1000), (f"{target}-batch", 500), (f"{target}-stream", 2000)):
        assert rows <= sum(ends(name).values()) < rows + 10, name


def test_a_declarative_pipeline(
    server: str,
    broker: BrokerProcess,
    client: SyncClient,
    topic: str,
    publish: Any,
    ends: Any,
    tmp_path: Path,
) -> None:
    """The example as it stands: a topic as a streaming table, a view over it, a topic that follows it."""
    publish(topic, range(500))
    copy = f"{topic}-copy"
    client.create_topic(copy, 2)
    spec = (EXAMPLE / "spark-pipeline.yml").read_text()
    assert "storage: file:///tmp/headrace-declarative-storage" in spec
    spec = spec.replace("/tmp/headrace-declarative-storage", str(tmp_path / "storage"))
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    (tmp_path / "transformations").symlink_to(EXAMPLE / "transformations")
    command = str(Path(sys.executable).parent / "spark-pipelines")
    _client(
        [command, "run", "--remote", server], cwd=str(tmp_path),
        ORDERS_BOOTSTRAP=broker.bootstrap, ORDERS_TOPIC=topic, ORDERS_COPY=copy,
    )  # fmt: skip
    assert sum(ends(copy).values()) >= 500
