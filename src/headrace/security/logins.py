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
from headrace.security.audit import AuditTrail
from headrace.security.certified import Rule, user_of
from headrace.security.image import SecurityImage
from headrace.security.issuers import Issuers
from headrace.security.jwts import BadToken
from headrace.security.last_use import LastUse
from headrace.security.login_limits import LoginLimits
from headrace.security.passwords import Busy, Passwords
from headrace.security.records import DELEGATION, DelegationRecord, token_key
from headrace.security.scram import (
    LEAST_ITERATIONS,
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
IDLE_MS = 30 * 60_000
"""A session that nobody has used for so long has ended (W18), as far as this broker has seen."""
MOST_SESSIONS = 10_000


class LoginFailed(Exception):
    """The text is for our log. Raised after the delay."""


class Step(NamedTuple):
    answer: bytes
    principal: Principal | None = None
    """Set by the last one."""
    expires_ms: int = 0
    """Wall time at which what proved it ends; 0: it does not."""
    credential: str = ""
    """What proved it, where it may be less than its owner or end before: the key of a token."""


class SaslExchange(Protocol):
    async def step(self, token: bytes) -> Step:
        """Raises LoginFailed; Busy when it can't be found out now."""
        ...


class Logins:
    def __init__(
        self,
        runtime: Runtime,
        image: SecurityImage,
        secret: Callable[[], bytes],
        audit: AuditTrail,
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
        self.last_use = LastUse(runtime.clock, image)
        self._runtime = runtime
        self._secret = secret
        self._sessions: dict[str, int] = {}
        """When each was last used, by our monotonic clock."""
        self._plain_without_tls = plain_without_tls
        self._issuers = issuers
        self._certificate_rules = certificate_rules
        self._max_reauth_ms = max(max_reauth_ms, LEAST_REAUTH_MS) if max_reauth_ms else 0

    def mechanisms(self, is_tls: bool) -> list[str]:
        """On offer at such a connection. A password in the clear needs TLS (X4)."""
        offered = [SHA_256, SHA_512]
        return [*offered, PLAIN, OAUTHBEARER] if is_tls or self._plain_without_tls else offered

    def begin(self, mechanism: str, host: str) -> SaslExchange:
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

    def need_heard(self, host: str) -> None:
        """Raises Busy. Asked with each proof, too: who has opened many connections first is not heard on any of them."""
        if self.is_shut_out(host):
            raise Busy

    async def by_password(self, name: str, password: str, host: str, mechanism: str = "basic") -> Principal:
        """Raises LoginFailed, after a delay; Busy."""
        right = await self.passwords.check(name, password)
        self.need_heard(host)
        if not right:
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
        assert digest is not None
        principal = self.proved(held.owner, host, "token")
        key = token_key(digest, held)
        self.last_use.note(key)
        return Step(b"", principal, held.expires_ms, key)

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

    def by_session(self, token: str) -> Step:
        """As a token, from a browser's cookie. Raises LoginFailed. A page whose session has ended goes on asking, and guesses nothing."""
        digest = digest_of(token)
        held = None if digest is None else self.image.tokens.get(digest)
        if held is None or self._runtime.clock.wall_ms() >= held.expires_ms:
            raise LoginFailed("no such session, or not any more")
        if not self.image.is_enabled(held.owner):
            raise LoginFailed("the user is disabled")
        now_ms = self._runtime.clock.now_ms()
        assert digest is not None
        if now_ms - self._sessions.get(digest, now_ms) > IDLE_MS:
            raise LoginFailed("nobody has used the session for half an hour")
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions = {one: ms for one, ms in self._sessions.items() if one in self.image.tokens}
        self._sessions[digest] = now_ms
        key = token_key(digest, held)
        self.last_use.note(key)
        return Step(b"", Principal(USER, held.owner), held.expires_ms, key)

    def guessed(self, host: str, reason: str = "no such token or key, or not any more") -> None:
        """Something that nobody guesses was wrong: it is counted, and answered without delay."""
        self.audit.login_failed("", host, reason)
        self.limits.failed(host, "", self._runtime.clock.now_ms())

    def nonce(self) -> bytes:
        return self._runtime.random_bytes(NONCE_BYTES)

    def find(self, mechanism: str, name: str, is_token: bool = False) -> ScramUser:
        if is_token:
            return self._find_delegation(mechanism, name)
        record = self.image.scram.get(name, {}).get(mechanism)
        if record is None or not self.image.is_enabled(name):
            return ScramUser(name, record or made_up(mechanism, name, self._secret()), False)
        return ScramUser(name, record, True)

    def _find_delegation(self, mechanism: str, token_id: str) -> ScramUser:
        held = self.image.delegations.get(token_id)
        if held is None or not self.is_good(held):
            made = made_up(mechanism, f"token {token_id}", self._secret(), LEAST_ITERATIONS)
            return ScramUser(token_id, made, False)
        owner = held.owner.partition(":")[2]
        return ScramUser(owner, held.scram[mechanism], True, DELEGATION + token_id, held.expires_ms)

    def is_good(self, held: DelegationRecord) -> bool:
        """It has not ended, and its owner is not shut out; an owner of an issuer elsewhere has no record here."""
        user = self.image.users.get(held.owner.partition(":")[2])
        return self._runtime.clock.wall_ms() < held.expires_ms and (user is None or user.enabled)

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
        self._server = ScramServer(
            mechanism, lambda name, is_token: logins.find(mechanism, name, is_token), logins.nonce()
        )

    async def step(self, token: bytes) -> Step:
        try:
            if not self._server.is_waiting_for_proof:
                return Step(self._server.first(token))
            self._logins.need_heard(self._host)
            user, proof = self._server.final(token)
        except ScramFailed as problem:
            raise await self._logins.failed(self._server.name, self._host, str(problem)) from None
        if not self._is_good_still(user):
            raise await self._logins.failed(user.name, self._host, "disabled in between")
        principal = self._logins.admitted(user.name, self._host, self._mechanism)
        return Step(proof, principal, user.expires_ms, user.credential)

    def _is_good_still(self, user: ScramUser) -> bool:
        if not user.credential:
            return self._logins.image.is_enabled(user.name)
        held = self._logins.image.delegations.get(user.credential.removeprefix(DELEGATION))
        return held is not None and self._logins.is_good(held)


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
