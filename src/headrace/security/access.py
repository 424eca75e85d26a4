"""Machine: what one connection, or the sender of one HTTP request, may do: verdicts, kept until something changes (A38)."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.principals import ANONYMOUS, BROKER, Principal
from headrace.security.authorizer import Authorizer
from headrace.security.denials import Denials
from headrace.security.rights import Operation, Resource

MOST_KEPT = 10_000


class Access:
    __slots__ = (
        "_authorizer", "_denials", "_known", "_version", "credential", "host", "is_nameless", "principal",
    )  # fmt: skip

    def __init__(
        self, authorizer: Authorizer, denials: Denials, principal: Principal, host: str, credential: str = ""
    ) -> None:
        """`credential`: the key of the token that proved it, in the coordinator; empty: something that has no limits of its own."""
        self.principal = principal
        self.credential = credential
        self.is_nameless = principal == ANONYMOUS
        self.host = host
        self._authorizer = authorizer
        self._denials = denials
        self._known: dict[tuple[Operation, Resource, str], bool] = {}
        self._version = -1

    @property
    def version(self) -> int:
        """Of what verdicts rest on: who has waited for a while asks again when it is another."""
        return self._authorizer.version

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        authorizer = self._authorizer
        if authorizer.version != self._version or len(self._known) > MOST_KEPT:
            self._known = {}
            self._version = authorizer.version
        asked = (operation, resource, name)
        known = self._known.get(asked)
        if known is None:
            known = not authorizer.guards or self._decide(operation, resource, name)
            self._known[asked] = known
        return known

    def _decide(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self._authorizer.decide(
            self.principal, self.host, operation, resource, name, self.credential
        ).allowed

    def refuses(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether it is not to be done. In mode observe that is only noted."""
        return not self.may(operation, resource, name) and self.denied(operation, resource, name)

    def denied(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Note that it may not, and say whether that counts."""
        self._denials.note(self.principal, self.host, operation, resource, name, self.credential)
        return self._authorizer.enforces

    def refuses_others(self, owner: str) -> bool:
        """Whether something that is `owner`'s is not theirs to change: that takes an administrator."""
        return str(self.principal) != owner and self.refuses(Operation.ALTER, Resource.CLUSTER, "")

    def sees(self, resource: Resource, name: str) -> bool:
        """Whether a list shows it (A44)."""
        return self.may(Operation.DESCRIBE, resource, name) or not self._authorizer.enforces

    def bits(self, operations: Iterable[Operation], resource: Resource, name: str) -> int:
        """A47: those of `operations` that it may do, each as the bit of its number."""
        enforces = self._authorizer.enforces
        return sum(
            1 << operation for operation in operations if not enforces or self.may(operation, resource, name)
        )


class _Trusted(Access):
    """A broker that has proved itself: what only it may ask is judged by epochs (A49)."""

    __slots__ = ()

    def __init__(self) -> None:
        self.is_nameless = False
        self.principal = Principal(BROKER, "-1")
        self.credential = ""
        self.host = ""

    @property
    def version(self) -> int:
        return 0

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return True

    def sees(self, resource: Resource, name: str) -> bool:
        return True

    def bits(self, operations: Iterable[Operation], resource: Resource, name: str) -> int:
        return sum(1 << operation for operation in operations)


TRUSTED: Access = _Trusted()
