"""Port: who may do what, and what was said about it. One authorizer for all doors; the shipped one is `SecurityImage`."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.core.principals import Principal
from headrace.security.rights import Operation, Resource


class Verdict(NamedTuple):
    allowed: bool
    rule: str = ""
    """Which rule says so: for the audit and for `explain`, never for the caller (A48)."""


class Authorizer(Protocol):
    @property
    def version(self) -> int:
        """Grows with whatever could change a verdict."""
        ...

    @property
    def guards(self) -> bool:
        """False in mode open: nobody is asked anything."""
        ...

    @property
    def enforces(self) -> bool:
        """False in mode observe: what is not allowed is noted and done all the same."""
        ...

    def decide(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        name: str,
        credential: str = "",
    ) -> Verdict:
        """`credential`: by what somebody proved it, where that may allow less (A40) or has ended."""
        ...
