"""Real clients against a real broker process. One broker serves all tests of a worker; each test has its own topics."""

from __future__ import annotations

import fcntl
import itertools
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.testing.broker_process import BrokerProcess

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(environment={"HEADRACE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000"}) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"t{next(_numbers)}-{request.node.originalname[:60]}".replace("_", "-")


@pytest.fixture
def fresh_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Brokers of a test's own, for those that are killed or configured."""
    started: list[BrokerProcess] = []

    def start(**options: object) -> BrokerProcess:
        directory = tmp_path / f"data{len(started)}"
        process = BrokerProcess(directory, **options).start()  # type: ignore[arg-type]
        started.append(process)
        return process

    yield start
    for process in started:
        process.__exit__(None, None, None)


@pytest.fixture(scope="session")
def kafkajs() -> Path:
    """A directory with kafkajs installed from npm and our scripts beside it. Workers take turns at installing."""
    here = Path(__file__).parent / "kafkajs"
    cache = Path(__file__).parents[2] / ".venv" / "kafkajs"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed = cache / ".installed"
        if not installed.exists() or installed.read_text() != (here / "package.json").read_text():
            shutil.rmtree(cache / "node_modules", ignore_errors=True)  # of an install that was cut short
            shutil.copy(here / "package.json", cache)
            command = ["npm", "install", "--no-audit", "--no-fund", "--silent"]
            subprocess.run(command, cwd=cache, check=True, timeout=300)
            shutil.copy(here / "package.json", installed)
        for script in here.glob("*.js"):
            shutil.copy(script, cache)
    return cache
