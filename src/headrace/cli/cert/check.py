"""Command: `headrace cert check`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import click

from headrace.cli.cert_view import key_of
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.security.certificates import Pair, problems


class CertCheckRow(Row):
    SCHEMA: ClassVar[str] = "headrace.cert.check/v1"
    NAME: ClassVar[str] = "file"
    file: str
    problems: list[str]


@leaf(CertCheckRow, Shape.ONE)
@click.argument("certificate", type=click.Path(exists=True, dir_okay=False))
@click.argument("hosts", nargs=-1)
@click.option(
    "--ca", type=click.Path(exists=True, dir_okay=False), help="The authority that should have signed it."
)
def command(run: Invocation, certificate: str, hosts: tuple[str, ...], ca: str | None) -> Exit:
    """Say what is wrong with a certificate: its key, its dates, its names, who signed it."""
    path = Path(certificate)
    try:
        wrong = problems(
            Pair(path, key_of(path)), Path(ca) if ca else None, hosts, time.time_ns() // 1_000_000
        )
    except (OSError, ValueError) as problem:
        raise Failure(Exit.USAGE, f"{path}: {problem}") from None
    row = CertCheckRow(file=certificate, problems=wrong)
    run.output.one(row, lambda: "\n".join(wrong) or "good")
    return Exit.CONFLICT if wrong else Exit.OK
