"""Driver: how somebody proves to be a user: SASL exchanges of the Kafka door, names and passwords of the HTTP door.

One text for whatever is wrong with a credential (A16), after a delay that grows with failures of that user (A61). A trouble of our
own is not a wrong credential: clients give up on those, so nothing is said and the connection ends (A17).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from headrace.broker.runtime import Runtime
from headrace.core.principals import USER, Principal
from headrace.security.audit import Audit
from headrace.security.certified import Rule, user_of
from headrace.security.image import SecurityImage
from headrace.security.issuers import Issuers
from headrace.security.jwts import BadToken
from headrace.security.login_limits import LoginLimits
from headrace.security.passwords import Passwords
from headrace.security.scram import (
    NONCE_BYTES,
    SHA_256,
    SHA_512,
    ScramFailed,
    ScramServer,
    ScramUser,
    made_up,
)
from headrace.security.tokens import PREFIX, digest_of

log = logging.getLogger(__name__)

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
LEAST_REAUTH_MS = 60_000
"""Shorter, and some clients log in before every request (KIP-368)."""
REFUSAL = "the user name or the password is wrong"
MAX_TOKEN_BYTES = 8 * 1024
_JITTER_MS = 50


class LoginFailed(Exception):
    """The text is for our log. Raised after the delay."""


class Step(NamedTuple):
    answer: bytes
    principal: Principal | None = None
    """Set by the last one."""
    expires_ms: int = 0
    """Wall time at which what proved it ends; 0: it does not."""


class Exchange(Protocol):
    async def step(self, token: bytes) -> Step:
        """Raises LoginFailed; Busy when it can't be found out now."""
        ...


class Logins:
    def __init__(
        self,
        runtime: Runtime,
        image: SecurityImage,
        secret: Callable[[], bytes],
        audit: Audit,
        *,
        plain_without_tls: bool = False,
        issuers: Issuers | None = None,
        max_reauth_ms: int = 0,
        certificate_rules: Sequence[Rule] = (),
    ) -> None:
        """`secret`: the cluster's, for what is answered about users that do not exist. Asked when there are users."""
        self.limits = LoginLimits()
        self.image = image
        self.audit = audit
        self.passwords = Passwords(runtime, image, secret)
        self._runtime = runtime
        self._secret = secret
        self._plain_without_tls = plain_without_tls
        self._issuers = issuers
        self._certificate_rules = certificate_rules
        self._max_reauth_ms = max(max_reauth_ms, LEAST_REAUTH_MS) if max_reauth_ms else 0

    def mechanisms(self, is_tls: bool) -> list[str]:
        """On offer at such a connection. A password in the clear needs TLS (X4)."""
        offered = [SHA_256, SHA_512]
        return [*offered, PLAIN, OAUTHBEARER] if is_tls or self._plain_without_tls else offered

    def begin(self, mechanism: str, host: str) -> Exchange:
        if mechanism == OAUTHBEARER:
            return _Bearer(self, host)
        return _Plain(self, host) if mechanism == PLAIN else _Scram(self, mechanism, host)

    def lifetime_ms(self, expires_ms: int) -> int:
        """How long a login is good that was proven by something which ends then (KIP-368); 0: for ever. Over already: 1."""
        left_ms = max(1, expires_ms - self._runtime.clock.wall_ms()) if expires_ms else 0
        both = [each for each in (left_ms, self._max_reauth_ms) if each]
        return min(both, default=0)

    def now_ms(self) -> int:
        return self._runtime.clock.now_ms()

    def is_shut_out(self, host: str) -> bool:
        return self.limits.is_shut_out(host, self._runtime.clock.now_ms())

    async def by_password(self, name: str, password: str, host: str, mechanism: str = "basic") -> Principal:
        """Raises LoginFailed, after a delay; Busy."""
        if not await self.passwords.check(name, password):
            raise await self.failed(name, host, "wrong name or password")
        return self.admitted(name, host, mechanism)

    def by_bearer(self, token: str, host: str) -> Step:
        """A token of ours, or one of the issuer. Raises LoginFailed; Busy when it can't be found out now."""
        if token.startswith(PREFIX) or self._issuers is None:
            return self.by_token(token, host)
        try:
            found = self._issuers.check(token)
        except BadToken as problem:
            self.guessed(host, str(problem))
            raise LoginFailed(str(problem)) from None
        user = self.image.users.get(found.name)
        if user is not None and not user.enabled:
            self.guessed(host, "the user is disabled")
            raise LoginFailed("the user is disabled")
        return Step(b"", self.proved(found.name, host, "jwt"), found.expires_ms)

    def by_token(self, token: str, host: str) -> Step:
        """Raises LoginFailed. Nobody guesses one, so there is no delay; but who tries is counted."""
        digest = digest_of(token)
        held = None if digest is None else self.image.tokens.get(digest)
        clock = self._runtime.clock
        if held is None or clock.wall_ms() >= held.expires_ms or not self.image.is_enabled(held.owner):
            self.guessed(host)
            raise LoginFailed("no such token, or not any more")
        return Step(b"", self.proved(held.owner, host, "token"), held.expires_ms)

    def by_certificate(self, shown: Mapping[str, Any] | None, host: str) -> Principal | None:
        """None: nothing was shown, or nobody here is known by one. Raises LoginFailed: who shows one of nobody does not come in without (X3)."""
        if not shown or not self._certificate_rules:
            return None
        name = user_of(self._certificate_rules, shown)
        user = None if name is None else self.image.users.get(name)
        if name is None or (user is not None and not user.enabled):
            reason = "a certificate that is of nobody here" if name is None else "the user is disabled"
            self.guessed(host, reason)
            raise LoginFailed(reason)
        return self.proved(name, host, "certificate")

    def proved(self, name: str, host: str, mechanism: str) -> Principal:
        """By something that nobody guesses."""
        principal = Principal(USER, name)
        self.audit.logged_in(str(principal), host, mechanism)
        return principal

    def by_session(self, token: str) -> Principal:
        """As a token, from a browser's cookie. Raises LoginFailed. A page whose session has ended goes on asking, and guesses nothing."""
        digest = digest_of(token)
        held = None if digest is None else self.image.tokens.get(digest)
        if held is None or self._runtime.clock.wall_ms() >= held.expires_ms:
            raise LoginFailed("no such session, or not any more")
        if not self.image.is_enabled(held.owner):
            raise LoginFailed("the user is disabled")
        return Principal(USER, held.owner)

    def guessed(self, host: str, reason: str = "no such token or key, or not any more") -> None:
        """Something that nobody guesses was wrong: it is counted, and answered without delay."""
        self.audit.login_failed("", host, reason)
        self.limits.failed(host, "", self._runtime.clock.now_ms())

    def nonce(self) -> bytes:
        return self._runtime.random_bytes(NONCE_BYTES)

    def find(self, mechanism: str, name: str) -> ScramUser:
        record = self.image.scram.get(name, {}).get(mechanism)
        if record is None or not self.image.is_enabled(name):
            return ScramUser(name, record or made_up(mechanism, name, self._secret()), False)
        return ScramUser(name, record, True)

    def admitted(self, name: str, host: str, mechanism: str) -> Principal:
        self.limits.succeeded(host, name)
        return self.proved(name, host, mechanism)

    async def failed(self, name: str, host: str, reason: str) -> LoginFailed:
        delay_ms = self.limits.failed(host, name, self._runtime.clock.now_ms())
        # Client-made text goes through repr so that it can't forge log lines (X28).
        self.audit.login_failed(name, host, reason)
        log.warning("a login of %r from %s failed: %s", name, host, reason)
        jitter_ms = self._runtime.random_bytes(1)[0] * _JITTER_MS // 255
        await asyncio.sleep((delay_ms + jitter_ms) / 1000)
        return LoginFailed(reason)


