"""Door: who is at the other end of a connection, and how far it has come in proving it (A14).

    Begin -> Handshake (`mechanism`) -> tokens (`answerer` of a broker, `exchange` of a user) -> Ready (`principal`)

A second handshake on a ready connection is legal at any time: it proves the same user again (KIP-368). Who is known by a certificate may log in as somebody
else once: what was said last by a person counts (A11).
"""

from __future__ import annotations

from headrace.core.peer_proof import Answerer
from headrace.core.principals import ANONYMOUS, Principal
from headrace.security.access import Access
from headrace.security.logins import SaslExchange


class Session:
    __slots__ = (
        "access", "answerer", "bare_tokens", "certified_broker", "credential", "ends_ms", "exchange", "is_over", "is_proving", "is_tls", "mechanism", "principal",
        "proved_by", "proved_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self.principal: Principal = ANONYMOUS
        self.credential = ""
        """The token that proved it; empty: something else."""
        self.is_tls = False
        self.certified_broker = -1
        """Which broker its certificate is of; that alone proves nothing yet."""
        self.access: Access | None = None
        """What it may do; None while nothing was asked of it, and in mode open."""
        self.mechanism = ""
        """Agreed on by SaslHandshake; empty while nobody proves anything."""
        self.ends_ms = 0
        """When the login is not good any more, by the steady clock; 0: never (KIP-368)."""
        self.proved_by = ""
        """The mechanism by which `principal` was proven."""
        self.proved_ms = 0
        """When, by the steady clock."""
        self.answerer: Answerer | None = None
        """A broker was challenged and has not answered yet."""
        self.exchange: SaslExchange | None = None
        """A user is about to prove itself."""
        self.is_proving = False
        """Between a handshake and the last token: nothing else is heard (A21)."""
        self.bare_tokens = False
        """Handshake version 0: what follows are tokens without a header (A15)."""
        self.is_over = False
        """The connection ends when what was said last has left."""

    @property
    def is_named(self) -> bool:
        return self.principal is not ANONYMOUS

    def begin_proof(
        self, mechanism: str, exchange: SaslExchange | None, *, bare_tokens: bool = False
    ) -> None:
        self.mechanism, self.exchange, self.bare_tokens = mechanism, exchange, bare_tokens
        self.is_proving = True

    def end_proof(self) -> None:
        self.mechanism, self.answerer, self.exchange = "", None, None
        self.is_proving = self.bare_tokens = False

    def prove(self, principal: Principal, credential: str = "") -> None:
        self.proved_by = self.mechanism
        self.credential = credential
        self.principal = principal
        self.access = None
        self.end_proof()
