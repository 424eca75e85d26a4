"""Celery on the SQS transport, unchanged: real tasks with retries and ETAs (Q4)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from headrace.testing.broker_process import BrokerProcess

APP = """
    import os, time
    from celery import Celery

    app = Celery("jobs", broker="sqs://key:secret@")
    app.conf.broker_transport_options = {
        "region": "us-east-1", "polling_interval": 0.1, "wait_time_seconds": 1, "visibility_timeout": 30,
        "queue_name_prefix": "celery-",
    }
    app.conf.broker_url = os.environ["BROKER"]
    app.conf.task_default_queue = "work"
    app.conf.worker_enable_remote_control = False
    app.conf.broker_connection_retry_on_startup = True

    def note(text):
        with open(os.environ["OUT"], "a") as file:
            file.write(f"{text} {time.time():.3f}\\n")

    @app.task
    def add(a, b):
        note(f"add {a + b}")

    @app.task(bind=True, max_retries=2, default_retry_delay=0.5)
    def flaky(self):
        note(f"flaky {self.request.retries}")
        if self.request.retries < 2:
            raise self.retry()
"""


@pytest.mark.slow
def test_celery_runs_tasks_with_retries_and_etas(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(textwrap.dedent(APP))
    out = tmp_path / "out.txt"
    out.touch()
    address = f"sqs://key:secret@127.0.0.1:{broker.http_port}"
    environment = {**os.environ, "OUT": str(out), "BROKER": address, "PYTHONPATH": str(tmp_path)}
    log = tmp_path / "worker.log"
    command = [sys.executable, "-m", "celery", "-A", "jobs", "worker", "-P", "solo", "-l", "info",
               "--without-gossip", "--without-mingle", "--without-heartbeat"]  # fmt: skip
    send = textwrap.dedent("""
        import time, jobs
        for i in range(5):
            jobs.add.delay(i, 10)
        jobs.flaky.delay()
        print(time.time())
        jobs.add.apply_async((100, 1), countdown=2)
    """)
    with log.open("w") as output:
        worker = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=output, stderr=output)
        try:
            sent = subprocess.run(
                [sys.executable, "-c", send], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
            )  # fmt: skip
            assert sent.returncode == 0, sent.stderr
            wanted = {*(f"add {i + 10}" for i in range(5)), "flaky 0", "flaky 1", "flaky 2", "add 101"}
            done: dict[str, float] = {}
            deadline = time.monotonic() + 240
            while set(done) != wanted and time.monotonic() < deadline:
                threading.Event().wait(0.1)
                done = {
                    line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                    for line in out.read_text().splitlines()
                }
            assert set(done) == wanted, log.read_text()[-3000:]
            assert done["add 101"] >= float(sent.stdout) + 1.9, "not before its time"
            assert len(out.read_text().splitlines()) == len(wanted), "each of them once"
        finally:
            worker.terminate()
            worker.wait(20)
