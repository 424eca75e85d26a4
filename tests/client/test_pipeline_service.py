"""Pipelines as a service (F65, F70; decision 0053), through the doors and without Spark: real brokers, real supervisors, real processes.

On a machine that stalls for longer than a lease there are more runs than a test has asked for: nothing here counts them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli.main import main
from headrace.core.errors import HeadraceError
from headrace.core.pipelines import Hold, Run, encode, lease_key
from headrace.spark.connection import ClusterAccess
from headrace.spark.pipelines.board import PipelineBoard
from headrace.spark.pipelines.definition import DefinitionError, parse
from headrace.spark.service import orders
from headrace.spark.service.store import Conflict, Store, is_fenced
from headrace.spark.service.supervisor import lease_id
from headrace.spark.sync_client import SyncClient, pause
from headrace.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.client, pytest.mark.timeout(400)]
HERE = Path(__file__).parent


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 300
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline
        pause(0.1)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """Of this module: its supervisors take whatever is submitted."""
    with BrokerProcess() as running:
        yield running


@pytest.fixture
def store(broker: BrokerProcess) -> Iterator[Store]:
    with SyncClient(ClusterAccess(broker.bootstrap)) as client:
        yield Store(client)


class Command:
    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def __call__(self, *words: str, code: int = 0) -> Any:
        ran = CliRunner().invoke(
            main, ["pipeline", *words, "--json", "-b", self._broker.bootstrap], prog_name="headrace"
        )
        assert ran.exit_code == code, ran.output
        return json.loads(ran.stdout if code == 0 else ran.stderr)

    def text(self, *words: str) -> str:
        ran = CliRunner().invoke(
            main, ["pipeline", *words, "-b", self._broker.bootstrap], prog_name="headrace"
        )
        assert ran.exit_code == 0, ran.output
        return ran.stdout


@pytest.fixture
def command(broker: BrokerProcess) -> Command:
    return Command(broker)


@pytest.fixture
def name(topic: str) -> str:
    return f"{topic.partition('-')[0]}-orders"


@pytest.fixture
def definition(tmp_path: Path, name: str) -> Path:
    file = tmp_path / "p.toml"
    file.write_text(f'kind = "archive"\nname = "{name}"\ntopics = ["orders"]\npath = "a"\nstate = "state"\n')
    return file


@pytest.fixture
def supervise(broker: BrokerProcess, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(bootstrap: str = "") -> subprocess.Popen[bytes]:
        words = [
            sys.executable, str(HERE / "supervisor_process.py"), bootstrap or broker.bootstrap, str(tmp_path / "work"),
        ]  # fmt: skip
        with (tmp_path / f"supervisor-{len(started)}.log").open("wb") as log:
            started.append(subprocess.Popen(words, stdout=log, stderr=log))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def outcomes(runs: list[Any]) -> list[tuple[str, str]]:
    return [(run["outcome"], run["reason"]) for run in runs]


def running(command: Command, name: str, number: int = 1) -> Any:
    def look() -> Any:
        row = command("status", name)
        return row if row["state"] == "running" and row["run_number"] >= number else None

    return until(look)


def test_f65_definitions_are_kept_in_versions(command: Command, definition: Path, name: str) -> None:
    """submit, list, status, stop, restart, history, remove, with nobody to run it."""
    assert command("submit", str(definition))["version"] == 1
    definition.write_text(definition.read_text() + 'every = "1m"\n')
    row = command("submit", str(definition))
    assert row["version"] == 2 and row["state_dir"] == str(definition.parent / "state")
    row = command("status", name)
    assert (row["state"], row["version"], row["submitted"], row["kind"]) == ("submitted", 2, True, "archive")
    assert name in [one["name"] for one in command("list")["items"]]
    assert all(len(line) <= 80 for line in command.text("list").splitlines())
    assert 'every = "1m"' not in command("export", name, "--version", "1")["toml"]
    assert command.text("export", name) == definition.read_text()
    assert command("rollback", name, "--version", "1")["version"] == 3
    assert 'every = "1m"' not in command("export", name)["toml"]
    assert "kept are 1, 2, 3" in command("rollback", name, "--version", "9", code=3)["hint"]
    assert command("stop", name, "--wait")["state"] == "stopped"
    assert command("status", name)["state"] == "stopped"
    assert command("restart", name)["state"] == "asked" and command("status", name)["state"] == "submitted"
    assert command("history", name)["items"] == [] and command("checkpoint", name)["items"] == []
    assert "has not run yet" in command("logs", name, code=3)["detail"]
    assert command("remove", name, "--dry-run")["status"] == "would remove"
    assert command("remove", name, "--yes")["status"] == "removed"
    missing = command("status", name, code=3)
    assert "no pipeline" in missing["detail"] and missing["hint"]


def test_f66_f70_submit_refuses_what_is_wrong_or_secret(
    command: Command, definition: Path, name: str
) -> None:
    sound = definition.read_text()
    for more, word in (
        ('cron = "every day"\n', "cron"),
        ('every = "banana"\n', "every"),
        ('[spark.settings]\n"spark.hadoop.fs.s3a.secret.key" = "x"\n', "spark.hadoop.fs.s3a.secret.key"),
        ('[login]\nuser = "me"\n', "password_file"),
        ('[login]\npassword = "x"\n', "password"),
    ):
        definition.write_text(sound + more)
        said = command("submit", str(definition), code=2)
        assert said["code"] == "INVALID_DEFINITION" and word in said["detail"], said
    definition.write_text(sound + '[login]\nuser = "me"\npassword_file = "secret.txt"\n')
    assert command("submit", str(definition))["version"] == 1
    with pytest.raises(DefinitionError, match=r"catalog\.uri"):
        text = 'kind="table"\nname="t"\ntopic="t"\nwarehouse="s3://b/w"\n[catalog]\nuri="postgresql://u:pw@host/db"\n'
        orders.stored(parse(text))
    command("remove", name, "--yes")


def test_f65_whoever_is_given_up_can_not_write(broker: BrokerProcess, store: Store, name: str) -> None:
    """The fence is the broker's: the epoch of a transactional id."""
    with SyncClient(ClusterAccess(broker.bootstrap)) as other_client:
        other = Store(other_client)
        mine = store.change(lease_id(name), lambda: [(lease_key(name), encode(Hold(holder="a", beat=1)))])
        store.again(lease_id(name), mine, [(lease_key(name), encode(Hold(holder="a", beat=2)))])

        def claim() -> list[tuple[str, bytes | None]]:
            found = other.hold(name)
            assert found is not None and (found.holder, found.beat) == ("a", 2), (
                "a claim reads all that was written"
            )
            return [(lease_key(name), encode(Hold(holder="b", beat=3)))]

        other.change(lease_id(name), claim)
        with pytest.raises(HeadraceError) as refused:
            store.again(lease_id(name), mine, [(lease_key(name), encode(Hold(holder="a", beat=4)))])
        assert is_fenced(refused.value), refused.value

        def too_late() -> list[tuple[str, bytes | None]]:
            raise Conflict

        with pytest.raises(Conflict):
            store.change(lease_id(name), too_late)
        other.follow()
        store.follow()
        assert store.hold(name) == other.hold(name) == Hold(holder="b", beat=3)


