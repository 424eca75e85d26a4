"""Kernel: roles of people (W19): a word for several rights. They are rights like any others, given and taken one by one; a role is not kept anywhere.

`viewer` sees lists and numbers, `reader` messages too, `operator` moves groups, sends dead letters back, pauses and pushes, `admin` everything. What a field of a
message is hidden by (`headrace.console.mask`) only those see who may alter the topic's configs: of these, admins.
"""

from __future__ import annotations

from headrace.security.acl_book import CLUSTER_NAME
from headrace.security.records import ANY_NAME, Acl, PatternType, Permission
from headrace.security.rights import Operation, Resource

_LOOK = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
_WORK = (Operation.READ, Operation.DELETE, Operation.ALTER_CONFIGS)

ROLES: dict[str, dict[Resource, tuple[Operation, ...]]] = {
    "viewer": {Resource.TOPIC: _LOOK, Resource.GROUP: _LOOK, Resource.CLUSTER: _LOOK},
    "reader": {
        Resource.TOPIC: (*_LOOK, Operation.READ),
        Resource.GROUP: _LOOK,
        Resource.CLUSTER: _LOOK,
    },
    "operator": {
        Resource.TOPIC: (*_LOOK, Operation.READ, Operation.WRITE),
        Resource.GROUP: (*_LOOK, *_WORK),
        Resource.CLUSTER: _LOOK,
    },
    "admin": {
        Resource.TOPIC: (
            *_LOOK, Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS,
        ),
        Resource.GROUP: (*_LOOK, *_WORK),
        Resource.CLUSTER: (*_LOOK, Operation.CREATE, Operation.ALTER, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE),
        Resource.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE),
    },
}  # fmt: skip

_AUDIT_TOPIC = "__audit"
"""`*` is none of the topics that brokers keep for themselves (A41): who administers is given this one by its name."""


def acls_of_role(principal: str, role: str, prefix: str = "", host: str = ANY_NAME) -> list[Acl]:
    """Over everything, or what begins with the prefix; the cluster has no name. As `headrace acl grant` gives them."""
    found = []
    for resource, operations in ROLES[role].items():
        name, pattern = (prefix, PatternType.PREFIXED) if prefix else (ANY_NAME, PatternType.LITERAL)
        if resource is Resource.CLUSTER:
            name, pattern = CLUSTER_NAME, PatternType.LITERAL
        found += [
            Acl(resource, name, pattern, principal, host, operation, Permission.ALLOW)
            for operation in operations
        ]
    if role == "admin" and not prefix:
        found += [
            Acl(
                Resource.TOPIC,
                _AUDIT_TOPIC,
                PatternType.LITERAL,
                principal,
                host,
                operation,
                Permission.ALLOW,
            )
            for operation in (Operation.READ, Operation.DESCRIBE)
        ]
    return found
