"""Door: what the four requests about delegation tokens have in common (A43)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.principals import USER, Principal
from headrace.kafka.call import Call
from headrace.security.audit import ACTING


def requester(call: Call[object]) -> Principal:
    """Who asks. Raises DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: who came with such a token, or with one that may less than its
    owner, or without a name, makes none."""
    session, image = call.session, call.security.image
    credential = session.credential
    if (
        not session.is_named
        or session.principal.kind != USER
        or image.is_delegated(credential)
        or image.rights_of(credential) is not None
    ):
        raise HeadraceError(
            ErrorKind.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "delegation tokens are asked for by users who have logged in as themselves",
        )
    ACTING.set(str(session.principal))
    return session.principal


def user_named(kind: str, name: str) -> Principal:
    """Raises INVALID_PRINCIPAL_TYPE."""
    if kind != USER or not name:
        raise HeadraceError(ErrorKind.INVALID_PRINCIPAL_TYPE, f"{kind}:{name} is no user")
    return Principal(kind, name)
