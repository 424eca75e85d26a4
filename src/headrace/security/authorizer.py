"""Port: who may do what. One authorizer for all doors; with nothing configured everything is allowed and nothing is asked.

`OPEN` is the adapter of mode open (section 8 of the rules of security). Where it is the authorizer, no door has a guard at all: what is
not asked costs nothing.
"""

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
    def allows_everything(self) -> bool:
        """Mode open: nobody is asked anything."""
        ...

    def decide(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str
    ) -> Verdict: ...


class _Open:
    allows_everything = True

    def decide(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str
    ) -> Verdict:
        return Verdict(True, "mode open")


OPEN: Authorizer = _Open()
