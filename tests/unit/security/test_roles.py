"""W19: a role means the same rights whoever gives it: the command line over Kafka, or REST."""

from __future__ import annotations

import pytest

from headrace.cli.acl_view import rights_of_role
from headrace.security.roles import ROLES, acls_of_role


@pytest.mark.parametrize("prefix", ["", "shop-"])
@pytest.mark.parametrize("role", list(ROLES))
def test_w19_a_role_is_the_same_rights_at_both_doors(role: str, prefix: str) -> None:
    def number(word: object) -> int:
        """confluent-kafka's enums, whose types say that they may be text or numbers."""
        value: int = getattr(word, "value")  # noqa: B009
        return value

    by_kafka = {
        (number(acl.restype), acl.name, number(acl.resource_pattern_type), acl.principal, acl.host, number(acl.operation), number(acl.permission_type))
        for acl in rights_of_role("alice", role, prefix, "10.0.0.0/8")
    }  # fmt: skip
    by_rest = {
        (int(acl.resource), acl.name, int(acl.pattern), acl.principal, acl.host, int(acl.operation), int(acl.permission))
        for acl in acls_of_role("User:alice", role, prefix, "10.0.0.0/8")
    }  # fmt: skip
    assert by_rest == by_kafka