def test_f65_a_run_that_is_killed_is_started_again(
    command: Command, definition: Path, name: str, supervise: Callable[..., Any]
) -> None:
    supervise()
    command("submit", str(definition))
    first = running(command, name)
    assert first["records"] == 42 and first["lag"] == 1 and is_alive(first["pid"])
    os.kill(first["pid"], signal.SIGKILL)
    second = running(command, name, 2)
    assert second["pid"] != first["pid"] and second["restarts"] >= 1
    (definition.parent / "state" / "end").write_text("1 it broke\n" + "x" * 3000)
    running(command, name, 3)
    runs = command("history", name)["items"]
    assert runs[0]["outcome"] == "running"
    assert ("failed", "ended by signal 9") in outcomes(runs)
    broken = next(run for run in runs if run["error"].startswith("it broke"))
    assert len(broken["error"]) > 3000 and broken["reason"] == "exit code 1"
    until(lambda: command.text("logs", name) == f"run of {name}\n")
    assert command.text("logs", name, "--run", "1") == f"run of {name}\n"
    # A new version takes over, and stopping it is final.
    definition.write_text(definition.read_text() + 'every = "1m"\n')
    command("submit", str(definition))
    until(lambda: command("history", name)["items"][0]["version"] == 2)
    row = running(command, name, 4)
    assert "pipeline stop" in command("remove", name, "--yes", code=6)["hint"]
    assert command("stop", name, "--wait")["state"] == "stopped"
    assert not is_alive(row["pid"])
    command("remove", name, "--yes")


