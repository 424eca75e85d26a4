"""Driver: changing users, rights and the mode in the coordinator, and hearing of changes (A30).

Every change is one compared transaction (R1); what has to end because of a change is ended by whoever is in `on_revoked` (A9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from headrace.broker.metadata import Decision, Metadata
from headrace.broker.runtime import Runtime
from headrace.cluster import keys
from headrace.cluster.changes import Change, DeleteKey, Expect, PutKey
from headrace.cluster.deltas import Delta, OpaqueChanged
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.principals import USER, Principal
from headrace.security.access_keys import make_access_key
from headrace.security.audit import AuditTrail
from headrace.security.image import SecurityImage
from headrace.security.key_ring import KeyRing
from headrace.security.records import (
    DELEGATION,
    KEYS,
    MODE,
    SPACE,
    SUPER_USERS,
    Acl,
    KeyRecord,
    Mode,
    ModeRecord,
    ScramRecord,
    TokenGrant,
    TokenRecord,
    UserRecord,
    acl_key,
    checked_name,
    encode,
    scram_key,
    tenant_rights,
    token_key,
    user_key,
)
from headrace.security.tokens import RANDOM_BYTES, digest_of, make_token

log = logging.getLogger(__name__)

MAX_USERS = 100_000
MAX_ACLS = 100_000
MAX_TOKENS = 100
MAX_KEYS = 20
DAY_MS = 86_400_000
AT_ONCE = 50
"""Operations in one transaction of the coordinator."""

_PREFIX = f"{SPACE}/"
Ops = Sequence[tuple[str, bytes | None]]
"""Key below `security/`, and its new value; None deletes it."""


class SecurityAdmin:
    def __init__(self, runtime: Runtime, metadata: Metadata, image: SecurityImage, audit: AuditTrail) -> None:
        self.image = image
        self._audit = audit
        self.on_revoked: list[Callable[[str, str], None]] = []
        """Told the name of a user whose connections must end, and by which credential they came; empty: whichever."""
        self._runtime = runtime
        self._metadata = metadata
        image.load(metadata.image.opaque(SPACE))
        audit.is_on = image.guards
        self._tell_unreadable()

    @property
    def revision(self) -> int:
        return self._metadata.revision

    def heard(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, OpaqueChanged) and delta.key.startswith(_PREFIX):
                revoked = self.image.apply(delta.key[len(_PREFIX) :], delta.value)
                self._audit.is_on = self.image.guards
                if revoked is not None:
                    for end in self.on_revoked:
                        end(revoked.name, revoked.credential)
                if self.image.unreadable:
                    self._tell_unreadable()

    def _tell_unreadable(self) -> None:
        for key, problem in self.image.unreadable.items():
            log.error(
                "security key %r can't be read (%s): until it is mended it takes rights away; write it again or delete it",
                key, problem,
            )  # fmt: skip

    # -- the mode ----------------------------------------------------------------------------------------------------

    async def set_mode(self, mode: Mode, by: Principal) -> None:
        record = ModeRecord(mode, self._runtime.clock.wall_ms(), str(by))
        await self.commit(lambda: [(MODE, encode(record))], f"security mode {mode} by {by}")

    async def set_super_users(self, names: Iterable[str]) -> None:
        """Principals. They can't be removed down to none (A34)."""
        wanted = sorted(set(names))
        if not wanted:
            raise HeadraceError(
                ErrorKind.POLICY_VIOLATION,
                "the last super user can't be removed: nobody could administer the cluster",
            )
        await self.commit(lambda: [(SUPER_USERS, encode(wanted))], "super users")

    # -- users -------------------------------------------------------------------------------------------------------

    async def alter_scram(
        self, name: str, upserts: dict[str, ScramRecord], deletions: Sequence[str] = ()
    ) -> None:
        """KIP-554, of one user. Raises RESOURCE_NOT_FOUND when one to be deleted is not there; a new user is made."""
        checked_name(name)

        def ops() -> Ops:
            held = self.image.scram.get(name, {})
            if any(mechanism not in held for mechanism in deletions):
                raise HeadraceError(
                    ErrorKind.RESOURCE_NOT_FOUND, f"user {name!r} has no such password to delete"
                )
            made: list[tuple[str, bytes | None]] = []
            if upserts and name not in self.image.users:
                self._need_room(len(self.image.users), MAX_USERS, "users")
                made.append((user_key(name), encode(UserRecord(self._runtime.clock.wall_ms()))))
            made += [(scram_key(name, mechanism), encode(record)) for mechanism, record in upserts.items()]
            made += [(scram_key(name, mechanism), None) for mechanism in deletions]
            if not upserts and not held.keys() - set(deletions):
                # Who has nothing left to log in with is gone, with every open connection (A9).
                self._need_other_super_user(name)
                made.append((user_key(name), None))
            return made

        await self.commit(ops, f"credentials of user {name!r}")

    async def found(self, name: str, scram: dict[str, ScramRecord], keys: dict[str, bytes]) -> None:
        """The first administrator, unless there is one. `keys`: ids of access keys, and their secrets, sealed."""

        def ops() -> Ops:
            if self.image.super_users:
                return []
            now_ms = self._runtime.clock.wall_ms()
            return [
                (SUPER_USERS, encode([f"{USER}:{name}"])),
                (user_key(name), encode(UserRecord(now_ms))),
                *((scram_key(name, each), encode(record)) for each, record in scram.items()),
                *((KEYS + each, encode(KeyRecord(name, sealed, now_ms))) for each, sealed in keys.items()),
            ]

        await self.commit(ops, f"the first administrator {name!r}")

    async def set_enabled(self, name: str, enabled: bool) -> None:
        def ops() -> Ops:
            user = self._need_user(name)
            if not enabled:
                self._need_other_super_user(name)
            return [(user_key(name), encode(msgspec.structs.replace(user, enabled=enabled)))]

        await self.commit(ops, f"user {name!r} {'enabled' if enabled else 'disabled'}")

    async def delete_user(self, name: str) -> None:
        def ops() -> Ops:
            self._need_user(name)
            self._need_other_super_user(name)
            gone = [user_key(name), *(scram_key(name, each) for each in self.image.scram.get(name, {}))]
            return [(key, None) for key in (*gone, *self._credentials_of(name)[:AT_ONCE])]

        self._need_user(name)
        self._need_other_super_user(name)
        while len(doomed := self._credentials_of(name)) > AT_ONCE:
            # First, so that nobody who is given this name again finds them alive.
            await self.commit(
                lambda doomed=doomed: [(key, None) for key in doomed[:AT_ONCE]],  # type: ignore[misc]
                f"credentials of user {name!r}",
            )
        await self.commit(ops, f"user {name!r} deleted")

    def _credentials_of(self, name: str) -> list[str]:
        image = self.image
        return [
            *(token_key(digest, held) for digest, held in image.tokens.items() if held.owner == name),
            *(KEYS + key_id for key_id, held in image.keys.items() if held.owner == name),
            *(
                DELEGATION + each
                for each, held in image.delegations.items()
                if held.owner == f"{USER}:{name}"
            ),
        ]

    def _need_user(self, name: str) -> UserRecord:
        user = self.image.users.get(name)
        if user is None:
            raise HeadraceError(ErrorKind.RESOURCE_NOT_FOUND, f"there is no user {name!r}")
        return user

    def _need_other_super_user(self, name: str) -> None:
        """A34: somebody must be left who can administer the cluster."""
        image, mine = self.image, f"{USER}:{name}"
        if mine in image.super_users and not any(
            not other.startswith(f"{USER}:") or image.is_enabled(other.partition(":")[2])
            for other in image.super_users - {mine}
        ):
            raise HeadraceError(
                ErrorKind.POLICY_VIOLATION,
                f"{name!r} is the last super user: nobody could administer the cluster",
            )

    # -- tenants ---------------------------------------------------------------------------------------------------

    async def make_tenant(self, name: str, prefix: str) -> None:
        """A63: a user without a password, and all of what begins with `prefix`. Raises CONFLICT where tenants would overlap."""
        checked_name(name)

        def ops() -> Ops:
            for other, user in self.image.users.items():
                held = user.tenant
                if other == name or (held and (held.startswith(prefix) or prefix.startswith(held))):
                    raise HeadraceError(ErrorKind.CONFLICT, f"{prefix} would be {other!r}'s too")
            self._need_room(len(self.image.users), MAX_USERS, "users")
            user = UserRecord(self._runtime.clock.wall_ms(), tenant=prefix)
            rights = [(acl_key(acl), encode(acl)) for acl in tenant_rights(name, prefix)]
            return [(user_key(name), encode(user)), *rights]

        await self.commit(ops, f"tenant {name!r}")

    async def end_tenant(self, name: str, prefix: str) -> None:
        """With its user and its rights; what it has written stays, and is nobody's."""
        await self.delete_user(name)
        await self.remove_acls([acl for acl in tenant_rights(name, prefix) if acl in self.image.acls])

    # -- tokens ------------------------------------------------------------------------------------------------------

    async def make_token(
        self,
        owner: str,
        name: str,
        days: int = 0,
        *,
        lasts_ms: int = 0,
        rights: tuple[TokenGrant, ...] | None = None,
    ) -> tuple[str, str, TokenRecord]:
        """The token, which nobody can show again; under what it is kept; and what is known of it. `rights`: it may these
        alone, as far as its owner may them (A40)."""
        self._need_user(owner)
        mine = sum(held.owner == owner for held in self.image.tokens.values())
        self._need_room(mine, MAX_TOKENS, "tokens of one user")
        token = make_token(self._runtime.random_bytes(RANDOM_BYTES))
        digest = digest_of(token)
        assert digest is not None
        now_ms = self._runtime.clock.wall_ms()
        record = TokenRecord(owner, name, now_ms, now_ms + days * DAY_MS + lasts_ms, rights)
        await self.commit(lambda: [(token_key(digest, record), encode(record))], f"a token of {owner!r}")
        return token, digest, record

    async def delete_token(self, digest: str) -> None:
        held = self.image.tokens.get(digest)
        if held is not None:
            await self.commit(lambda: [(token_key(digest, held), None)], "a token deleted")

    # -- access keys -------------------------------------------------------------------------------------------------

    async def make_key(self, owner: str, name: str, ring: KeyRing) -> tuple[str, str, KeyRecord]:
        """Its id; the secret, which nobody can show again; and what is known of it."""
        self._need_user(owner)
        mine = sum(held.owner == owner for held in self.image.keys.values())
        self._need_room(mine, MAX_KEYS, "access keys of one user")
        key_id, secret = make_access_key(self._runtime.random_bytes)
        record = KeyRecord(owner, ring.seal(key_id, secret), self._runtime.clock.wall_ms(), name)
        await self.commit(lambda: [(KEYS + key_id, encode(record))], f"an access key of {owner!r}")
        return key_id, secret, record

    async def delete_key(self, key_id: str) -> None:
        await self.commit(lambda: [(KEYS + key_id, None)], f"access key {key_id} deleted")

    # -- rights ------------------------------------------------------------------------------------------------------

    async def add_acls(self, acls: Sequence[Acl]) -> None:
        fresh = [acl for acl in dict.fromkeys(acls) if acl not in self.image.acls]
        self._need_room(len(self.image.acls) + len(fresh), MAX_ACLS + 1, "rights")
        for first in range(0, len(fresh), AT_ONCE):
            some = fresh[first : first + AT_ONCE]
            await self.commit(
                lambda some=some: [(acl_key(acl), encode(acl)) for acl in some],  # type: ignore[misc]
                f"rights added: {'; '.join(acl.words for acl in some)}",
            )

    async def remove_acls(self, acls: Sequence[Acl]) -> None:
        for first in range(0, len(acls), AT_ONCE):
            some = acls[first : first + AT_ONCE]
            await self.commit(
                lambda some=some: [(acl_key(acl), None) for acl in some],  # type: ignore[misc]
                f"rights removed: {'; '.join(acl.words for acl in some)}",
            )

    # -- common ------------------------------------------------------------------------------------------------------

    def _need_room(self, held: int, most: int, what: str) -> None:
        if held >= most:
            raise HeadraceError(ErrorKind.POLICY_VIOLATION, f"a cluster has at most {most} {what}")

    async def commit(self, make: Callable[[], Ops], words: str) -> None:
        """`words`: for the audit; empty: nobody has changed anything."""
        was_on = self._audit.is_on

        async def decide() -> Decision[bool]:
            compares: list[Expect] = []
            ops: list[PutKey | DeleteKey] = []
            for name, value in make():
                key = keys.opaque(SPACE, name)
                compares.append(self._metadata.unchanged(key))
                ops.append(DeleteKey(key) if value is None else PutKey(key, value))
            return Decision((Change(tuple(compares), tuple(ops), words),) if ops else (), bool(ops))

        changed = await self._metadata.compare_and_swap(decide, "this")
        if changed and words and (was_on or self._audit.is_on):
            self._audit.changed(words)
