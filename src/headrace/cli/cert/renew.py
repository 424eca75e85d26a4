"""Command: `headrace cert renew`."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.cert_view import CertRow, cert_row, key_of, shown
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.security.certificates import Pair, issue


@leaf(CertRow, Shape.ONE)
@click.argument("certificate", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--ca",
    default="ca.pem",
    show_default=True,
    type=click.Path(dir_okay=False),
    help="The authority that signs.",
)
def command(run: Invocation, certificate: str, ca: str) -> None:
    """Make a certificate anew, with the names that it has. A running broker takes it within half a minute."""
    path = Path(certificate)
    before = cert_row(path)
    name = before.subject.partition("CN=")[2].partition(",")[0]
    uris = [each for each in before.names if "://" in each]
    hosts = [each for each in before.names if "://" not in each]
    try:
        issue(Pair(Path(ca), key_of(Path(ca))), Pair(path, key_of(path)), name, hosts, uris)
    except (OSError, ValueError) as problem:
        raise Failure(Exit.USAGE, f"{ca} can't sign: {problem}") from None
    row = cert_row(path)
    run.output.one(row, lambda: shown(row))
