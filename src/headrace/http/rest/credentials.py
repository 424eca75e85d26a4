"""Door: /api/v1/security/tokens and /keys: what programs prove with that they are somebody (A23, A31).

One's own need no right; those of others are the administrator's. What is secret is in the answer that makes it and nowhere else.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.moments import timed
from headrace.core.principals import ANONYMOUS, USER, Principal
from headrace.http.messages import Answer, Request, Response
from headrace.http.rest.reading import answer, invalid, json_object
from headrace.http.router import Router
from headrace.security.desk import Security
from headrace.security.records import KeyRecord, TokenRecord
from headrace.security.rights import OWN, Operation, Resource
from headrace.security.tokens import DEFAULT_DAYS, MOST_DAYS

ID_CHARS = 16
"""Of a token's digest: what it is called when it is listed and deleted."""


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=100)] = ""
    days: Annotated[int, Meta(ge=1, le=MOST_DAYS)] = DEFAULT_DAYS
    owner: str = ""
    """Empty: whoever asks."""


class NewKey(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=100)] = ""
    owner: str = ""
    """Empty: whoever asks."""


class CredentialDoor:
    def __init__(self, security: Security) -> None:
        self._security = security
        self._image = security.image

    def mount(self, router: Router) -> None:
        base = "/api/v1/security"
        router.add("GET", f"{base}/tokens", self._tokens, OWN)
        router.add("POST", f"{base}/tokens", self._add_token, OWN)
        router.add("DELETE", f"{base}/tokens/{{token}}", self._delete_token, OWN)
        router.add("GET", f"{base}/keys", self._keys, OWN)
        router.add("POST", f"{base}/keys", self._add_key, OWN)
        router.add("DELETE", f"{base}/keys/{{key}}", self._delete_key, OWN)

    # -- tokens ------------------------------------------------------------------------------------------------------

    async def _tokens(self, request: Request) -> Answer:
        items = [
            _shown_token(digest, held)
            for digest, held in sorted(self._image.tokens.items(), key=lambda item: item[1].created_ms)
            if _is_own(request, held.owner) or _may(request, Operation.DESCRIBE)
        ]
        return answer({"items": items, "next_cursor": None})

    async def _add_token(self, request: Request) -> Answer:
        wanted = read(request, NewToken)
        owner = wanted.owner or caller(request).name
        _need_own(request, owner)
        token, digest, held = await self._security.admin.make_token(owner, wanted.name, wanted.days)
        return answer({**_shown_token(digest, held), "token": token}, 201)

    async def _delete_token(self, request: Request) -> Answer:
        identifier = request.params["token"]
        for digest, held in self._image.tokens.items():
            if digest[:ID_CHARS] == identifier and _may_delete(request, held.owner):
                await self._security.admin.delete_token(digest)
                return Response(b"", 204, "")
        raise HeadraceError(ErrorKind.NOT_FOUND, f'there is no token "{identifier}"')

    # -- access keys -------------------------------------------------------------------------------------------------

    async def _keys(self, request: Request) -> Answer:
        items = [
            _shown_key(key_id, held)
            for key_id, held in sorted(self._image.keys.items(), key=lambda item: item[1].created_ms)
            if _is_own(request, held.owner) or _may(request, Operation.DESCRIBE)
        ]
        return answer({"items": items, "next_cursor": None})

    async def _add_key(self, request: Request) -> Answer:
        wanted = read(request, NewKey)
        owner = wanted.owner or caller(request).name
        _need_own(request, owner)
        security = self._security
        key_id, secret, held = await security.admin.make_key(owner, wanted.name, security.keys)
        return answer({**_shown_key(key_id, held), "secret": secret}, 201)

    async def _delete_key(self, request: Request) -> Answer:
        key_id = request.params["key"]
        held = self._image.keys.get(key_id)
        if held is None or not _may_delete(request, held.owner):
            raise HeadraceError(ErrorKind.NOT_FOUND, f'there is no access key "{key_id}"')
        await self._security.admin.delete_key(key_id)
        return Response(b"", 204, "")


def _shown_token(digest: str, held: TokenRecord) -> dict[str, Any]:
    return timed(
        {
            "id": digest[:ID_CHARS],
            "owner": held.owner,
            "name": held.name,
            "created_ms": held.created_ms,
            "expires_ms": held.expires_ms,
        }
    )


def _shown_key(key_id: str, held: KeyRecord) -> dict[str, Any]:
    return timed({"id": key_id, "owner": held.owner, "name": held.name, "created_ms": held.created_ms})


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


def read(request: Request, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(json_object(request), kind)
    except msgspec.ValidationError as problem:
        raise invalid(str(problem)) from None
