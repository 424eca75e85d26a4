"""Command: `headrace version`."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import ClassVar

from headrace import __version__
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.core.compiled import how_it_runs


class VersionRow(Row):
    SCHEMA: ClassVar[str] = "headrace.version/v1"
    NAME: ClassVar[str] = "version"
    version: str
    build: str
    """Pure Python, or how much of it is compiled."""
    python: str
    platform: str
    confluent_kafka: str
    """The client under this command line and the SDK."""


@leaf(VersionRow, Shape.ONE)
def command(run: Invocation) -> None:
    """Show the version of this program, and what it runs on."""
    row = VersionRow(
        version=__version__,
        build=how_it_runs(),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        confluent_kafka=version("confluent-kafka"),
    )
    lines = [
        f"headrace {row.version} ({row.build})",
        f"Python {row.python} on {row.platform}, confluent-kafka {row.confluent_kafka}",
    ]
    run.output.one(row, lambda: "\n".join(lines))
