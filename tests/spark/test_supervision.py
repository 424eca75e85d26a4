"""A pipeline that nobody watches (F65): it outlives its broker, is heard of during a long round, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.connection import ClusterAccess
from headrace.spark.pipelines import run as run_module
from headrace.spark.pipelines.board import PipelineBoard
from headrace.spark.pipelines.definition import parse
from headrace.spark.pipelines.restarts import FAILING_AFTER, HEALTHY_SECONDS, LONGEST_SECONDS, Restarts
from headrace.spark.pipelines.rounds import Round
from headrace.spark.pipelines.run import run
from headrace.spark.sync_client import SyncClient, pause
from headrace.testing.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parent))


def until(condition: Callable[[], Any], worker: threading.Thread | None = None) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline and (worker is None or worker.is_alive())
        pause(0.2)


def test_f65_tries_are_further_and_further_apart() -> None:
    restarts = Restarts()
    restarts.begin(0.0)
    delays = [restarts.failed(float(number), 1.0) for number in range(20)]
    assert delays[:4] == [1, 2, 4, 8] and delays[-1] == LONGEST_SECONDS and restarts.state == "failing"
    restarts.begin(1000.0)
    assert restarts.failed(1000.0 + HEALTHY_SECONDS, 0.0) == 0.5 and restarts.state == "backing-off"
    assert restarts.attempts == 1 < FAILING_AFTER


@pytest.fixture
def own_broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as broker:
        yield broker


def _publish(broker: BrokerProcess, topic: str, numbers: range) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number))
    assert producer.flush(240) == 0


def test_f65_a_broker_that_is_away_ends_no_pipeline(own_broker: BrokerProcess, tmp_path: Path) -> None:
    """Without a JVM: a round over a topic that has nothing new asks Spark for nothing."""
    definition = parse(
        f'kind="archive"\nname="a"\ntopics=["orders"]\npath="{tmp_path}/archive"\nevery="1s"',
        overrides={"bootstrap": own_broker.bootstrap, "state": str(tmp_path / "state")},
    )
    with SyncClient(ClusterAccess(own_broker.bootstrap)) as client:
        client.create_topic("orders", 1)
    told: list[str] = []
    ended: list[dict[str, Any]] = []
    no_session: Any = object()
    worker = threading.Thread(
        target=lambda: ended.append(run(definition, spark=no_session, tell=told.append)), daemon=True
    )
    worker.start()
    _until_running(own_broker, worker)
    own_broker.kill()
    until(lambda: told, worker)
    own_broker.start()
    _until_running(own_broker, worker)
    with SyncClient(ClusterAccess(own_broker.bootstrap)) as client:
        board = PipelineBoard(client)
        board.ask_to_stop("a", board.pipelines(0)["a"]["run"])
        worker.join(300)
        assert not worker.is_alive()
        entry = board.pipelines(0)["a"]
    assert (entry["state"], ended[0]["state"]) == ("stopped", "stopped")
    assert entry["restarts"] >= 1 and "failed and is tried again" in told[0]


def _until_running(broker: BrokerProcess, worker: threading.Thread) -> None:
    """The board says so after the broker has come up, so it is no old news."""
    since_ms = int(time.time() * 1000)
    with SyncClient(ClusterAccess(broker.bootstrap)) as client:
        board = PipelineBoard(client)

        def look() -> bool:
            entry = board.pipelines(0).get("a", {})
            return entry.get("state") == "running" and entry["updated_ms"] >= since_ms

        until(look, worker)


def test_f65_a_term_signal_posts_stopped_and_leaves_no_java(
    java: None, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    from applications import processes_of

    with SyncClient(ClusterAccess(own_broker.bootstrap)) as client:
        client.create_topic("orders", 1)
        file = tmp_path / "a.toml"
        file.write_text(
            f'kind="archive"\nname="a"\nbootstrap="{own_broker.bootstrap}"\ntopics=["orders"]\npath="archive"\nevery="1s"\n'
            '[spark]\nmaster="local[1]"\n'
        )
        _publish(own_broker, "orders", range(10))
        child = subprocess.Popen(
            [sys.executable, "-m", "headrace", "pipeline", "run", str(file)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            board = PipelineBoard(client)
            until(lambda: board.pipelines(0).get("a", {}).get("records") == 10)
            child.send_signal(signal.SIGTERM)
            child.wait(300)
            until(lambda: board.pipelines(0)["a"]["state"] == "stopped")
            until(lambda: not processes_of(child.pid))
        finally:
            if child.poll() is None or processes_of(child.pid):
                os.killpg(child.pid, signal.SIGKILL)


class _Round:
    """A pipeline whose round takes until it is told to end, or is interrupted."""

    facts: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self.rounds = 0

    def round(self) -> Round:
        self._work()
        self.rounds += 1
        return Round(records=1, lag=5)

    def upkeep(self) -> int:
        return 0

    def close(self) -> None:
        pass


@pytest.mark.parametrize("ends_well", [True, False])
def test_t17_a_term_signal_lets_the_round_end_or_drops_it_and_says_which(
    own_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_well: bool
) -> None:
    """Without a JVM. A signal comes in the middle of a round: it is finished when it can be, else interrupted."""
    definition = parse(
        'kind="archive"\nname="a"\ntopics=["orders"]\npath="x"', overrides={"bootstrap": own_broker.bootstrap}
    )
    interrupted = threading.Event()

    class Session:
        def interruptAll(self) -> None:
            interrupted.set()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        if not ends_well:
            assert interrupted.wait(300)
            raise RuntimeError("cancelled")

    slow = _Round(work)
    monkeypatch.setattr(run_module, "_in_rounds", lambda *_: slow)
    if not ends_well:
        monkeypatch.setattr(run_module, "FINISH_SECONDS", 0.2)
        monkeypatch.setattr(run_module, "DROP_SECONDS", 300.0)
    session: Any = Session()
    entry = run(definition, spark=session)
    assert (entry["state"], slow.rounds, interrupted.is_set()) == ("stopped", int(ends_well), not ends_well)
    assert entry["last_round"] == ("finished" if ends_well else "dropped")
    with SyncClient(ClusterAccess(own_broker.bootstrap)) as client:
        posted = PipelineBoard(client).pipelines(0)["a"]
    assert (posted["state"], posted["last_round"]) == ("stopped", entry["last_round"])
