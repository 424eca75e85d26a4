"""Command: `headrace cert issue`."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.cert_view import CertRow, cert_row, key_of, need_absent, shown
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.security.certificates import Pair, issue


@leaf(CertRow, Shape.ONE)
@click.argument("hosts", nargs=-1, required=True)
@click.option(
    "--ca",
    default="ca.pem",
    show_default=True,
    type=click.Path(dir_okay=False),
    help="The authority that signs.",
)
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False), help="The certificate; the key lies beside it."
)
def command(run: Invocation, hosts: tuple[str, ...], ca: str, out: str) -> None:
    """Make a certificate for names and addresses, good for servers and clients, for 398 days."""
    authority = Pair(Path(ca), key_of(Path(ca)))
    pair = Pair(Path(out), key_of(Path(out)))
    need_absent(pair)
    try:
        issue(authority, pair, hosts[0], hosts)
    except (OSError, ValueError) as problem:
        raise Failure(Exit.USAGE, f"{ca} can't sign: {problem}", "headrace cert ca makes one") from None
    row = cert_row(pair.certificate)
    run.output.one(row, lambda: shown(row))
    run.done(f"Made {pair.certificate} and {pair.key}")
