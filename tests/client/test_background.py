"""A broker in the background: start waits until it is ready, stop ends in order, status tells the truth, also of one that is gone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from printed import as_promised

from headrace.cli.processes import born
from headrace.testing import BrokerProcess, eventually

pytestmark = pytest.mark.client

Cli = Callable[..., subprocess.CompletedProcess[str]]
FREE = ("--kafka-port", "0", "--http-port", "0")


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """The command of somebody with an empty home; what was started there ends with the test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "XDG_"))}
    pids: list[int] = []

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        patience = ("--wait", "200s") if arguments[0] in ("start", "stop") else ()
        command = [sys.executable, "-m", "headrace", *arguments, *patience]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=240,
            env={**kept, "HOME": str(tmp_path)},
            cwd=tmp_path,
        )
        if arguments[0] == "start" and done.returncode == 0:
            pids.append(json.loads(done.stdout)["pid"])
        return done

    yield run
    for pid in pids:
        if born(pid) is not None:
            os.kill(pid, signal.SIGKILL)


def told(done: subprocess.CompletedProcess[str], exit_code: int = 0) -> dict[str, Any]:
    assert done.returncode == exit_code, done.stdout + done.stderr
    found: dict[str, Any] = as_promised(done.stdout)
    return found


def test_from_start_to_stop(cli: Cli, tmp_path: Path) -> None:
    assert told(cli("status", "--json"), 3)["status"] == "not running"
    started = told(cli("start", *FREE, "--json"))
    assert not started["already_running"] and born(started["pid"]) is not None
    # It is ready now, and found without an address.
    assert cli("topic", "create", "orders").returncode == 0
    status = told(cli("status", "--json"))
    assert (status["status"], status["pid"], status["kafka"]) == ("ready", started["pid"], started["kafka"])
    again = told(cli("start", *FREE, "--json"))
    assert again["already_running"] and again["pid"] == started["pid"]
    assert told(cli("stop", "--json")) == {"schema": "headrace.stop/v1", "status": "stopped", "pid": started["pid"]}  # fmt: skip
    assert born(started["pid"]) is None
    assert (Path(started["data_dir"]) / "clean-shutdown").exists()
    assert told(cli("status", "--json"), 3)["status"] == "not running"
    assert told(cli("stop", "--json"))["status"] == "not running"
    assert Path(started["log"]).stat().st_mode & 0o777 == 0o600


def test_one_that_is_gone_is_not_taken_for_another_process(cli: Cli, tmp_path: Path) -> None:
    started = told(cli("start", *FREE, "--json"))
    os.kill(started["pid"], signal.SIGKILL)
    eventually(lambda: born(started["pid"]) is None, within=60)
    status = told(cli("status", "--json"), 3)
    assert status["status"] == "ended" and str(started["pid"]) in status["detail"]
    # Its number is given to somebody else: to this very process, which nobody shall stop.
    record = Path(f"{started['data_dir']}.server.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "pid": os.getpid()}))
    assert told(cli("status", "--json"), 3)["status"] == "ended"
    assert told(cli("stop", "--json"))["status"] == "not running"
    anew = told(cli("start", *FREE, "--json"))
    assert not anew["already_running"]
    assert told(cli("stop", "--json"))["status"] == "stopped"


def test_one_that_runs_in_the_foreground_is_somebody_elses(cli: Cli, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with BrokerProcess(directory) as broker:
        status = told(cli("status", "--data-dir", str(directory), "--json"))
        assert (status["status"], status["pid"]) == ("foreground", broker.pid)
        for verb in ("start", "stop"):
            refused = cli(verb, "--data-dir", str(directory))
            assert refused.returncode == 6
            assert f"process {broker.pid}" in refused.stderr
        assert born(broker.pid) is not None


def test_a_start_that_fails_says_why(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        failed = cli("start", "--kafka-port", port, "--http-port", "0")
    assert failed.returncode == 4
    assert f"port {port} is in use" in failed.stderr and "Traceback" not in failed.stderr
    assert told(cli("status", "--json"), 3)["status"] == "not running"


def test_a_secured_one_is_looked_at_with_its_own_authority(cli: Cli) -> None:
    told(cli("start", "--secure", *FREE, "--json"))
    assert told(cli("status", "--json"))["status"] == "ready"
    assert cli("queue", "create", "jobs").returncode == 0
    assert told(cli("stop", "--json"))["status"] == "stopped"