def test_f65_a_pipeline_that_fails_for_good_says_why(
    command: Command, definition: Path, name: str, supervise: Callable[..., Any]
) -> None:
    """Its state is not where it was: it must not begin from the beginning (exactly once would be twice)."""
    supervise()
    command("submit", str(definition))
    row = running(command, name)
    mark = definition.parent / "state" / ".headrace-pipeline.json"
    until(lambda: command("status", name)["updated"] > row["updated"])
    mark.unlink()
    os.kill(row["pid"], signal.SIGKILL)
    row = until(
        lambda: (one := command("status", name))["error"].startswith(f"{name} has run before") and one
    )
    assert "--forget" in row["error"]
    command("stop", name, "--wait")
    command("checkpoint", name, "--forget", "--yes")
    command("restart", name)
    row = running(command, name, row["run_number"] + 1)
    command("stop", name, "--wait")
    command("remove", name, "--yes")


def test_f65_a_supervisor_that_ends_hands_over(
    command: Command, definition: Path, name: str, supervise: Callable[..., Any]
) -> None:
    first = supervise()
    command("submit", str(definition))
    row = running(command, name)
    supervise()
    first.terminate()
    assert first.wait(120) == 0 and not is_alive(row["pid"])
    running(command, name, 2)
    runs = command("history", name)["items"]
    assert runs[0]["outcome"] == "running" and ("stopped", "its supervisor was stopped") in outcomes(runs)
    command("stop", name, "--wait")
    command("remove", name, "--yes")


def test_f65_a_supervisor_that_is_killed_takes_its_run_with_it(
    command: Command, definition: Path, name: str, supervise: Callable[..., Any]
) -> None:
    """And the other one waits for the lease."""
    first = supervise()
    command("submit", str(definition))
    row = running(command, name)
    supervise()
    first.kill()
    first.wait()
    until(lambda: not is_alive(row["pid"]))
    running(command, name, 2)
    runs = command("history", name)["items"]
    assert runs[0]["outcome"] == "running" and {run["outcome"] for run in runs[1:]} == {"lost"}
    command("stop", name, "--wait")
    command("remove", name, "--yes")


def test_f65_a_supervisor_that_sleeps_has_no_run(
    command: Command, definition: Path, name: str, supervise: Callable[..., Any]
) -> None:
    """SIGSTOP: it can't see that its lease is over. Its run sees it, before another supervisor begins."""
    first = supervise()
    command("submit", str(definition))
    row = running(command, name)
    supervise()
    first.send_signal(signal.SIGSTOP)
    try:
        second = running(command, name, 2)
        assert not is_alive(row["pid"]) and second["pid"] != row["pid"]
    finally:
        first.send_signal(signal.SIGCONT)
    first.terminate()
    assert first.wait(120) == 0
    assert running(command, name, 2)["host"]
    command("stop", name, "--wait")
    command("remove", name, "--yes")


def test_f65_a_broker_that_is_away_ends_no_supervision(
    fresh_broker: Callable[..., BrokerProcess], definition: Path, name: str, supervise: Callable[..., Any]
) -> None:
    """Longer than the lease: the run ends, because somebody else could have it now, and comes back with the broker."""
    own = fresh_broker()
    command = Command(own)
    supervisor = supervise(own.bootstrap)
    command("submit", str(definition))
    row = running(command, name)
    own.kill()
    until(lambda: not is_alive(row["pid"]))
    own.start()
    running(command, name, 2)
    runs = command("history", name)["items"]
    assert runs[0]["outcome"] == "running" and "lease" in runs[1]["reason"]
    assert {run["outcome"] for run in runs[1:]} == {"lost"}
    supervisor.terminate()
    assert supervisor.wait(120) == 0
    assert command("status", name)["state"] == "waiting"


def test_f65_history_is_bounded(store: Store, name: str) -> None:
    from headrace.core.pipelines import KEPT_RUNS, run_key

    store.change(
        lease_id(name), lambda: [(run_key(name, n), encode(Run(number=n))) for n in range(KEPT_RUNS + 50)]
    )
    store.follow()
    assert [run.number for run in store.runs(name)] == list(range(KEPT_RUNS + 49, 49, -1))


# -- over HTTP -------------------------------------------------------------------------------------------------------------


def ask(broker: BrokerProcess, method: str, path: str, status: int = 200) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=60)
    connection.request(method, path, headers={"x-headrace-client": "test"})
    response = connection.getresponse()
    raw = response.read()
    connection.close()
    assert response.status == status, raw
    return json.loads(raw)


