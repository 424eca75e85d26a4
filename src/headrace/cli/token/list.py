"""Command: `headrace token list`."""

from __future__ import annotations

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Shape, column, last_used
from headrace.cli.token_view import TOKENS, TokenRow, token_row


@leaf(TokenRow, Shape.ITEMS, http=True)
def command(run: Invocation) -> None:
    """List tokens. Your own; an administrator sees everybody's."""
    rows = [token_row(found) for found in run.http.ask("GET", TOKENS)["items"]]
    run.output.items(
        TokenRow,
        rows,
        [
            column("ID", "id", whole=True),
            column("OWNER", "owner"),
            column("FOR", "name"),
            last_used(),
            Column("MAY", lambda row: "; ".join(row.rights) if row.rights else "all that its owner may"),
        ],
    )
    if not rows:
        run.note("No tokens yet. Make one with:  headrace token create")
