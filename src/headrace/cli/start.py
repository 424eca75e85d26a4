"""Command: `headrace start`: `serve` in a session of its own, until `headrace stop`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any, ClassVar

import click

from headrace.cli.background import Server, ServerPlace
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import Duration, Number
from headrace.cli.processes import born
from headrace.cli.profile import settings_failure
from headrace.cli.progress import progress
from headrace.cli.setting_options import flag_words, setting_options
from headrace.node.settings import SettingsError, default_files, load_settings

LOOK_S = 0.02
TAIL_BYTES = 64 * 1024


class StartRow(Row):
    SCHEMA: ClassVar[str] = "headrace.start/v1"
    NAME: ClassVar[str] = "kafka"
    version: str
    kafka: str
    http: str
    console: str | None
    data_dir: str | None
    """Null: in memory."""
    pid: int
    log: str
    already_running: bool


@leaf(StartRow, Shape.ONE)
@click.option(
    "--config", "config_file", type=click.Path(exists=True, dir_okay=False), help="One more settings file."
)
@click.option("--brokers", type=Number(1), help="Start a cluster of so many brokers on this host.  [1]")
@click.option("--wait", "wait_ms", type=Duration(), default="60s", help="Until it is ready.  [60s]")
@setting_options
def command(
    run: Invocation, config_file: str | None, brokers: int | None, wait_ms: int, **flags: Any
) -> None:
    """Start a broker in the background. It takes the flags of serve.

    Returns when clients can use it. What it says goes to a log beside its data directory; `headrace status` tells how it is, `headrace
    stop` ends it. One that runs already is left alone.
    """
    files = default_files() + ([Path(config_file)] if config_file else [])
    try:
        settings = load_settings(flags, os.environ, files).settings
    except SettingsError as error:
        raise settings_failure(error) from None
    place = ServerPlace.of(settings)
    known = place.server()
    if known is not None and known.is_running:
        _tell(run, known, already=True)
        return
    other = None if settings.ephemeral else place.other()
    if other is not None:
        raise Failure(
            Exit.CONFLICT,
            f"a broker that was not started in the background uses {place.directory} (process {other})",
            "stop that one where it runs, or choose another directory with --data-dir",
            code="ALREADY_SERVING",
        )
    words = flag_words({"config": config_file, "brokers": brokers, **flags})
    verbose = ["-" + "v" * run.verbosity] if run.verbosity else []
    with progress(run, "Starting", None):
        server = _start(
            place, [sys.executable, "-m", "headrace", "serve", "--json", *words, *verbose], wait_ms
        )
    place.write(server)
    _tell(run, server, already=False)


def _start(place: ServerPlace, command: list[str], wait_ms: int) -> Server:
    place.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    said = place.log.with_name(f".{place.log.name}.{os.getpid()}")
    log = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        begins = os.fstat(log).st_size
        with said.open("w+b") as answer:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=answer, stderr=log, start_new_session=True
            )
            ready = _wait(process, answer, wait_ms / 1000)
    finally:
        os.close(log)
        said.unlink(missing_ok=True)
    if ready is None and process.poll() is None:
        raise Failure(
            Exit.TIMEOUT,
            f"process {process.pid} runs, and is not ready after {wait_ms // 1000} s",
            f"--wait 5m waits longer; it writes to {place.log}; end it with:  kill {process.pid}",
        )
    if ready is None:
        raise _ended(place, begins, process.returncode)
    return _server(place, process.pid, ready)


def _wait(process: subprocess.Popen[bytes], answer: IO[bytes], seconds: float) -> dict[str, Any] | None:
    """Its first line, which comes when it is ready; None when it ended, or the time is up."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while time.monotonic() < deadline:
        has_ended = process.poll() is not None
        answer.seek(0)
        line, newline, _ = answer.read().partition(b"\n")
        if newline:
            ready: dict[str, Any] = json.loads(line)
            return ready
        if has_ended:
            break
        pause.wait(LOOK_S)
    return None


def _ended(place: ServerPlace, begins: int, code: int) -> Failure:
    """With the words that it ended with."""
    with place.log.open("rb") as log:
        log.seek(max(begins, place.log.stat().st_size - TAIL_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
    for line in reversed(lines):
        try:
            problem = json.loads(line)
            return Failure(
                Exit(problem["exit_code"]), problem["detail"], problem["hint"], code=problem["code"]
            )
        except (ValueError, KeyError, TypeError):
            continue
    last = f": {lines[-1]}" if lines else ""
    return Failure(Exit.FAILED, f"the broker ended with code {code}{last}", f"its log is {place.log}")


def _server(place: ServerPlace, pid: int, ready: dict[str, Any]) -> Server:
    """From what `serve` says of one broker, or of several."""
    brokers = ready.get("brokers")
    trust = ""
    if ready.get("security_dir"):
        from headrace.security.founding import SecureFiles

        trust = str(SecureFiles(Path(ready["security_dir"])).authority.certificate)
    return Server(
        pid=pid,
        born=born(pid) or "",
        version=ready["version"],
        kafka=ready["bootstrap"] if brokers else ready["kafka"],
        http=",".join(broker["http"] for broker in brokers) if brokers else ready["http"],
        console=ready.get("console"),
        data_dir=ready["data_dir"],
        log=str(place.log),
        tls_ca=trust,
    )


def _tell(run: Invocation, server: Server, *, already: bool) -> None:
    row = StartRow(
        version=server.version,
        kafka=server.kafka,
        http=server.http,
        console=server.console,
        data_dir=server.data_dir,
        pid=server.pid,
        log=server.log,
        already_running=already,
    )
    run.output.one(row, lambda: banner(row))


def banner(row: StartRow) -> str:
    how = "runs already" if row.already_running else "runs in the background"
    return "\n".join(
        [
            f"headrace {row.version}  {how}, process {row.pid}",
            f"  Kafka     {row.kafka}",
            f"  HTTP      {row.http}",
            *([f"  Console   {row.console}"] if row.console else []),
            f"  Data      {row.data_dir or 'in memory only, gone when it stops (--ephemeral)'}",
            f"  Log       {row.log}",
            "Try:  headrace cheat     Stop:  headrace stop",
        ]
    )
