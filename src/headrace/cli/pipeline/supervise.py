"""Command: `headrace pipeline supervise`."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import ClassVar

import click
import msgspec

from headrace.cli.failure import Failure, failure_of
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import Number
from headrace.cli.pipelines import access_of, need_spark
from headrace.core.errors import HeadraceError

_REQUEST_MS = 5_000


class SuperviseRow(Row):
    """What it says once it has begun."""

    SCHEMA: ClassVar[str] = "headrace.pipeline.supervise/v1"
    NAME: ClassVar[str] = "id"
    id: str
    host: str
    pid: int
    bootstrap: str
    work_dir: str
    metrics: str | None = None


@leaf(SuperviseRow, Shape.ONE, broker=True)
@click.option(
    "--work-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the logs of runs are; in the user's state directory when not given.",
)
@click.option("--limit", type=Number(1), default=64, show_default=True, help="So many pipelines at most.")
@click.option(
    "--metrics-port", type=Number(0, 65_535), help="Serve /metrics here, on loopback, for Prometheus."
)
@click.option("--tied", is_flag=True, hidden=True)
def command(run: Invocation, work_dir: Path | None, limit: int, metrics_port: int | None, tied: bool) -> None:
    """Run the submitted pipelines on this host, each in a process of its own, until SIGTERM or Ctrl+C.

    Start it on as many hosts as you like: each pipeline runs on exactly one of them, and another takes over when that one is
    gone. It waits for brokers that are away.
    """
    import platformdirs

    from headrace.spark.service.supervisor import PipelineSupervisor

    work = (work_dir or Path(platformdirs.user_state_dir("headrace")) / "pipelines").resolve()
    access = access_of(
        msgspec.structs.replace(run.profile, timeout_ms=min(run.profile.timeout_ms, _REQUEST_MS)),
        "headrace-supervisor",
    )
    try:
        need_spark()
    except Failure as failure:
        # Pipelines of a Spark elsewhere (sc://…) need less; those that need it say so themselves.
        run.warn(failure.what)
    supervisor = PipelineSupervisor(access, work, limit=limit, tell=run.note)

    def stop(number: int, frame: FrameType | None) -> None:
        supervisor.stop()

    if tied:
        # Whoever started us holds the other end.
        threading.Thread(target=_until_alone, args=(supervisor.stop,), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    metrics = None
    if metrics_port is not None:
        from headrace.spark.service.metrics import serve_metrics

        metrics = serve_metrics(metrics_port, supervisor.exposition)
    row = SuperviseRow(
        id=supervisor.me.id, host=socket.gethostname(), pid=os.getpid(), bootstrap=run.profile.bootstrap,
        work_dir=str(work), metrics=f"http://127.0.0.1:{metrics}/metrics" if metrics is not None else None,
    )  # fmt: skip
    run.output.one(
        row,
        lambda: f"supervising the pipelines of {row.bootstrap}; logs are in {row.work_dir}   Stop: Ctrl+C",
    )
    sys.stdout.flush()
    try:
        supervisor.run()
    except HeadraceError as problem:
        raise failure_of(problem) from None


def _until_alone(stop: Callable[[], None]) -> None:
    sys.stdin.buffer.read()
    stop()
