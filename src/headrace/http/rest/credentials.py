"""Door: /api/v1/security/tokens and /keys: what programs prove with that they are somebody (A23, A31).

One's own need no right; those of others are the administrator's. What is secret is in the answer that makes it and nowhere else.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.principals import ANONYMOUS, USER, Principal
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request, Response
from headrace.http.rest.forms.queues import CHANGE_PROBLEMS
from headrace.http.rest.forms.security import (
    KeyPage,
    MadeKey,
    MadeToken,
    ShownKey,
    ShownToken,
    TokenPage,
    TokenRight,
)
from headrace.http.rest.reading import answer, body_of, invalid
from headrace.security.acl_book import CLUSTER_NAME
from headrace.security.desk import Security
from headrace.security.records import (
    ALL_OPERATIONS,
    ANY_NAME,
    KEYS,
    TOKEN_ID_CHARS,
    KeyRecord,
    PatternType,
    TokenGrant,
    TokenRecord,
    token_key,
    word,
)
from headrace.security.rights import LEGAL, OWN, Operation, Resource
from headrace.security.tokens import DEFAULT_DAYS, MOST_DAYS

E = TypeVar("E", Operation, Resource)


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=100)] = ""
    days: Annotated[int, Meta(ge=1, le=MOST_DAYS)] = DEFAULT_DAYS
    owner: str = ""
    """Empty: whoever asks."""
    rights: Annotated[list[TokenRight], Meta(min_length=1, max_length=100)] | None = None
    """It may these alone, as far as its owner may them; none given: whatever its owner may."""


class NewKey(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=100)] = ""
    owner: str = ""
    """Empty: whoever asks."""


class CredentialDoor(Door):
    def __init__(self, security: Security) -> None:
        self._security = security
        self._image = security.image

    # -- tokens ------------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/api/v1/security/tokens",
        OWN,
        Contract(
            "List tokens",
            "security",
            {200: TokenPage},
            "One's own; an administrator sees all. Never the tokens themselves.",
            problems=(),
        ),
    )
    async def _tokens(self, request: Request) -> Answer:
        items = [
            self._shown_token(digest, held)
            for digest, held in sorted(self._image.tokens.items(), key=lambda item: item[1].created_ms)
            if _is_own(request, held.owner) or _may(request, Operation.DESCRIBE)
        ]
        return answer(TokenPage(items=items, next_cursor=None))

    @route(
        "POST",
        "/api/v1/security/tokens",
        OWN,
        Contract(
            "Make a token",
            "security",
            {201: MadeToken},
            "For oneself without any right. The token is in this answer and nowhere else.",
            body=(NewToken,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _add_token(self, request: Request) -> Answer:
        wanted = body_of(request, NewToken)
        owner = wanted.owner or caller(request).name
        _need_own(request, owner)
        need_whole(self._security, request)
        rights = None if wanted.rights is None else tuple(grant_of(each) for each in wanted.rights)
        token, digest, held = await self._security.admin.make_token(
            owner, wanted.name, wanted.days, rights=rights
        )
        return answer(MadeToken(**asdict(self._shown_token(digest, held)), token=token), 201)

    @route(
        "DELETE",
        "/api/v1/security/tokens/{token}",
        OWN,
        Contract("Delete a token", "security", {204: None}, "By its id.", problems=CHANGE_PROBLEMS),
    )
    async def _delete_token(self, request: Request) -> Answer:
        identifier = request.params["token"]
        need_whole(self._security, request)
        for digest, held in self._image.tokens.items():
            if digest[:TOKEN_ID_CHARS] == identifier and _may_delete(request, held.owner):
                access = request.access
                if access is not None and access.credential == token_key(digest, held):
                    access.credential = ""  # who ends their own token hears that it has ended
                await self._security.admin.delete_token(digest)
                return Response(b"", 204, "")
        raise HeadraceError(ErrorKind.NOT_FOUND, f'there is no token "{identifier}"')

    # -- access keys -------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/api/v1/security/keys",
        OWN,
        Contract(
            "List access keys",
            "security",
            {200: KeyPage},
            "One's own; an administrator sees all. Never their secrets.",
            problems=(),
        ),
    )
    async def _keys(self, request: Request) -> Answer:
        items = [
            self._shown_key(key_id, held)
            for key_id, held in sorted(self._image.keys.items(), key=lambda item: item[1].created_ms)
            if _is_own(request, held.owner) or _may(request, Operation.DESCRIBE)
        ]
        return answer(KeyPage(items=items, next_cursor=None))

    @route(
        "POST",
        "/api/v1/security/keys",
        OWN,
        Contract(
            "Make an access key for SQS",
            "security",
            {201: MadeKey},
            "For oneself without any right. The secret is in this answer and nowhere else.",
            body=(NewKey,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _add_key(self, request: Request) -> Answer:
        wanted = body_of(request, NewKey)
        owner = wanted.owner or caller(request).name
        _need_own(request, owner)
        need_whole(self._security, request)
        security = self._security
        key_id, secret, held = await security.admin.make_key(owner, wanted.name, security.keys)
        return answer(MadeKey(**asdict(self._shown_key(key_id, held)), secret=secret), 201)

    @route(
        "DELETE",
        "/api/v1/security/keys/{key}",
        OWN,
        Contract("Delete an access key", "security", {204: None}, problems=CHANGE_PROBLEMS),
    )
    async def _delete_key(self, request: Request) -> Answer:
        key_id = request.params["key"]
        need_whole(self._security, request)
        held = self._image.keys.get(key_id)
        if held is None or not _may_delete(request, held.owner):
            raise HeadraceError(ErrorKind.NOT_FOUND, f'there is no access key "{key_id}"')
        await self._security.admin.delete_key(key_id)
        return Response(b"", 204, "")

    def _shown_token(self, digest: str, held: TokenRecord) -> ShownToken:
        return ShownToken(
            id=digest[:TOKEN_ID_CHARS],
            owner=held.owner,
            name=held.name,
            created_ms=held.created_ms,
            expires_ms=held.expires_ms,
            last_used_ms=self._security.logins.last_use.of(token_key(digest, held), held),
            rights=None if held.rights is None else [_shown_right(each) for each in held.rights],
        )

    def _shown_key(self, key_id: str, held: KeyRecord) -> ShownKey:
        used_ms = self._security.logins.last_use.of(KEYS + key_id, held)
        return ShownKey(
            id=key_id, owner=held.owner, name=held.name, created_ms=held.created_ms, last_used_ms=used_ms
        )


def _shown_right(grant: TokenGrant) -> TokenRight:
    prefixed = grant.pattern is PatternType.PREFIXED
    return TokenRight(
        operation="All" if grant.operation == ALL_OPERATIONS else word(Operation(grant.operation)),
        resource=word(grant.resource),
        name="" if grant.resource is Resource.CLUSTER else grant.name + ("*" if prefixed else ""),
    )


def grant_of(given: TokenRight) -> TokenGrant:
    """Raises INVALID_REQUEST for what no resource of that kind has."""
    resource = named(Resource, given.resource, "resource")
    operation = ALL_OPERATIONS
    if given.operation.lower() != "all":
        operation = named(Operation, given.operation, "operation")
        if operation not in LEGAL[resource]:
            raise invalid(f"a {word(resource)} has no operation {word(operation)}")
    if resource is Resource.CLUSTER:
        return TokenGrant(operation, resource, CLUSTER_NAME)
    if not given.name:
        raise invalid(f"which {word(resource)}? A right of a token has a name, name* or *")
    if given.name != ANY_NAME and given.name.endswith(ANY_NAME):
        return TokenGrant(operation, resource, given.name[:-1], PatternType.PREFIXED)
    return TokenGrant(operation, resource, given.name)


def need_whole(security: Security, request: Request) -> None:
    """A40: with a token that may less nobody makes, or ends, what may more."""
    access = request.access
    if access is not None and security.image.rights_of(access.credential) is not None:
        raise HeadraceError(
            ErrorKind.ACCESS_DENIED, "a token that may less than its owner makes and deletes no credentials"
        )


def _is_own(request: Request, owner: str) -> bool:
    return caller(request) == Principal(USER, owner)


def _may(request: Request, operation: Operation) -> bool:
    return request.access is None or request.access.may(operation, Resource.CLUSTER, "")


def _may_delete(request: Request, owner: str) -> bool:
    return _is_own(request, owner) or _may(request, Operation.ALTER)


def _need_own(request: Request, owner: str) -> None:
    if not _is_own(request, owner) and not _may(request, Operation.ALTER):
        raise HeadraceError(ErrorKind.ACCESS_DENIED, "needs Alter on cluster, for what is somebody else's")


def caller(request: Request) -> Principal:
    return ANONYMOUS if request.access is None else request.access.principal


def named(kind: type[E], value: str, what: str) -> E:
    for each in kind:
        if value.replace("_", "").lower() == each.name.replace("_", "").lower():
            return each
    raise invalid(f"{what} is one of {', '.join(word(each) for each in kind)}")
