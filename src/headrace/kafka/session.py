"""Door: who is at the other end of a connection, and how far it has come in proving it."""

from __future__ import annotations

from headrace.core.peer_proof import Answerer
from headrace.core.principals import ANONYMOUS, Principal


class Session:
    __slots__ = ("answerer", "mechanism", "principal")

    def __init__(self) -> None:
        self.principal: Principal = ANONYMOUS
        self.mechanism = ""
        """Agreed on by SaslHandshake; empty while nobody proves anything."""
        self.answerer: Answerer | None = None
        """A broker was challenged and has not answered yet."""

    def end_proof(self) -> None:
        self.mechanism, self.answerer = "", None