def test_a_broker_shows_stops_and_restarts_what_supervisors_run(
    broker: BrokerProcess, command: Command, definition: Path, name: str, supervise: Callable[..., Any]
) -> None:
    """The same numbers at both doors, and the same orders: one that was given over HTTP is one for the supervisor."""
    assert ask(broker, "GET", f"/api/v1/pipelines/{name}", 404)["code"] == "NOT_FOUND"
    command("submit", str(definition))
    # A commit is answered before its marker stands in the log.
    (row,) = until(
        lambda: [one for one in ask(broker, "GET", "/api/v1/pipelines")["items"] if one["name"] == name]
    )
    assert (row["state"], row["submitted"], row["version"], row["topics"]) == (
        "submitted",
        True,
        1,
        ["orders"],
    )
    supervise()
    running(command, name)
    until(lambda: ask(broker, "GET", f"/api/v1/pipelines/{name}")["state"] == "running")
    one = ask(broker, "GET", f"/api/v1/pipelines/{name}")
    assert one["toml"] == definition.read_text() and [row["version"] for row in one["versions"]] == [1]
    assert one["host"] and one["log"] and one["run"] >= 1
    assert ask(broker, "POST", f"/api/v1/pipelines/{name}/stop", 202) == {"name": name, "state": "asked"}
    until(lambda: command("status", name)["state"] == "stopped")
    runs = ask(broker, "GET", f"/api/v1/pipelines/{name}/runs")["items"]
    assert runs[0]["outcome"] == "stopped" and runs[0]["ended_ms"] >= runs[0]["started_ms"]
    before = one["run"]
    ask(broker, "POST", f"/api/v1/pipelines/{name}/restart", 202)
    until(lambda: ask(broker, "GET", f"/api/v1/pipelines/{name}")["run"] > before)


def test_what_a_run_by_hand_tells_is_shown_and_it_hears_that_it_should_stop(
    broker: BrokerProcess, name: str
) -> None:
    """What is on the board was written by a client, so the strangest entry is still only an entry."""
    wall_ms = int(time.time() * 1000)
    batch = {"id": 4, "at_ms": wall_ms, "rows": 10, "total_ms": 120, "parts_ms": {"addBatch": 90, "x": "no"}}
    with SyncClient(ClusterAccess(broker.bootstrap)) as client:
        board = PipelineBoard(client)
        board.post(
            name,
            {
                "kind": "transform",
                "state": "running",
                "run": "r1",
                "updated_ms": wall_ms,
                "batches": [batch, 7],
            },
        )
        board.post(
            f"{name}-odd", {"state": ["x"], "updated_ms": "soon", "topics": {}, "lag": "many", "batches": 1}
        )
        row = ask(broker, "GET", f"/api/v1/pipelines/{name}")
        assert row["state"] == "running" and not row["submitted"]
        assert [(one["rows"], one["parts_ms"]) for one in row["batches"]] == [(10, {"addBatch": 90})]
        odd = ask(broker, "GET", f"/api/v1/pipelines/{name}-odd")
        assert (odd["state"], odd["lag"], odd["topics"]) == ("", None, [])
        assert ask(broker, "POST", f"/api/v1/pipelines/{name}/restart", 409)["code"] == "CONFLICT"
        assert not board.is_asked_to_stop(name, "r1")
        ask(broker, "POST", f"/api/v1/pipelines/{name}/stop", 202)
        assert board.is_asked_to_stop(name, "r1")


def test_f65_a_broker_starts_the_supervisor_beside_it_again(tmp_path: Path) -> None:
    """`serve --pipelines`: a supervisor that dies is not the end of pipelines, and it ends with the broker."""

    def supervisor(broker: BrokerProcess) -> int:
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    parent = int(Path(entry.path, "stat").read_text().rpartition(")")[2].split()[1])
                    words = Path(entry.path, "cmdline").read_bytes()
                except OSError:
                    continue
                if parent == broker.pid and b"supervise" in words:
                    return int(entry.name)
        return 0

    with BrokerProcess(arguments=("--pipelines",)) as broker:
        first = until(lambda: supervisor(broker))
        os.kill(first, signal.SIGKILL)
        second = until(lambda: (found := supervisor(broker)) != first and found)
        assert is_alive(second)
    until(lambda: not is_alive(second))
