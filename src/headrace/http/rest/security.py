"""Door: /api/v1/security: the mode, users, rights and what was denied (A33, A48, A52, A54).

What Kafka has words for (rights, SCRAM credentials) has Kafka's door too; a password that is set here is salted before anything keeps it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headrace.core.errors import ErrorKind, HeadraceError, Taken
from headrace.core.moments import timed
from headrace.core.ports import Clock
from headrace.core.principals import USER, Principal
from headrace.http.messages import Answer, Request, Response
from headrace.http.rest.credentials import CredentialDoor, caller, read
from headrace.http.rest.reading import answer, invalid
from headrace.http.router import Router
from headrace.security.acl_book import granting
from headrace.security.desk import Security
from headrace.security.records import Mode, Pattern, ScramRecord, word
from headrace.security.rights import CLUSTER, Operation, Resource, alter, describe, needs
from headrace.security.scram import LEAST_ITERATIONS, MOST_ITERATIONS, SHA_256, SHA_512

HOUR_MS = 3_600_000
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


class SecurityDoor:
    def __init__(self, security: Security, clock: Clock, broker_id: int) -> None:
        self._security = security
        self._image = security.image
        self._clock = clock
        self._broker_id = broker_id

    def mount(self, router: Router) -> None:
        base = "/api/v1/security"
        router.add("GET", base, self._status, _LOOK)
        router.add("PUT", f"{base}/mode", self._set_mode, _CHANGE)
        router.add("PUT", f"{base}/super-users", self._set_super_users, _CHANGE)
        router.add("GET", f"{base}/users", self._users, _LOOK)
        router.add("POST", f"{base}/users", self._add_user, _CHANGE)
        router.add("PUT", f"{base}/users/{{user}}/password", self._set_password, _CHANGE)
        router.add("PATCH", f"{base}/users/{{user}}", self._change_user, _CHANGE)
        router.add("DELETE", f"{base}/users/{{user}}", self._delete_user, _CHANGE)
        CredentialDoor(self._security).mount(router)
        router.add("GET", f"{base}/denials", self._denials, _LOOK)
        router.add("POST", f"{base}/explain", self._explain, _LOOK)

    async def _status(self, request: Request) -> Answer:
        image = self._image
        return answer(
            timed(
                {
                    "mode": image.mode.mode,
                    "since_ms": image.mode.since_ms,
                    "by": image.mode.by,
                    "users": len(image.users),
                    "rights": len(image.acls),
                    "super_users": sorted(image.super_users),
                    "broker": self._broker_id,
                    "revision": self._security.admin.revision,
                    "unreadable": sorted(image.unreadable),
                    "denied": self._security.denials.total,
                    "failed_logins": self._security.logins.limits.failures,
                }
            )
        )

    async def _set_mode(self, request: Request) -> Answer:
        wanted = read(request, ModeChange)
        image = self._image
        if wanted.mode is Mode.ENFORCED and not wanted.force:
            self._need_ready()
        if wanted.mode is not Mode.OPEN and not image.super_users:
            raise HeadraceError(
                ErrorKind.POLICY_VIOLATION,
                "there is no super user yet: nobody could administer the cluster",
                "Create one with: headrace user create admin --super",
            )
        await self._security.admin.set_mode(wanted.mode, caller(request))
        return await self._status(request)

    def _need_ready(self) -> None:
        """A52: enforcing refuses while somebody would be locked out by it."""
        since_ms = self._clock.wall_ms() - HOUR_MS
        denied = [f"{want.principal} {word(want.operation)} {word(want.resource)} {want.name}".rstrip()
                  for want, _ in self._security.denials.since(since_ms)]  # fmt: skip
        nameless = [
            f"{host} {client_id}".rstrip()
            for host, client_id, _ in self._security.denials.nameless_since(since_ms)
        ]
        if not denied and not nameless:
            return
        words = []
        if nameless:
            words.append(f"{len(nameless)} came without a name ({', '.join(nameless[:5])})")
        if denied:
            words.append(f"{len(denied)} would be denied ({', '.join(denied[:5])})")
        raise HeadraceError(
            ErrorKind.CONFLICT,
            f"in the last hour {' and '.join(words)}",
            "GET /api/v1/security/denials lists them; headrace acl suggest writes the rights; force does it all the same.",
        )

    async def _set_super_users(self, request: Request) -> Answer:
        wanted = read(request, SuperUsers).super_users
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

    async def _users(self, request: Request) -> Answer:
        image = self._image
        return answer({"items": [self._shown(name) for name in sorted(image.users)], "next_cursor": None})

    def _shown(self, name: str) -> dict[str, Any]:
        image = self._image
        user = image.users[name]
        return timed(
            {
                "name": name,
                "enabled": user.enabled,
                "created_ms": user.created_ms,
                "mechanisms": sorted(image.scram.get(name, ())),
                "super": f"{USER}:{name}" in image.super_users,
            }
        )

    async def _add_user(self, request: Request) -> Answer:
        wanted = read(request, NewUser)
        if wanted.name in self._image.users:
            raise Taken(ErrorKind.CONFLICT, f"there is a user {wanted.name!r} already")
        admin = self._security.admin
        await admin.alter_scram(wanted.name, _records(wanted.scram))
        if wanted.super:
            await admin.set_super_users([*self._image.super_users, f"{USER}:{wanted.name}"])
        return answer(self._shown(wanted.name), 201)

    async def _set_password(self, request: Request) -> Answer:
        name = request.params["user"]
        if name not in self._image.users:
            raise HeadraceError(ErrorKind.RESOURCE_NOT_FOUND, f"there is no user {name!r}")
        await self._security.admin.alter_scram(name, _records(read(request, NewPassword).scram))
        return answer(self._shown(name))

    async def _change_user(self, request: Request) -> Answer:
        name = request.params["user"]
        await self._security.admin.set_enabled(name, read(request, UserChange).enabled)
        return answer(self._shown(name))

    async def _delete_user(self, request: Request) -> Answer:
        await self._security.admin.delete_user(request.params["user"])
        return Response(b"", 204, "")

    async def _denials(self, request: Request) -> Answer:
        since_ms = self._clock.wall_ms() - 24 * HOUR_MS
        denials = self._security.denials
        return answer(
            {
                "broker": self._broker_id,
                "denied": [
                    timed(
                        {
                            "principal": want.principal,
                            "operation": word(want.operation),
                            "resource": word(want.resource),
                            "name": want.name,
                            "count": times.count,
                            "last_ms": times.last_ms,
                            "host": times.host,
                        }
                    )
                    for want, times in denials.since(since_ms)
                ],
                "nameless": [
                    timed({"host": host, "client": client, "count": times.count, "last_ms": times.last_ms})
                    for host, client, times in denials.nameless_since(since_ms)
                ],
            }
        )

    async def _explain(self, request: Request) -> Answer:
        """A48: what would be said to somebody, by which rule, and what would allow it."""
        asked = read(request, Question)
        kind, _, name = asked.principal.partition(":")
        operation = _named(Operation, asked.operation, "operation")
        resource = _named(Resource, asked.resource, "resource")
        thing, host = asked.name, asked.host
        if kind != USER or not name:
            raise invalid("principal is User:name")
        verdict = self._image.decide(Principal(kind, name), host, operation, resource, thing)
        grants: list[dict[str, Any]] = []
        if not verdict.allowed:
            grants = [
                {"principal": f"{kind}:{name}", "operation": word(Operation(each)), "resource": word(resource),
                 "name": thing, "pattern": Pattern.LITERAL.name.lower()}
                for each in granting(operation)
            ]  # fmt: skip
        return answer({"allowed": verdict.allowed, "rule": verdict.rule, "granted_by": grants})


def _named(kind: type[Any], value: object, what: str) -> Any:
    for each in kind:
        if str(value).replace("_", "").lower() == each.name.replace("_", "").lower():
            return each
    raise invalid(f"{what} is one of {', '.join(word(each) for each in kind)}")


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
