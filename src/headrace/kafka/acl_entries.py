"""Door: rights in the words of Kafka's ACL requests, and filters over them (A36)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import topic_name_problem
from headrace.security.acl_book import CLUSTER_NAME, host_problem
from headrace.security.records import ALL_OPERATIONS, ANY_NAME, Acl, PatternType, Permission
from headrace.security.rights import LEGAL, Operation, Resource

ANY = 1
"""In a filter: whatever it is."""
MATCH = 2
"""Of patterns: every right that says something about this name."""

MAX_NAME = 249


class NewAcl(Protocol):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


def acl_of(entry: NewAcl) -> Acl:
    """Raises INVALID_REQUEST with what is wrong."""
    try:
        resource, pattern = Resource(entry.resource_type), PatternType(entry.resource_pattern_type)
        permission = Permission(entry.permission_type)
        operation = entry.operation if entry.operation == ALL_OPERATIONS else Operation(entry.operation)
    except ValueError as problem:
        raise _invalid(f"a right has to be about one thing: {problem}") from None
    if operation != ALL_OPERATIONS and operation not in LEGAL[resource]:
        raise _invalid(f"a {resource.name.lower()} has no operation {Operation(operation).name.lower()}")
    kind, colon, name = entry.principal.partition(":")
    if not colon or kind != "User" or not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise _invalid(f"{entry.principal!r} is nobody: write User:name")
    if (wrong := host_problem(entry.host)) is not None:
        raise _invalid(wrong)
    _check_name(resource, pattern, entry.resource_name)
    return Acl(
        resource, entry.resource_name, pattern, entry.principal, entry.host, int(operation), permission
    )


def _check_name(resource: Resource, pattern: PatternType, name: str) -> None:
    if not name or not name.isprintable() or len(name) > 1_024:
        raise _invalid("the resource has no name")
    if resource is Resource.CLUSTER and (name != CLUSTER_NAME or pattern is not PatternType.LITERAL):
        raise _invalid(f"the cluster is called {CLUSTER_NAME}")
    if resource is Resource.TOPIC and name != ANY_NAME and (wrong := topic_name_problem(name)) is not None:
        raise _invalid(f"no topic can be called {name!r}: {wrong}")


def _invalid(words: str) -> HeadraceError:
    return HeadraceError(ErrorKind.INVALID_REQUEST, words)


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
