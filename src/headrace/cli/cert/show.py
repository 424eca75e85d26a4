"""Command: `headrace cert show`."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.cert_view import CertRow, cert_row, shown
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape


@leaf(CertRow, Shape.ONE)
@click.argument("certificate", type=click.Path(exists=True, dir_okay=False))
def command(run: Invocation, certificate: str) -> None:
    """Show what is in a certificate."""
    row = cert_row(Path(certificate))
    run.output.one(row, lambda: shown(row))
