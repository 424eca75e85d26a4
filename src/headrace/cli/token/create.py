"""Command: `headrace token create`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_users
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number
from headrace.cli.token_view import TOKENS, TokenRow, rights_in, token_row


@leaf(TokenRow, Shape.ONE, http=True)
@click.option("--label", default="", help="What it is for.")
@click.option("--days", type=Number(1, 3650), default=90, show_default=True, help="How long it is good.")
@click.option(
    "--user", default="", shell_complete=complete_users, help="Somebody else's; your own otherwise."
)
@click.option(
    "--may",
    "rights",
    multiple=True,
    metavar="'OPERATIONS KIND NAME'",
    help="Only this, as in 'read topic orders-*'; more than once for more.",
)
def command(run: Invocation, label: str, days: int, user: str, rights: tuple[str, ...]) -> None:
    """Make a token, and show it once.

    It may what its user may, over HTTP as Authorization: Bearer, at the Kafka port with OAUTHBEARER. With --may it may less, and never more.
    """
    body = {"name": label, "days": days, "owner": user, "rights": rights_in(rights)}
    row = token_row(run.http.ask("POST", TOKENS, body))
    run.output.one(row, lambda: row.token or "")
