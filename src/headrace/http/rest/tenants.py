"""Door: /api/v1/security/tenants: everything whose name begins in a certain way, and a user to whom all of it belongs (A63).

A tenant is that user: rights on the prefix of topics, groups and transactional ids, a quota, a token; made, listed and ended as one. More users of a
tenant are made as users are, with its rights (`headrace acl copy`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from headrace.broker.quota_admin import QuotaAdmin
from headrace.cluster.image import ClusterImage
from headrace.cluster.quotas import CONSUMED, PRODUCED, REQUESTS, USER, Quotas
from headrace.core.errors import ErrorKind, HeadraceError, NameTaken
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request, Response
from headrace.http.rest.forms.queues import CHANGE_PROBLEMS
from headrace.http.rest.forms.security import MadeTenant, ShownTenant, TenantPage
from headrace.http.rest.reading import answer, body_of
from headrace.security.desk import Security
from headrace.security.rights import CLUSTER, alter, describe, needs
from headrace.security.tokens import DEFAULT_DAYS, MOST_DAYS

_PATH = "/api/v1/security/tenants"
_LOOK = needs(describe(CLUSTER))
_CHANGE = needs(alter(CLUSTER))
_RATE = Annotated[float, Meta(gt=0, le=1e15)]


class NewTenant(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
    produce: _RATE | None = None
    """Bytes a second."""
    consume: _RATE | None = None
    requests: _RATE | None = None
    """Percent of a second of a broker's time."""
    days: Annotated[int, Meta(ge=1, le=MOST_DAYS)] = DEFAULT_DAYS
    """How long its first token is good."""
    adopt: bool = False
    """Topics that begin so and are there already become the tenant's."""


class TenantDoor(Door):
    def __init__(
        self, security: Security, image: ClusterImage, quotas: Quotas, quota_admin: QuotaAdmin
    ) -> None:
        self._security = security
        self._image = image
        self._quotas = quotas
        self._quota_admin = quota_admin

    @route("GET", _PATH, _LOOK, Contract("List tenants", "security", {200: TenantPage}, problems=()))
    async def _list(self, request: Request) -> Answer:
        names = sorted(name for name, user in self._security.image.users.items() if user.tenant)
        return answer(TenantPage(items=[self._shown(name) for name in names], next_cursor=None))

    @route(
        "POST",
        _PATH,
        _CHANGE,
        Contract(
            "Make a tenant: a user, rights on a prefix, a quota, a token",
            "security",
            {201: MadeTenant},
            "Everything whose name begins with `name.` is its own, and it sees nothing else.",
            body=(NewTenant,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _add(self, request: Request) -> Answer:
        wanted = body_of(request, NewTenant)
        prefix = f"{wanted.name}."
        admin, users = self._security.admin, self._security.image.users
        if wanted.name in users:
            raise NameTaken(ErrorKind.CONFLICT, f"there is a user {wanted.name!r} already")
        held = self._topics(prefix)
        if held and not wanted.adopt:
            raise NameTaken(
                ErrorKind.CONFLICT,
                f"{len(held)} topics begin with {prefix} already ({', '.join(held[:3])}): they would be the tenant's",
                "adopt makes them so.",
            )
        await admin.make_tenant(wanted.name, prefix)
        limits = {PRODUCED: wanted.produce, CONSUMED: wanted.consume, REQUESTS: wanted.requests}
        values: dict[str, float | None] = {key: value for key, value in limits.items() if value is not None}
        if values:
            await self._quota_admin.alter({((USER, wanted.name),): values})
        token, _, _ = await admin.make_token(wanted.name, f"tenant {wanted.name}", wanted.days)
        made = MadeTenant(**asdict(self._shown(wanted.name)), token=token)
        return answer(made, 201, (("cache-control", "no-store"),))

    @route(
        "DELETE",
        f"{_PATH}/{{tenant}}",
        _CHANGE,
        Contract(
            "End a tenant",
            "security",
            {204: None},
            "With its user, rights, tokens and quota; its topics stay.",
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _delete(self, request: Request) -> Answer:
        name = request.params["tenant"]
        user = self._security.image.users.get(name)
        if user is None or not user.tenant:
            raise HeadraceError(ErrorKind.RESOURCE_NOT_FOUND, f"there is no tenant {name!r}")
        entity = ((USER, name),)
        held = self._quotas.values().get(entity)
        await self._security.admin.end_tenant(name, user.tenant)
        if held:
            await self._quota_admin.alter({entity: dict.fromkeys(held)})
        return Response(b"", 204, "")

    def _topics(self, prefix: str) -> list[str]:
        return sorted(name for name in self._image.topics if name.startswith(prefix))

    def _shown(self, name: str) -> ShownTenant:
        user = self._security.image.users[name]
        limits = self._quotas.values().get(((USER, name),), {})
        return ShownTenant(
            name=name,
            prefix=user.tenant,
            enabled=user.enabled,
            created_ms=user.created_ms,
            topics=len(self._topics(user.tenant)),
            produce=limits.get(PRODUCED),
            consume=limits.get(CONSUMED),
            requests=limits.get(REQUESTS),
        )
