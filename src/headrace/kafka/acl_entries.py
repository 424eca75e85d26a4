"""Door: filters over rights, in the words of Kafka's ACL requests (A36)."""

from __future__ import annotations

from typing import NamedTuple

from headrace.security.records import ANY_NAME, Acl, PatternType, Permission

ANY = 1
"""In a filter: whatever it is."""
MATCH = 2
"""Of patterns: every right that says something about this name."""


class AclFilter(NamedTuple):
    resource_type: int
    resource_name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def problem(self) -> str | None:
        numbers = (self.resource_type, self.pattern, self.operation, self.permission)
        if 0 in numbers or self.pattern > PatternType.PREFIXED or self.permission > Permission.ALLOW:
            return "the filter has something in it that is not known here"
        return None

    def fits(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ANY, acl.resource)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        name = self.resource_name
        if self.pattern == MATCH:
            if name is None or name == acl.name:
                return True
            if acl.pattern is PatternType.PREFIXED:
                return name.startswith(acl.name)
            return acl.name == ANY_NAME
        return self.pattern in (ANY, acl.pattern) and name in (None, acl.name)
