"""Kernel: a right that somebody wants given or taken, by Kafka's numbers: whether there can be such a one (A36). Kafka's door and REST's ask the same."""

from __future__ import annotations

from typing import Protocol

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import topic_name_problem
from headrace.security.acl_book import CLUSTER_NAME, host_problem
from headrace.security.records import ALL_OPERATIONS, ANY_NAME, Acl, PatternType, Permission
from headrace.security.rights import LEGAL, Operation, Resource

MAX_NAME = 249


class NewAcl(Protocol):
    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...

    @property
    def resource_pattern_type(self) -> int: ...

    @property
    def principal(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def operation(self) -> int: ...

    @property
    def permission_type(self) -> int: ...


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
