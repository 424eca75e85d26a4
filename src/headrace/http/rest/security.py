"""Door: /api/v1/security: the mode, users, rights and what was denied (A33, A48, A52, A54).

What Kafka has words for (rights, SCRAM credentials) has Kafka's door too; a password that is set here is salted before anything keeps it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.core.errors import ErrorKind, HeadraceError, NameTaken
from headrace.core.principals import USER, Principal
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request, Response
from headrace.http.rest.credentials import CredentialDoor, caller, named
from headrace.http.rest.denials import DenialDoor
from headrace.http.rest.forms.queues import CHANGE_PROBLEMS
from headrace.http.rest.forms.security import (
    AccessExplanation,
    Grant,
    SecurityStatus,
    ShownUser,
    UserPage,
)
from headrace.http.rest.reading import answer, body_of, invalid
from headrace.http.router import Router
from headrace.security.acl_book import granting
from headrace.security.desk import Security
from headrace.security.records import Mode, PatternType, ScramRecord, word
from headrace.security.rights import CLUSTER, Operation, Resource, alter, describe, needs
from headrace.security.scram import LEAST_ITERATIONS, MOST_ITERATIONS, SHA_256, SHA_512

_LOOK = needs(describe(CLUSTER))
_CHANGE = needs(alter(CLUSTER))


class ModeChange(msgspec.Struct, forbid_unknown_fields=True):
    mode: Mode
    force: bool = False


class GivenScram(msgspec.Struct, forbid_unknown_fields=True):
    """What SCRAM keeps of a password, in base64."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class NewUser(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    scram: dict[str, GivenScram]
    super: bool = False


class NewPassword(msgspec.Struct, forbid_unknown_fields=True):
    scram: dict[str, GivenScram]


class UserChange(msgspec.Struct, forbid_unknown_fields=True):
    enabled: bool


class SuperUsers(msgspec.Struct, forbid_unknown_fields=True):
    super_users: Annotated[list[str], Meta(max_length=1_000)]


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """May this principal do this, to this, from there?"""

    principal: str
    operation: str
    resource: str
    name: str = ""
    host: str = "127.0.0.1"


