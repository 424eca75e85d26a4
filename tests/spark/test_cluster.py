"""Beyond one process: a real standalone cluster (master and two workers from pip-installed PySpark), the CLI, spark-submit."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.pipelines.archive_log import ArchiveLog
from headrace.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("java"), pytest.mark.timeout(900)]

DRIVER = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1")


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


@pytest.fixture(scope="module")
def master(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """spark://… of a master with two workers of one core each."""
    work = tmp_path_factory.mktemp("cluster")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = [str(_spark_home() / "bin" / "spark-class")]
    url = f"spark://127.0.0.1:{port}"
    processes: list[subprocess.Popen[bytes]] = []
    log = (work / "log").open("wb")

    def start(*arguments: str) -> None:
        processes.append(
            subprocess.Popen([*base, *arguments], stdout=log, stderr=log, env=_environment(), cwd=work)
        )

    try:
        start(
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            "0",
        )
        for number in (1, 2):
            start(
                "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
                "--webui-port", "0", "--work-dir", str(work / f"worker-{number}"), url,
            )  # fmt: skip
        deadline = time.monotonic() + 240
        while (work / "log").read_bytes().count(b"Successfully registered with master") < 2:
            assert time.monotonic() < deadline, (work / "log").read_text()[-2000:]
            assert all(process.poll() is None for process in processes)
            time.sleep(0.1)
        yield url
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        log.close()


def _headrace(*arguments: str) -> Any:
    ran = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments, "--json"],
        capture_output=True, text=True, timeout=400, check=False, env=_environment(),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)


def test_a_pipeline_on_a_cluster_by_the_cli(
    master: str, broker: BrokerProcess, topic: str, publish: Any, tmp_path: Path
) -> None:
    publish(topic, range(2000))
    boot = ("--bootstrap", broker.bootstrap)
    file = tmp_path / "a.toml"
    _headrace("pipeline", "init", "archive", f"cli-{topic}", "--file", str(file), *boot)
    text = file.read_text().replace('topics = ["orders"]', f'topics = ["{topic}"]')
    file.write_text(text.replace("archive/orders", str(tmp_path / "archive")))
    assert _headrace("pipeline", "validate", str(file))["valid"]
    memory = ("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1")
    ran = _headrace("pipeline", "run", str(file), "--once", "--master", master, *memory, *DRIVER, *boot)
    assert (ran["records"], ran["state"], ran["lag"]) == (2000, "finished", 0)
    assert ArchiveLog(tmp_path / "archive").read().rows() == 2000
    listed = {row["name"]: row for row in _headrace("pipeline", "list", *boot)["items"]}
    assert listed[f"cli-{topic}"]["master"] == master
    assert _headrace("pipeline", "status", f"cli-{topic}", *boot)["topics"] == [topic]


def test_spark_submit_streams_on_a_cluster(
    master: str, broker: BrokerProcess, client: Any, topic: str, publish: Any, ends: Any, tmp_path: Path
) -> None:
    """The package is installed where executors run, so nothing is shipped (trap 10)."""
    publish(topic, range(1000))
    target = f"{topic}-submitted"
    client.create_topic(target, 2)
    app = Path(__file__).parents[2] / "examples" / "spark_submit.py"
    submit = _spark_home() / "bin" / "spark-submit"
    ran = subprocess.run(
        [str(submit), "--master", master, "--conf", "spark.executor.memory=512m", *DRIVER, str(app),
         broker.bootstrap, topic, target, str(tmp_path / "checkpoint")],
        capture_output=True, text=True, timeout=400, check=False, env=_environment(),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert sum(ends(target).values()) >= 1000


def test_java_missing_is_said_in_words(tmp_path: Path) -> None:
    from headrace.spark.session import SparkMissing, require_spark

    saved = {name: os.environ.pop(name, None) for name in ("PATH", "JAVA_HOME")}
    try:
        os.environ["PATH"] = str(tmp_path)
        with pytest.raises(SparkMissing, match="openjdk-17-jre-headless"):
            require_spark()
    finally:
        os.environ.update({name: value for name, value in saved.items() if value is not None})
    assert shutil.which("java")
