"""Command: `headrace status`."""

from __future__ import annotations

import os
from typing import ClassVar

import click

from headrace.cli.background import ServerPlace
from headrace.cli.failure import Exit
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.profile import settings_failure
from headrace.node.settings import SettingsError, default_files, load_settings

EXITS = {"ready": Exit.OK, "foreground": Exit.OK, "not ready": Exit.FAILED}


class StatusRow(Row):
    SCHEMA: ClassVar[str] = "headrace.status/v1"
    NAME: ClassVar[str] = "status"
    status: str
    """ready, not ready, foreground (one that was not started in the background), ended (by itself), or not running."""
    detail: str | None = None
    pid: int | None = None
    kafka: str | None = None
    http: str | None = None
    data_dir: str | None = None
    log: str | None = None


@leaf(StatusRow, Shape.ONE)
@click.option("--data-dir", help="Of the broker; the platform's data directory when it is left out.")
def command(run: Invocation, data_dir: str | None) -> Exit:
    """Say whether the broker in the background runs, and is ready.

    Ends with 0 when it is ready, with 1 when it runs and is not, with 3 when nothing runs. How the cluster is: headrace cluster status.
    """
    try:
        place = ServerPlace.of(load_settings({"data_dir": data_dir}, os.environ, default_files()).settings)
    except SettingsError as error:
        raise settings_failure(error) from None
    row = _look(place)
    run.output.one(row, lambda: _shown(row))
    return EXITS.get(row.status, Exit.NOT_FOUND)


def _look(place: ServerPlace) -> StatusRow:
    server = place.server()
    if server is not None and server.is_running:
        trouble = server.trouble()
        return StatusRow(
            status="ready" if trouble is None else "not ready",
            detail=trouble,
            pid=server.pid,
            kafka=server.kafka,
            http=server.http,
            data_dir=server.data_dir,
            log=server.log,
        )
    other = place.other()
    if other is not None:
        return StatusRow(
            status="foreground",
            detail="it was not started with headrace start; whether it is ready: headrace doctor",
            pid=int(other) if other.isdecimal() else None,
            data_dir=str(place.directory),
        )
    if server is not None:
        return StatusRow(
            status="ended",
            detail=f"process {server.pid} is gone, and nobody stopped it: see its log",
            data_dir=server.data_dir,
            log=server.log,
        )
    return StatusRow(
        status="not running", detail="start one with: headrace start", data_dir=str(place.directory)
    )


def _shown(row: StatusRow) -> str:
    lines = {
        "Status": row.status + (f", process {row.pid}" if row.pid else ""),
        "": row.detail,
        "Kafka": row.kafka,
        "HTTP": row.http,
        "Data": row.data_dir,
        "Log": row.log,
    }
    return "\n".join(f"{title:<9} {value}" for title, value in lines.items() if value)
