"""Door: who may what: rights one by one and as roles, listed, given and taken (A36, W19). Kafka's door has the same rights in its own words.

GET  /api/v1/security/acls?principal=&q=   POST /api/v1/security/acls   POST /api/v1/security/acls/remove   GET /api/v1/security/roles
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.core.principals import USER
from headrace.http.contract import Contract, Param
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.credentials import named
from headrace.http.rest.forms.acls import (
    AclChange,
    AclPage,
    ChangedAcls,
    GivenAcl,
    GivenRole,
    RolePage,
    ShownAcl,
    ShownRole,
)
from headrace.http.rest.forms.queues import CHANGE_PROBLEMS, PAGE
from headrace.http.rest.paging import page, sorted_window
from headrace.http.rest.reading import answer, body_of, invalid
from headrace.security.acl_book import CLUSTER_NAME
from headrace.security.desk import Security
from headrace.security.new_acls import acl_of
from headrace.security.records import ALL_OPERATIONS, Acl, PatternType, PolicyAcl, word
from headrace.security.records import Permission as Verb
from headrace.security.rights import CLUSTER, OWN, Operation, Resource, alter, describe, needs
from headrace.security.roles import ROLES, acls_of_role


class _Entry(NamedTuple):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclDoor(Door):
    def __init__(self, security: Security) -> None:
        self._security = security

    @route(
        "GET",
        "/api/v1/security/acls",
        needs(describe(CLUSTER)),
        Contract(
            "List rights",
            "security",
            {200: AclPage},
            "Those of queue policies too, which name their queue.",
            query=(Param("principal", "only what names this User:name"), *PAGE),
            problems=(400,),
        ),
    )
    async def _list(self, request: Request) -> Answer:
        only = request.query.get("principal", "")
        held = {_line(acl): acl for acl in self._security.image.acls if not only or acl.principal == only}
        names, cursor, total = sorted_window(request, held, {})
        return page(request, [_shown(held[name]) for name in names], cursor, total)

    @route(
        "POST",
        "/api/v1/security/acls",
        needs(alter(CLUSTER)),
        Contract(
            "Give rights",
            "security",
            {200: ChangedAcls},
            "One by one, or those of a role; all of them or, when one is wrong, none. What is there already stays as it is.",
            body=(AclChange,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _give(self, request: Request) -> Answer:
        wanted = body_of(request, AclChange)
        fresh = [acl for acl in _wanted(wanted) if acl not in self._security.image.acls]
        if not wanted.dry_run:
            await self._security.admin.add_acls(fresh)
        return answer(ChangedAcls(items=[_shown(acl) for acl in fresh]))

    @route(
        "POST",
        "/api/v1/security/acls/remove",
        needs(alter(CLUSTER)),
        Contract(
            "Take rights away",
            "security",
            {200: ChangedAcls},
            "Exactly these. Those of a role are taken also when they were given by themselves; those of a queue's policy go with the policy alone.",
            body=(AclChange,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _take(self, request: Request) -> Answer:
        wanted = body_of(request, AclChange)
        doomed = [acl for acl in _wanted(wanted) if acl in self._security.image.acls]
        if not wanted.dry_run:
            await self._security.admin.remove_acls(doomed)
        return answer(ChangedAcls(items=[_shown(acl) for acl in doomed]))

    @route(
        "GET",
        "/api/v1/security/roles",
        OWN,
        Contract("List roles", "security", {200: RolePage}, "A role is a word for rights.", problems=()),
    )
    async def _roles(self, request: Request) -> Answer:
        items = [
            ShownRole(name=role, rights=[_shown(acl) for acl in acls_of_role(f"{USER}:", role)])
            for role in ROLES
        ]
        return answer(RolePage(items=items, next_cursor=None))


def _wanted(change: AclChange) -> list[Acl]:
    """Raises INVALID_REQUEST for what there can be no right of."""
    if not change.items and not change.roles:
        raise invalid(
            "neither a right nor a role is named",
            'As in {"roles": [{"principal": "User:alice", "role": "operator"}]}',
        )
    found = [_acl(given) for given in change.items]
    for role in change.roles:
        found += _of_role(role)
    return list(dict.fromkeys(found))


def _of_role(given: GivenRole) -> list[Acl]:
    return [
        acl_of(_entry(acl)) for acl in acls_of_role(given.principal, given.role, given.prefix, given.host)
    ]


def _acl(given: GivenAcl) -> Acl:
    resource = named(Resource, given.resource.replace("-", "_"), "resource")
    operation = ALL_OPERATIONS
    if given.operation.lower() != "all":
        operation = named(Operation, given.operation.replace("-", "_"), "operation")
    name = given.name or (CLUSTER_NAME if resource is Resource.CLUSTER else "")
    pattern = PatternType[given.pattern.upper()]
    return acl_of(
        _Entry(
            resource, name, pattern, given.principal, given.host, operation, Verb[given.permission.upper()]
        )
    )


def _entry(acl: Acl) -> _Entry:
    return _Entry(acl.resource, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission)


def _shown(acl: Acl) -> ShownAcl:
    return ShownAcl(
        principal=acl.principal,
        operation="All" if acl.operation == ALL_OPERATIONS else word(Operation(acl.operation)),
        resource=word(acl.resource),
        name="" if acl.resource is Resource.CLUSTER else acl.name,
        pattern="prefixed" if acl.pattern is PatternType.PREFIXED else "literal",
        permission="allow" if acl.permission is Verb.ALLOW else "deny",
        host=acl.host,
        policy=acl.queue if isinstance(acl, PolicyAcl) else None,
    )


def _line(acl: Acl) -> str:
    """What a list is sorted and searched by; the digest makes it one of a kind."""
    return f"{acl.principal} {word(acl.resource)} {acl.name} {acl.words} {acl.digest}"
