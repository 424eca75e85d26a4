"""Command: `headrace logout`."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from headrace.cli.contexts import Contexts
from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.profile import chosen_context
from headrace.cli.token_view import TOKENS


class LogoutRow(Row):
    SCHEMA: ClassVar[str] = "headrace.logout/v1"
    NAME: ClassVar[str] = "context"
    context: str
    user: str
    ended: bool
    """The broker has heard of it: the token is good for nothing any more."""


@leaf(LogoutRow, Shape.ONE, http=True)
def command(run: Invocation) -> None:
    """Forget who you are there, and end the token that `headrace login` got."""
    contexts, name = Contexts(), chosen_context(run.flags).name
    context = contexts.find(name) if name else None
    if context is None or not (context.user or context.token_file):
        raise Failure(Exit.NOT_FOUND, "nobody is logged in", "headrace login")
    ended = False
    if context.token_file:
        ended = _end(run)
    for kind in ("token", "password"):
        contexts.forget_secret(name, kind)
    contexts.keep(name, msgspec.structs.replace(context, user="", password_file="", token_file=""))
    run.output.one(LogoutRow(context=name, user=context.user, ended=ended), lambda: "")
    run.done(f"Logged out of context {name}")


def _end(run: Invocation) -> bool:
    from headrace.security.records import TOKEN_ID_CHARS
    from headrace.security.tokens import digest_of

    try:
        digest = digest_of(run.profile.token)
        if digest is not None:
            run.http.ask("DELETE", f"{TOKENS}/{part(digest[:TOKEN_ID_CHARS])}")
            return True
    except Failure as problem:
        run.warn(f"the token is forgotten here, and the broker was not told: {problem}")
    return False
