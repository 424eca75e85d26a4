"""Driver: delegation tokens (KIP-48, A43): an id and a secret that log in with SCRAM in the name of their owner, for hours.

What programs like Spark's own Kafka connector hand to their workers. The secret is kept sealed (it can be asked for again, as in Kafka); what SCRAM
needs of it is made once, when the token is.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from headrace.broker.runtime import Runtime
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.principals import Principal
from headrace.security.admin import AT_ONCE, Ops, SecurityAdmin
from headrace.security.image import SecurityImage
from headrace.security.key_ring import KeyRing
from headrace.security.records import DELEGATION, DelegationRecord, ScramRecord, encode
from headrace.security.scram import HASHES, LEAST_ITERATIONS, SALT_BYTES, record_of, salted_password

DAY_MS = 86_400_000
LONGEST_MS = 7 * DAY_MS
RENEW_MS = DAY_MS
SECRET_BYTES = 64
ID_BYTES = 16
MOST_RENEWERS = 100
MOST_OF_ONE = 1_000
"""Tokens of one owner: a job has one, and forgets to end it."""


class Held(NamedTuple):
    token_id: str
    record: DelegationRecord


class Delegation:
    def __init__(self, runtime: Runtime, admin: SecurityAdmin, ring: KeyRing) -> None:
        self._runtime = runtime
        self._admin = admin
        self._ring = ring

    @property
    def _image(self) -> SecurityImage:
        return self._admin.image

    def _now_ms(self) -> int:
        return self._runtime.clock.wall_ms()

    async def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[str], lasts_ms: int
    ) -> tuple[Held, bytes]:
        """The token and its secret. `lasts_ms`: at most; none said: a week. Raises DELEGATION_TOKEN_AUTH_DISABLED."""
        if not self._ring.can_seal:
            raise HeadraceError(
                ErrorKind.DELEGATION_TOKEN_AUTH_DISABLED,
                "this broker has no key to seal secrets with, so it makes no delegation tokens",
                "start it with --secure, or with --secrets-key-file",
            )
        await self._forget_ended()
        mine = sum(record.owner == str(owner) for record in self._image.delegations.values())
        if mine >= MOST_OF_ONE or len(renewers) > MOST_RENEWERS:
            raise HeadraceError(
                ErrorKind.POLICY_VIOLATION,
                f"a user has at most {MOST_OF_ONE} delegation tokens, each with at most {MOST_RENEWERS} renewers",
            )
        secret = self._runtime.random_bytes(SECRET_BYTES)
        token_id = base64.urlsafe_b64encode(self._runtime.random_bytes(ID_BYTES)).decode().rstrip("=")
        scram = await self._runtime.run_blocking(lambda: self._scram(secret))
        now_ms = self._now_ms()
        max_ms = now_ms + (min(lasts_ms, LONGEST_MS) if lasts_ms > 0 else LONGEST_MS)
        record = DelegationRecord(
            owner=str(owner),
            requester=str(requester),
            renewers=tuple(renewers),
            issued_ms=now_ms,
            expires_ms=min(max_ms, now_ms + RENEW_MS),
            max_ms=max_ms,
            digest=sha256(secret).hexdigest(),
            sealed=self._ring.seal(token_id, base64.b64encode(secret).decode()),
            scram=scram,
        )
        await self._put(token_id, record, f"a delegation token of {owner} by {requester}")
        return Held(token_id, record), secret

    def _scram(self, secret: bytes) -> dict[str, ScramRecord]:
        """The password is the secret in base64. So much chance needs no more iterations than clients insist on."""
        password = base64.b64encode(secret).decode()
        made = {}
        for mechanism in HASHES:
            salt = self._runtime.random_bytes(SALT_BYTES)
            salted = salted_password(mechanism, password, salt, LEAST_ITERATIONS)
            made[mechanism] = record_of(mechanism, salted, salt, LEAST_ITERATIONS)
        return made

    async def renew(self, secret: bytes, by: Principal, period_ms: int) -> int:
        """Until when it is good now. Raises DELEGATION_TOKEN_NOT_FOUND, _EXPIRED, _OWNER_MISMATCH."""
        held = self._find(secret, by)
        now_ms = self._now_ms()
        if now_ms >= held.record.expires_ms:
            raise HeadraceError(ErrorKind.DELEGATION_TOKEN_EXPIRED, "it has ended")
        return await self._set_end(held, now_ms + (period_ms if period_ms >= 0 else RENEW_MS))

    async def expire(self, secret: bytes, by: Principal, period_ms: int) -> int:
        """Until when it is good now; a negative period ends it at once. Raises as `renew`."""
        held = self._find(secret, by)
        now_ms = self._now_ms()
        if period_ms < 0:
            await self._admin.commit(
                lambda: [(DELEGATION + held.token_id, None)],
                f"a delegation token of {held.record.owner} ended",
            )
            return now_ms
        if now_ms >= held.record.expires_ms:
            raise HeadraceError(ErrorKind.DELEGATION_TOKEN_EXPIRED, "it has ended")
        return await self._set_end(held, now_ms + period_ms)

    def all(self) -> Iterator[Held]:
        """Those that are good still."""
        now_ms = self._now_ms()
        for token_id, record in list(self._image.delegations.items()):
            if record.expires_ms > now_ms:
                yield Held(token_id, record)

    def secret_of(self, held: Held) -> bytes:
        """Empty: this broker can't open it."""
        opened = self._ring.open(held.record.sealed, held.token_id)
        return b"" if opened is None else base64.b64decode(opened)

    def _find(self, secret: bytes, by: Principal) -> Held:
        digest = sha256(secret).hexdigest()
        for token_id, record in self._image.delegations.items():
            if hmac.compare_digest(record.digest, digest):
                if str(by) not in (record.owner, record.requester, *record.renewers):
                    raise HeadraceError(
                        ErrorKind.DELEGATION_TOKEN_OWNER_MISMATCH, "it is neither yours nor yours to renew"
                    )
                return Held(token_id, record)
        raise HeadraceError(ErrorKind.DELEGATION_TOKEN_NOT_FOUND, "there is no such delegation token")

    async def _set_end(self, held: Held, ends_ms: int) -> int:
        ends_ms = min(ends_ms, held.record.max_ms)
        await self._put(
            held.token_id, held.record.until(ends_ms), f"a delegation token of {held.record.owner} lasts anew"
        )
        return ends_ms

    async def _put(self, token_id: str, record: DelegationRecord, words: str) -> None:
        await self._admin.commit(lambda: [(DELEGATION + token_id, encode(record))], words)

    async def _forget_ended(self) -> None:
        def ops() -> Ops:
            now_ms = self._now_ms()
            ended = [
                token_id for token_id, held in self._image.delegations.items() if held.expires_ms <= now_ms
            ]
            return [(DELEGATION + token_id, None) for token_id in ended[:AT_ONCE]]

        await self._admin.commit(ops, "delegation tokens that had ended")
