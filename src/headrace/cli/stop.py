"""Command: `headrace stop`."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import ClassVar

import click

from headrace.cli.background import Server, ServerPlace
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import Duration
from headrace.cli.profile import settings_failure
from headrace.node.settings import SettingsError, default_files, load_settings

LOOK_S = 0.02


class StopRow(Row):
    SCHEMA: ClassVar[str] = "headrace.stop/v1"
    NAME: ClassVar[str] = "status"
    status: str
    """stopped, killed (--force), or not running."""
    pid: int | None
    """Null: nobody had been started."""


@leaf(StopRow, Shape.ONE)
@click.option("--data-dir", help="Of the broker; the platform's data directory when it is left out.")
@click.option("--wait", "wait_ms", type=Duration(), default="60s", help="How long it may take.  [60s]")
@click.option("--force", is_flag=True, help="Kill it when the time is up.")
def command(run: Invocation, data_dir: str | None, wait_ms: int, force: bool) -> None:
    """Stop the broker that runs in the background. In order: it hands over, syncs, and marks its directory as clean."""
    try:
        place = ServerPlace.of(load_settings({"data_dir": data_dir}, os.environ, default_files()).settings)
    except SettingsError as error:
        raise settings_failure(error) from None
    server = place.server()
    if server is None or not server.is_running:
        _say_that_none_runs(run, place, server)
        return
    os.kill(server.pid, signal.SIGTERM)
    status = "stopped"
    if not _is_gone(server, wait_ms / 1000):
        if not force:
            raise Failure(
                Exit.TIMEOUT,
                f"process {server.pid} has not stopped after {wait_ms // 1000} s",
                f"it writes to {server.log}; --wait 5m waits longer, --force kills it",
            )
        os.kill(server.pid, signal.SIGKILL)
        status = "killed"
        _is_gone(server, wait_ms / 1000)
    place.forget()
    run.output.one(StopRow(status=status, pid=server.pid), lambda: "")
    run.done(f"{status.capitalize()} (process {server.pid})")


def _say_that_none_runs(run: Invocation, place: ServerPlace, server: Server | None) -> None:
    other = place.other()
    if other is not None:
        raise Failure(
            Exit.CONFLICT,
            f"the broker in {place.directory} was not started in the background (process {other})",
            f"Ctrl+C where it runs, or:  kill {other}",
            code="NOT_OURS",
        )
    place.forget()
    run.output.one(StopRow(status="not running", pid=None if server is None else server.pid), lambda: "")
    ended = f": process {server.pid} has ended by itself; its log is {server.log}" if server else ""
    run.note(f"Nothing runs in the background{ended}")


def _is_gone(server: Server, seconds: float) -> bool:
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while server.is_running:
        if time.monotonic() > deadline:
            return False
        pause.wait(LOOK_S)
    return True
