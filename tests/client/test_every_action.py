"""F32: the boto3 of 2023, which speaks the Query protocol, and the newest, through every action they know."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

WANTED = "boto3==1.26.165"


@pytest.fixture(scope="session")
def old_boto3() -> Path:
    """A folder with it and what it needs, from PyPI. Workers take turns at installing."""
    cache = Path(__file__).parents[2] / ".venv" / "old-boto3"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed = cache / ".installed"
        if not installed.exists() or installed.read_text() != WANTED:
            shutil.rmtree(cache / "packages", ignore_errors=True)
            uv = Path(sys.executable).with_name("uv")
            command = [
                str(uv),
                "pip",
                "install",
                "-q",
                "--python",
                sys.executable,
                "--target",
                str(cache / "packages"),
            ]
            subprocess.run([*command, WANTED], check=True, timeout=300)
            installed.write_text(WANTED)
    return cache / "packages"


def test_f32_every_action_with_boto3_1_26(broker: BrokerProcess, old_boto3: Path) -> None:
    told = every_action(broker, "query", {"PYTHONPATH": str(old_boto3)})
    assert told["boto3"] == "1.26.165" and len(told["actions"]) == 23, told


def test_every_action_with_the_newest_boto3(broker: BrokerProcess) -> None:
    told = every_action(broker, "json", {})
    assert told["boto3"] == boto3.__version__ and len(told["actions"]) == 23, told


def every_action(broker: BrokerProcess, protocol: str, environment: dict[str, str]) -> dict[str, Any]:
    command: list[str | Path] = [
        sys.executable,
        Path(__file__).with_name("every_action.py"),
        broker.url,
        protocol,
    ]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