class SecurityDoor(Door):
    def __init__(self, security: Security, broker_id: int, denials: DenialDoor) -> None:
        self._security = security
        self._image = security.image
        self._broker_id = broker_id
        self._denials = denials

    def mount(self, router: Router) -> None:
        super().mount(router)
        CredentialDoor(self._security).mount(router)
        self._denials.mount(router)

    @route(
        "GET",
        "/api/v1/security",
        _LOOK,
        Contract("The mode, and how much there is", "security", {200: SecurityStatus}, problems=()),
    )
    async def _status(self, request: Request) -> Answer:
        image = self._image
        return answer(
            SecurityStatus(
                mode=image.mode.mode,
                since_ms=image.mode.since_ms,
                by=image.mode.by,
                users=len(image.users),
                rights=len(image.acls),
                super_users=sorted(image.super_users),
                broker=self._broker_id,
                revision=self._security.admin.revision,
                unreadable=sorted(image.unreadable),
                denied=self._security.denials.total,
                failed_logins=self._security.logins.limits.failures,
            )
        )

    @route(
        "PUT",
        "/api/v1/security/mode",
        _CHANGE,
        Contract(
            "Set the mode",
            "security",
            {200: SecurityStatus},
            "open, observe or enforced; in effect at once. Enforcing refuses while somebody would be locked out by it; `force` does it all the same.",
            body=(ModeChange,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _set_mode(self, request: Request) -> Answer:
        wanted = body_of(request, ModeChange)
        image = self._image
        if wanted.mode is Mode.ENFORCED and not wanted.force:
            await self._denials.need_ready()
        if wanted.mode is not Mode.OPEN and not image.super_users:
            raise HeadraceError(
                ErrorKind.POLICY_VIOLATION,
                "there is no super user yet: nobody could administer the cluster",
                "Create one with: headrace user create admin --super",
            )
        await self._security.admin.set_mode(wanted.mode, caller(request))
        return await self._status(request)

    @route(
        "PUT",
        "/api/v1/security/super-users",
        _CHANGE,
        Contract(
            "Say who is bound by no right",
            "security",
            {200: SecurityStatus},
            body=(SuperUsers,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _set_super_users(self, request: Request) -> Answer:
        wanted = body_of(request, SuperUsers).super_users
        for name in wanted:
            kind, colon, rest = name.partition(":")
            if kind != USER or not colon or not rest:
                raise invalid(f"{name!r} is nobody: write User:name")
        if self._image.guards and not any(self._image.is_enabled(name.partition(":")[2]) for name in wanted):
            raise HeadraceError(
                ErrorKind.POLICY_VIOLATION,
                "none of them is a user that could log in: nobody could administer the cluster",
            )
        await self._security.admin.set_super_users(wanted)
        return await self._status(request)

    @route(
        "GET",
        "/api/v1/security/users",
        _LOOK,
        Contract("List users", "security", {200: UserPage}, problems=()),
    )
    async def _users(self, request: Request) -> Answer:
        image = self._image
        return answer(UserPage(items=[self._shown(name) for name in sorted(image.users)], next_cursor=None))

    def _shown(self, name: str) -> ShownUser:
        image = self._image
        user = image.users[name]
        return ShownUser(
            name=name,
            enabled=user.enabled,
            created_ms=user.created_ms,
            mechanisms=sorted(image.scram.get(name, ())),
            super=f"{USER}:{name}" in image.super_users,
        )

    @route(
        "POST",
        "/api/v1/security/users",
        _CHANGE,
        Contract(
            "Make a user",
            "security",
            {201: ShownUser},
            "With what SCRAM keeps of the password, not the password.",
            body=(NewUser,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _add_user(self, request: Request) -> Answer:
        wanted = body_of(request, NewUser)
        if wanted.name in self._image.users:
            raise NameTaken(ErrorKind.CONFLICT, f"there is a user {wanted.name!r} already")
        admin = self._security.admin
        await admin.alter_scram(wanted.name, _records(wanted.scram))
        if wanted.super:
            await admin.set_super_users([*self._image.super_users, f"{USER}:{wanted.name}"])
        return answer(self._shown(wanted.name), 201)

    @route(
        "PUT",
        "/api/v1/security/users/{user}/password",
        _CHANGE,
        Contract(
            "Give a user another password",
            "security",
            {200: ShownUser},
            body=(NewPassword,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _set_password(self, request: Request) -> Answer:
        name = request.params["user"]
        if name not in self._image.users:
            raise HeadraceError(ErrorKind.RESOURCE_NOT_FOUND, f"there is no user {name!r}")
        await self._security.admin.alter_scram(name, _records(body_of(request, NewPassword).scram))
        return answer(self._shown(name))

    @route(
        "PATCH",
        "/api/v1/security/users/{user}",
        _CHANGE,
        Contract(
            "Shut a user out, or let it in again",
            "security",
            {200: ShownUser},
            body=(UserChange,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _change_user(self, request: Request) -> Answer:
        name = request.params["user"]
        await self._security.admin.set_enabled(name, body_of(request, UserChange).enabled)
        return answer(self._shown(name))

    @route(
        "DELETE",
        "/api/v1/security/users/{user}",
        _CHANGE,
        Contract("Delete a user", "security", {204: None}, problems=CHANGE_PROBLEMS),
    )
    async def _delete_user(self, request: Request) -> Answer:
        await self._security.admin.delete_user(request.params["user"])
        return Response(b"", 204, "")

    @route(
        "POST",
        "/api/v1/security/explain",
        _LOOK,
        Contract(
            "Whether somebody may do something, and why",
            "security",
            {200: AccessExplanation},
            body=(Question,),
            problems=(400,),
        ),
    )
    async def _explain(self, request: Request) -> Answer:
        """A48: what would be said to somebody, by which rule, and what would allow it."""
        asked = body_of(request, Question)
        kind, _, name = asked.principal.partition(":")
        operation = named(Operation, asked.operation, "operation")
        resource = named(Resource, asked.resource, "resource")
        thing, host = asked.name, asked.host
        if kind != USER or not name:
            raise invalid("principal is User:name")
        verdict = self._image.decide(Principal(kind, name), host, operation, resource, thing)
        grants: list[Grant] = []
        if not verdict.allowed:
            grants = [
                Grant(
                    principal=f"{kind}:{name}",
                    operation=word(Operation(each)),
                    resource=word(resource),
                    name=thing,
                    pattern=PatternType.LITERAL.name.lower(),
                )
                for each in granting(operation)
            ]
        return answer(AccessExplanation(allowed=verdict.allowed, rule=verdict.rule, granted_by=grants))


def _records(given: dict[str, GivenScram]) -> dict[str, ScramRecord]:
    made = {}
    for mechanism, each in given.items():
        size = {SHA_256: 32, SHA_512: 64}.get(mechanism)
        if size is None or not LEAST_ITERATIONS <= each.iterations <= MOST_ITERATIONS:
            raise HeadraceError(
                ErrorKind.UNACCEPTABLE_CREDENTIAL,
                f"{SHA_256} and {SHA_512} are known, with {LEAST_ITERATIONS} to {MOST_ITERATIONS} iterations",
            )
        if len(each.stored_key) != size or len(each.server_key) != size or not 8 <= len(each.salt) <= 1_024:
            raise HeadraceError(ErrorKind.UNACCEPTABLE_CREDENTIAL, "a salt or a key has a wrong length")
        made[mechanism] = ScramRecord(each.salt, each.iterations, each.stored_key, each.server_key)
    if not made:
        raise invalid("scram has no mechanism")
    return made
