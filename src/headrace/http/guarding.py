"""Door: who sends a request, and whether they may: before each handler, except in mode open (A22, A45).

Names and passwords come as `Authorization: Basic`, tokens as `Bearer`. What another broker passes on is under its seal, and names whom it asks for (A27).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from hashlib import sha256

import msgspec

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.principals import ANONYMOUS, Principal
from headrace.http.before_after import differences
from headrace.http.idling import TOUCHED, Idling
from headrace.http.messages import Answer, Handler, Request, Response, StreamingResponse
from headrace.http.metering import Meter
from headrace.http.problem import problem
from headrace.security.access import TRUSTED, Access
from headrace.security.audit import ACTING, MOST_CHARS, AuditEvent
from headrace.security.guard import Guard
from headrace.security.logins import LoginFailed, Logins, Step
from headrace.security.passwords import Busy
from headrace.security.records import KEYS
from headrace.security.rights import Rights

PRINCIPAL = b"x-headrace-principal"
"""For whom a broker asks, under its seal. From anybody else it says nothing."""
CLIENT_HOST = b"x-headrace-client-host"
CREDENTIAL = b"x-headrace-credential"
"""By which of its tokens: it may allow less (A40)."""
CHALLENGE = ("www-authenticate", 'Bearer, Basic realm="headrace", charset="UTF-8"')
_HINT = "Send Authorization: Basic with your user name and password (curl -u user), or Bearer with a token."


CSRF = b"x-headrace-csrf"
COOKIES = ("__Host-headrace", "headrace-session")
"""Over TLS; and without, where a browser takes no `__Host-`."""


_NOBODY = Step(b"", ANONYMOUS)


LookAt = Callable[[Request], Awaitable[dict[str, str]]]


async def _look_at_nothing(request: Request) -> dict[str, str]:
    return {}


class Unauthenticated(Exception):
    """The text is for the caller."""


class HttpGuard:
    def __init__(self, guard: Guard, logins: Logins, meter: Meter, idling: Idling) -> None:
        self._guard = guard
        self._logins = logins
        self.meter = meter
        self.idling = idling
        self.look: LookAt = _look_at_nothing
        """At what a change is about (W22); set when there are routes to look with."""
        self._authorizer = guard.authorizer

    @property
    def is_on(self) -> bool:
        return self._authorizer.guards

    @property
    def enforces(self) -> bool:
        return self._authorizer.enforces

    def __call__(self, rights: Rights, handler: Handler) -> Handler:
        """A route's handler behind the guard."""
        if rights.before_login or rights.judged_inside:
            return handler

        def guarded(request: Request) -> Answer | Awaitable[Answer]:
            if not self._authorizer.guards:
                if is_change_of_page(request):
                    return self._noted(handler, request)
                return self.meter.metered(handler, request) if self.meter.is_on else handler(request)
            return self._judged(rights, handler, request)

        return guarded

    async def _judged(self, rights: Rights, handler: Handler, request: Request) -> Answer:
        try:
            request.access = await self.identify(request)
        except Unauthenticated as refusal:
            return unauthenticated(request, str(refusal))
        version = request.access.version
        self.check(rights, request.params, _body(request), request.access)
        ACTING.set(str(request.access.principal))
        answer = await self._answered(handler, request)
        is_told = request.method not in ("GET", "HEAD") and request.path.startswith(_TOLD)
        if is_told and answer.status < 300 and not is_change_of_page(request):  # that one is noted with more
            self.write_down(request, request.method, "", request.path, _said(request))
        if isinstance(answer, StreamingResponse):
            answer.chunks = self._while_allowed(rights, request, version, answer.chunks)
        elif request.access.version != version and request.method in ("GET", "HEAD"):
            # It has perhaps waited, and looked only: so it is asked for again (A9). What was done is told as it was.
            self.check(rights, request.params, {}, request.access)
        return answer

    async def _answered(self, handler: Handler, request: Request) -> Answer:
        if is_change_of_page(request):
            return await self._noted(handler, request)
        if self.meter.is_on:
            return await self.meter.metered(handler, request)
        answer = handler(request)
        return answer if isinstance(answer, Answer) else await answer

    async def _while_allowed(
        self, rights: Rights, request: Request, version: int, chunks: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        """A9: a stream ends before the first event that comes after the right to it was withdrawn."""
        access = request.access
        assert access is not None
        async with aclosing(chunks) as stream:  # type: ignore[type-var]
            async for chunk in stream:
                if access.version != version:
                    version = access.version
                    try:
                        self.check(rights, request.params, {}, access)
                    except HeadraceError:
                        return
                yield chunk

    async def _noted(self, handler: Handler, request: Request) -> Answer:
        """A change that somebody made in the console is written down (W22): by whom, from where, what, before and after, under which
        request id, and what came of it. In mode open nobody has said who they are."""
        status = 500
        before = await self.look(request)
        try:
            found = self.meter.metered(handler, request) if self.meter.is_on else handler(request)
            answer = found if isinstance(found, Answer) else await found
            status = answer.status
            return answer
        except HeadraceError as problem:
            status = problem.kind.info.http_status
            raise
        finally:
            who = "console@localhost" if request.access is None else str(request.access.principal)
            after = await self.look(request) if status < 300 else before
            self._logins.audit.tell(
                AuditEvent(
                    event="console", principal=who, host=request.peer.host, operation=request.method,
                    name=request.path[:MOST_CHARS], text=f"{status} {_said(request)}"[:MOST_CHARS],
                ),
                {"request_id": request.request_id, **differences(before, after)},
            )  # fmt: skip

    def write_down(self, request: Request, operation: str, resource: str, name: str, text: str) -> None:
        """A64: what has been changed, by whom; where it came in, and not again where it was passed on to."""
        access = request.access
        if access is not None and request.sender is None and not is_change_of_page(request):
            self._logins.audit.did(str(access.principal), request.peer.host, operation, resource, name, text)

    def check(
        self, rights: Rights, params: Mapping[str, str], body: Mapping[str, object], access: Access
    ) -> None:
        """Raises ACCESS_DENIED, or that there is no such thing."""
        self._guard.check_http(rights, params, body, access)

    async def identify(self, request: Request) -> Access:
        """Raises Unauthenticated."""
        host = request.peer.host
        if request.sender is not None:
            name = request.header(PRINCIPAL)
            if not name:
                return TRUSTED  # a broker that asks for itself
            kind, _, rest = name.partition(":")
            shown = Step(b"", Principal(kind, rest), credential=request.header(CREDENTIAL))
            return self._admitted(shown, request.header(CLIENT_HOST) or host, request)
        try:
            shown = await self._named(request)
        except Unauthenticated:
            if self._authorizer.enforces:
                raise
            shown = _NOBODY  # mode observe refuses nothing
        return self._admitted(shown, host, request)

    def admit(self, user: str, key_id: str, request: Request) -> Access:
        """Somebody who has proved by a signature, with this key, who they are. Raises Unauthenticated."""
        self._logins.last_use.note(KEYS + key_id)
        principal = self._logins.proved(user, request.peer.host, "signature")
        return self._admitted(Step(b"", principal), request.peer.host, request)

    def _admitted(self, shown: Step, host: str, request: Request) -> Access:
        assert shown.principal is not None
        access = self._guard.admit(shown.principal, host, request.header(b"user-agent"), shown.credential)
        if access is None:
            raise Unauthenticated("this needs a user name and a password")
        return access

    def need_heard(self, request: Request) -> None:
        """Raises THROTTLING_QUOTA_EXCEEDED: who guesses is not heard for a while (A61)."""
        if self._logins.is_shut_out(request.peer.host):
            raise HeadraceError(
                ErrorKind.THROTTLING_QUOTA_EXCEEDED, "too many wrong passwords from this address"
            )

    def failed(self, request: Request) -> None:
        """Somebody has not proved in another way who they are."""
        self._logins.guessed(request.peer.host)

    async def _of_session(self, request: Request) -> Step:
        """A page that somebody has logged in at (W18). What it changes it asks for with a word that only a page of ours can read."""
        token = session_of(request)
        if not token:
            return Step(b"", request.peer.certified_user or ANONYMOUS)
        try:
            shown = self._logins.by_session(token)
        except LoginFailed:
            raise Unauthenticated("the session has ended; log in again") from None
        is_change = request.method not in ("GET", "HEAD")
        if is_change and request.header(CSRF) != csrf_of(token):
            raise HeadraceError(
                ErrorKind.ACCESS_DENIED,
                f"a change within a session needs its {CSRF.decode()}",
                "GET /api/v1/session tells it to pages of this broker.",
            )
        if self.idling.has_ended(token, is_touch=is_change or TOUCHED in request.headers):
            await self.idling.end(token)
            raise Unauthenticated("the session has ended: nobody has touched it for a while; log in again")
        return shown

    async def _named(self, request: Request) -> Step:
        given = request.headers.get(b"authorization")
        if given is None:
            return await self._of_session(request)
        if session_of(request):
            raise HeadraceError(
                ErrorKind.INVALID_REQUEST,
                "the request says twice who sends it: by Authorization and by the cookie of a session",
                "Send one of them.",
            )
        scheme, _, value = given.decode("latin-1").partition(" ")
        host = request.peer.host
        self.need_heard(request)
        if scheme.lower() == "bearer":
            try:
                return self._logins.by_bearer(value.strip(), host)
            except LoginFailed:
                raise Unauthenticated("the token is not known, or has ended") from None
            except Busy:
                raise _not_now() from None
        if scheme.lower() != "basic":
            raise Unauthenticated(f"the scheme {scheme[:40]!r} is not served here")
        name, password = _basic(value)
        try:
            return Step(b"", await self._logins.by_password(name, password, host))
        except LoginFailed:
            raise Unauthenticated("the user name or the password is wrong") from None
        except Busy:
            raise _not_now() from None


def is_change_of_page(request: Request) -> bool:
    """A browser says that a page of this very origin asks; no program does. Being forwarded, it was noted where it came in."""
    return (
        request.method not in ("GET", "HEAD")
        and request.headers.get(b"sec-fetch-site") == b"same-origin"
        and request.sender is None
    )


_TOLD = ("/api/v1/topics", "/api/v1/queues", "/api/v1/groups", "/api/v1/subscriptions", "/api/v1/schedules")


def _said(request: Request) -> str:
    """What was asked for, where it can hold neither a message nor a secret."""
    return (
        request.body.decode("utf-8", "replace")
        if request.path.startswith(_TOLD) and b'"value"' not in request.body
        else ""
    )


def _not_now() -> HeadraceError:
    return HeadraceError(ErrorKind.BROKER_NOT_AVAILABLE, "logins can't be checked now; try again in a moment")


def _basic(value: str) -> tuple[str, str]:
    try:
        name, colon, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise Unauthenticated("the Authorization header is not readable") from None
    if not colon:
        raise Unauthenticated("the Authorization header has no password")
    return name, password


def session_of(request: Request) -> str:
    """The token in a cookie of ours; empty: there is none."""
    name = COOKIES[0] if request.peer.is_tls else COOKIES[1]
    for part in request.header(b"cookie").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value
    return ""


def csrf_of(token: str) -> str:
    return sha256(b"csrf " + token.encode()).hexdigest()[:32]


def named_sender(access: Access | None) -> dict[str, str]:
    """Headers of a request that is passed on: for whom."""
    if access is None or access is TRUSTED:
        return {}
    named = {PRINCIPAL.decode(): str(access.principal), CLIENT_HOST.decode(): access.host}
    return {**named, CREDENTIAL.decode(): access.credential} if access.credential else named


def unauthenticated(request: Request, detail: str) -> Response:
    return problem(
        401,
        "UNAUTHENTICATED",
        detail,
        hint=_HINT,
        request_id=request.request_id,
        instance=request.path,
        # A browser that sees Basic asks in a window of its own before the page can.
        headers=(("www-authenticate", "Bearer") if b"sec-fetch-site" in request.headers else CHALLENGE,),
    )


def _body(request: Request) -> Mapping[str, object]:
    """What is no object names nothing; the handler says what is wrong with it."""
    try:
        body = msgspec.json.decode(request.body) if request.body else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return body if isinstance(body, dict) else {}
