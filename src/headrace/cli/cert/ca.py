"""Command: `headrace cert ca`."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.cert_view import CertRow, cert_row, key_of, need_absent, shown
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.security.certificates import LONGEST_SUBJECT, Pair, make_authority


@leaf(CertRow, Shape.ONE)
@click.option(
    "--out",
    default="ca.pem",
    show_default=True,
    type=click.Path(dir_okay=False),
    help="Its certificate; the key lies beside it.",
)
@click.option("--subject", default="headrace cluster authority", show_default=True, help="What it is called.")
def command(run: Invocation, out: str, subject: str) -> None:
    """Make an authority that signs certificates. Its key stays where brokers can't read it."""
    if not 0 < len(subject.encode()) <= LONGEST_SUBJECT:
        raise Failure(
            Exit.USAGE,
            f"a certificate's subject has 1 to {LONGEST_SUBJECT} bytes, not {len(subject.encode())}",
        )
    pair = Pair(Path(out), key_of(Path(out)))
    need_absent(pair)
    make_authority(pair, subject)
    row = cert_row(pair.certificate)
    run.output.one(row, lambda: shown(row))
    run.done(f"Made {pair.certificate} and {pair.key}")