class _Scram:
    def __init__(self, logins: Logins, mechanism: str, host: str) -> None:
        self._logins = logins
        self._host = host
        self._mechanism = mechanism
        self._server = ScramServer(mechanism, lambda name: logins.find(mechanism, name), logins.nonce())

    async def step(self, token: bytes) -> Step:
        try:
            if not self._server.is_waiting_for_proof:
                return Step(self._server.first(token))
            name, proof = self._server.final(token)
        except ScramFailed as problem:
            raise await self._logins.failed(self._server.name, self._host, str(problem)) from None
        if not self._logins.image.is_enabled(name):
            raise await self._logins.failed(name, self._host, "disabled in between")
        return Step(proof, self._logins.admitted(name, self._host, self._mechanism))


class _Plain:
    def __init__(self, logins: Logins, host: str) -> None:
        self._logins = logins
        self._host = host

    async def step(self, token: bytes) -> Step:
        try:
            authzid, name, password = token.decode().split("\0")
        except (UnicodeDecodeError, ValueError):
            raise await self._logins.failed("", self._host, "not a PLAIN token") from None
        if authzid not in ("", name):
            raise await self._logins.failed(name, self._host, "it wants to act as somebody else")
        return Step(b"", await self._logins.by_password(name, password, self._host, PLAIN))


class _Bearer:
    """RFC 7628. What is wrong is said as JSON first; the client confirms, and then the login has failed (A20)."""

    def __init__(self, logins: Logins, host: str) -> None:
        self._logins = logins
        self._host = host
        self._failure: LoginFailed | None = None

    async def step(self, token: bytes) -> Step:
        if self._failure is not None:
            raise self._failure
        try:
            return self._logins.by_bearer(_bearer_in(token), self._host)
        except LoginFailed as failure:
            self._failure = failure
            return Step(b'{"status":"invalid_token"}')


def _bearer_in(message: bytes) -> str:
    """The token of a first message; extensions are not looked at. Raises LoginFailed."""
    header, _, rest = message.partition(b"\x01")
    fields = dict(part.partition(b"=")[::2] for part in rest.split(b"\x01") if part)
    scheme, _, token = fields.get(b"auth", b"").decode("latin-1").partition(" ")
    if not header.startswith((b"n,", b"y,")) or scheme.lower() != "bearer" or not token:
        raise LoginFailed("not an OAUTHBEARER message")
    return token.strip()
