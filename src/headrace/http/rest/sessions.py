"""Door: who asks, what they may, and logging in to the console (W15, W18).

GET    /api/v1/session        ?topic=|group=    who asks; what they may do to the cluster, or to that topic or group
POST   /api/v1/session        {"user": "", "password": ""}, {"token": ""} or {"link": ""}: a cookie for twelve hours
DELETE /api/v1/session        log out
POST   /api/v1/session/links  a link that logs in once, within a minute (`headrace open`)

A session is a token (A23): kept as a hash in the coordinator, so every broker knows it, listed and revoked as tokens are. The cookie is HttpOnly and
SameSite=Strict; changes carry a word that only a page of ours can read (guarding.py).
"""

from __future__ import annotations

import base64

from headrace.broker.runtime import Runtime
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.principals import ANONYMOUS, USER
from headrace.http.contract import Contract, Param
from headrace.http.declared import Door, route
from headrace.http.guarding import COOKIES, HttpGuard, Unauthenticated, csrf_of, session_of, unauthenticated
from headrace.http.messages import Answer, Request, Response
from headrace.http.rest.credentials import need_whole
from headrace.http.rest.forms.service import MadeLink, MadeSession, NewSession, ShownSession
from headrace.http.rest.reading import answer, body_of, invalid
from headrace.security.access import Access
from headrace.security.desk import Security
from headrace.security.logins import LoginFailed, Step
from headrace.security.passwords import Busy
from headrace.security.rights import BEFORE_LOGIN, OWN, Operation, Resource
from headrace.security.tokens import digest_of

HOURS = 12
LINK_MS = 60_000
MAX_LINKS = 1_000
MAX_SESSIONS = 20
"""Of one user; the oldest ends when there are more."""
NAME = "console"
NO_STORE = (("cache-control", "no-store"),)


