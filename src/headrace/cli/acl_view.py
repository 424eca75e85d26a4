"""Command: rights in words, and as the Kafka admin client wants them, so these commands work against any Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import click
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from headrace.cli.failure import Exit, Failure, exit_of_many
from headrace.cli.invocation import Invocation
from headrace.cli.output import Column, Row, column
from headrace.security.roles import ROLES

RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.BROKER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_RESOURCE_WORDS = {kind: name for name, kind in RESOURCES.items()}
OPERATIONS = {
    kind.name.lower().replace("_", "-"): kind
    for kind in AclOperation
    if kind not in (AclOperation.UNKNOWN, AclOperation.ANY, AclOperation.CLUSTER_ACTION)
}
CLUSTER_NAME = "kafka-cluster"


class AclRow(Row):
    SCHEMA: ClassVar[str] = "headrace.acl/v1"
    NAME: ClassVar[str] = "principal"
    principal: str
    permission: str
    operation: str
    resource: str
    pattern: str
    name: str
    host: str


COLUMNS: list[Column] = [
    column("PRINCIPAL", "principal"),
    column("PERMISSION", "permission"),
    column("OPERATION", "operation"),
    column("RESOURCE", "resource"),
    Column("NAME", lambda row: f"{row.name}*" if row.pattern == "prefixed" else row.name),
    column("HOST", "host", wide=True),
]


def acl_row(acl: Any) -> AclRow:
    return AclRow(
        principal=acl.principal,
        permission=acl.permission_type.name.lower(),
        operation=acl.operation.name.lower().replace("_", "-"),
        resource=_RESOURCE_WORDS.get(acl.restype, acl.restype.name.lower()),
        pattern=acl.resource_pattern_type.name.lower(),
        name=acl.name,
        host=acl.host,
    )


def principal_of(user: str) -> str:
    return user if ":" in user else f"User:{user}"


def operations_in(text: str) -> list[AclOperation]:
    found: list[AclOperation] = []
    for name in text.lower().split(","):
        if name not in OPERATIONS:
            raise Failure(
                Exit.USAGE,
                f'"{name}" is no operation',
                f"one of {', '.join(OPERATIONS)}; several with commas",
            )
        found.append(OPERATIONS[name])
    return found


def resource_in(kind: str, name: str | None) -> tuple[ResourceType, str]:
    if kind == "cluster":
        return RESOURCES[kind], CLUSTER_NAME
    if not name:
        raise Failure(Exit.USAGE, f"which {kind}?", f"headrace acl add alice read {kind} NAME")
    return RESOURCES[kind], name


def pattern_in(name: str, prefix: bool) -> tuple[str, ResourcePatternType]:
    """`orders-*` is the same as --prefix orders-."""
    if name != "*" and name.endswith("*"):
        return name[:-1], ResourcePatternType.PREFIXED
    return name, ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL


def bindings(
    user: str,
    operations: Iterable[AclOperation],
    kind: str,
    name: str | None,
    host: str,
    prefix: bool,
    deny: bool,
) -> list[AclBinding]:
    restype, thing = resource_in(kind, name)
    thing, pattern = pattern_in(thing, prefix)
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    return [
        AclBinding(restype, thing, pattern, principal_of(user), host, operation, permission)
        for operation in operations
    ]


def create_all(run: Invocation, wanted: list[AclBinding]) -> Exit:
    link = run.link
    futures = link.admin.create_acls(wanted, request_timeout=link.timeout_s)
    failures = [
        failure
        for acl, future in futures.items()
        if (failure := link.outcome(future, acl_row(acl).principal)) is not None
    ]
    for failure in failures:
        run.explain(failure)
    run.output.items(AclRow, [acl_row(acl) for acl in wanted] if not failures else [], COLUMNS)
    return exit_of_many(failures, len(wanted) - len(failures))


def delete_all(run: Invocation, unwanted: list[AclBinding]) -> None:
    link = run.link
    filters = [
        AclBindingFilter(
            acl.restype,
            acl.name,
            acl.resource_pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for acl in unwanted
    ]
    futures = link.admin.delete_acls(filters, request_timeout=link.timeout_s)
    gone = [acl_row(acl) for future in futures.values() for acl in link.answer(future)]
    if not gone:
        run.note("There was no such right.")
    run.output.items(AclRow, gone, COLUMNS)


def rights_of_role(user: str, role: str, prefix: str, host: str) -> list[AclBinding]:
    """Over everything, or what begins with the prefix; the cluster has no name."""
    found: list[AclBinding] = []
    for resource, operations in ROLES[role].items():
        kind = resource.name.lower().replace("_", "-")
        wanted = [OPERATIONS[operation.name.lower().replace("_", "-")] for operation in operations]
        found += bindings(user, wanted, kind, prefix or "*", host, bool(prefix) and kind != "cluster", False)
    if role == "admin" and not prefix:  # `*` is none of the topics that brokers keep for themselves (A41)
        found += bindings(
            user, [AclOperation.READ, AclOperation.DESCRIBE], "topic", "__audit", host, False, False
        )
    return found


def everything(principal: str | None = None) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        principal,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def rights_of(run: Invocation, wanted: AclBindingFilter) -> list[Any]:
    link = run.link
    return list(link.answer(link.admin.describe_acls(wanted, request_timeout=link.timeout_s)))


KIND = click.Choice(list(RESOURCES))
