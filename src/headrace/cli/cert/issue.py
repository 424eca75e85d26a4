"""Command: `headrace cert issue`."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.cert_view import CertRow, cert_row, key_of, need_absent, shown
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.security.certificates import Pair, issue, user_uri
from headrace.security.records import name_problem


@leaf(CertRow, Shape.ONE)
@click.argument("hosts", nargs=-1)
@click.option("--user", default="", help="For a client instead: the user that it is.")
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
def command(run: Invocation, hosts: tuple[str, ...], user: str, ca: str, out: str) -> None:
    """Make a certificate for names and addresses, good for servers and clients, for 398 days.

    With --user it says which user a client is (brokers started with --tls-users 'URI:headrace://cluster/user/* -> $1').
    """
    if bool(hosts) == bool(user):
        raise Failure(Exit.USAGE, "name the hosts of a server, or the --user of a client")
    if user and (problem := name_problem(user)):
        raise Failure(Exit.USAGE, f"{user!r} can't be a user's name: {problem}")
    authority = Pair(Path(ca), key_of(Path(ca)))
    pair = Pair(Path(out), key_of(Path(out)))
    need_absent(pair)
    try:
        issue(authority, pair, user or hosts[0], hosts, [user_uri(user)] if user else [])
    except (OSError, ValueError) as failed:
        raise Failure(Exit.USAGE, f"{ca} can't sign: {failed}", "headrace cert ca makes one") from None
    row = cert_row(pair.certificate)
    run.output.one(row, lambda: shown(row))
    run.done(f"Made {pair.certificate} and {pair.key}")
