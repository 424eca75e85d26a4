"""Spark Connect and what runs on it: source, sink and pipelines through gRPC, and a declarative pipeline (S5)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("java"), pytest.mark.timeout(900)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_declarative"


def _run(command: list[str], **environment: str) -> str:
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=environment.pop("cwd", None),
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-3000:]
    return ran.stdout


def test_source_sink_and_pipelines_through_spark_connect(
    broker: BrokerProcess, client: SyncClient, topic: str, publish: Any, ends: Any, tmp_path: Path
) -> None:
    publish(topic, range(2000))
    target = f"{topic}-connect"
    client.create_topic(target, 2)
    job = str(Path(__file__).parent / "connect_job.py")
    out = _run([sys.executable, job, broker.bootstrap, topic, target, str(tmp_path)])
    assert json.loads(out.splitlines()[-1]) == {
        "session": "pyspark.sql.connect.session",
        "rows": 2000,
        "filtered": 10,
        "archived": 2000,
        "transformed": 2000,
    }
    assert 1000 <= sum(ends(target).values()) < 1010  # and the markers of transactions


def test_a_declarative_pipeline(
    broker: BrokerProcess, client: SyncClient, topic: str, publish: Any, ends: Any, tmp_path: Path
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
    command = Path(sys.executable).parent / "spark-pipelines"
    _run(
        [str(command), "run", "--remote", "local[2]", "--conf", "spark.ui.enabled=false"],
        cwd=str(tmp_path), ORDERS_BOOTSTRAP=broker.bootstrap, ORDERS_TOPIC=topic, ORDERS_COPY=copy,
    )  # fmt: skip
    assert sum(ends(copy).values()) >= 500