class SessionDoor(Door):
    def __init__(self, runtime: Runtime, security: Security, guard: HttpGuard) -> None:
        self._runtime = runtime
        self._security = security
        self._guard = guard
        self._links: dict[str, tuple[str, int]] = {}
        """Of this broker: who it logs in, and until when."""
        guard.idling.end = self._end

    @property
    def _mode(self) -> str:
        return self._security.image.mode.mode

    @route(
        "GET",
        "/api/v1/session",
        BEFORE_LOGIN,
        Contract(
            "Who asks, and what they may do",
            "service",
            {200: ShownSession},
            query=(
                Param("topic", "what they may do to this topic"),
                Param("group", "what they may do to this group or queue"),
            ),
            problems=(400,),
        ),
    )
    async def _show(self, request: Request) -> Answer:
        access: Access | None = None
        if self._guard.is_on:
            try:
                access = await self._guard.identify(request)
            except Unauthenticated:
                pass
        named = access is not None and not access.is_nameless
        token = session_of(request) if named else ""
        return answer(
            ShownSession(
                principal=str(ANONYMOUS if access is None else access.principal),
                mode=self._mode,
                authenticated=named,
                login=self._mode == "enforced" and not named,
                address=request.peer.host,
                may=["*"] if self._mode != "enforced" else [] if access is None else _may(request, access),
                csrf=csrf_of(token) if token else None,
            ),
            headers=NO_STORE,
        )

    @route(
        "POST",
        "/api/v1/session",
        BEFORE_LOGIN,
        Contract(
            "Log in to the console",
            "service",
            {201: MadeSession},
            "Sets a cookie for twelve hours.",
            body=(NewSession,),
            problems=(400, 429),
        ),
    )
    async def _login(self, request: Request) -> Answer:
        if not self._guard.is_on:
            raise invalid("this broker asks nobody who they are", "headrace security init gives it users.")
        try:
            shown = await self._proved(request, body_of(request, NewSession))
        except LoginFailed:
            return unauthenticated(request, "the user name, the password or the token is wrong, or has ended")
        except Busy:
            raise HeadraceError(
                ErrorKind.BROKER_NOT_AVAILABLE, "too many logins at once; try again in a moment"
            ) from None
        principal = shown.principal
        assert principal is not None
        await self._end_oldest(principal.name)
        # A session that was begun with a token is no more than the token, and ends no later.
        rights = self._security.image.rights_of(shown.credential)
        lasts_ms = HOURS * 3_600_000
        if shown.expires_ms:
            lasts_ms = min(lasts_ms, shown.expires_ms - self._runtime.clock.wall_ms())
        token, _, record = await self._security.admin.make_token(
            principal.name, NAME, lasts_ms=lasts_ms, rights=rights
        )
        made = MadeSession(principal=str(principal), csrf=csrf_of(token), expires_ms=record.expires_ms)
        return answer(made, 201, (*NO_STORE, ("set-cookie", _cookie(request, token, HOURS * 3_600))))

    async def _proved(self, request: Request, body: NewSession) -> Step:
        """Raises LoginFailed, Busy."""
        logins, host = self._security.logins, request.peer.host
        if logins.is_shut_out(host):
            raise HeadraceError(
                ErrorKind.THROTTLING_QUOTA_EXCEEDED, "too many wrong passwords from this address"
            )
        if body.link:
            name, until_ms = self._links.pop(body.link, ("", 0))
            if until_ms <= self._runtime.clock.now_ms():
                logins.guessed(host)
                raise LoginFailed("no such link, or not any more")
            return Step(b"", logins.proved(name, host, "link"))
        if body.token:
            return logins.by_token(body.token.strip(), host)
        return Step(b"", await logins.by_password(body.user, body.password, host, "console"))

    async def _end_oldest(self, owner: str) -> None:
        now_ms = self._runtime.clock.wall_ms()
        own = sorted(
            (held.created_ms, digest, held.expires_ms)
            for digest, held in self._security.image.tokens.items()
            if held.owner == owner and held.name == NAME
        )
        for place, (_, digest, expires_ms) in enumerate(own):
            if expires_ms <= now_ms or place <= len(own) - MAX_SESSIONS:
                await self._security.admin.delete_token(digest)

    @route(
        "DELETE", "/api/v1/session", BEFORE_LOGIN, Contract("Log out", "service", {204: None}, problems=())
    )
    async def _logout(self, request: Request) -> Answer:
        await self._end(session_of(request))
        return Response(b"", 204, "", (("set-cookie", _cookie(request, "", 0)),))

    async def _end(self, token: str) -> None:
        digest = digest_of(token)
        if digest is not None and digest in self._security.image.tokens:
            await self._security.admin.delete_token(digest)

    @route(
        "POST",
        "/api/v1/session/links",
        OWN,
        Contract(
            "A link that logs in once, within a minute", "service", {201: MadeLink}, problems=(400, 429)
        ),
    )
    async def _link(self, request: Request) -> Answer:
        access = request.access
        if access is None or access.is_nameless or access.principal.kind != USER:
            raise invalid("a link logs a user in, and this broker asks nobody who they are")
        need_whole(self._security, request)
        now_ms = self._runtime.clock.now_ms()
        self._links = {code: held for code, held in self._links.items() if held[1] > now_ms}
        if len(self._links) >= MAX_LINKS:
            raise HeadraceError(ErrorKind.THROTTLING_QUOTA_EXCEEDED, "too many links wait to be used")
        code = base64.urlsafe_b64encode(self._runtime.random_bytes(24)).decode()
        self._links[code] = (access.principal.name, now_ms + LINK_MS)
        return answer(MadeLink(path=f"/console#login={code}", lasts_ms=LINK_MS), 201, NO_STORE)


def _cookie(request: Request, token: str, seconds: int) -> str:
    secure = request.peer.is_tls
    name = COOKIES[0] if secure else COOKIES[1]
    return (
        f"{name}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
    )


def _may(request: Request, access: Access) -> list[str]:
    query = request.query
    resource, name = Resource.CLUSTER, ""
    if "topic" in query:
        resource, name = Resource.TOPIC, query["topic"]
    elif "group" in query:
        resource, name = Resource.GROUP, query["group"]
    return [one.name.lower() for one in Operation if access.may(one, resource, name)]
