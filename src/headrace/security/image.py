"""Machine: what this broker knows about users, rights and the mode, built from the coordinator's keys (A30).

It is fed by the cluster image, which already sees to it that a key only moves forward (R3). `version` grows with every change, so
what was decided can be kept until then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from headrace.core.principals import USER, Principal
from headrace.security.acl_book import AclBook, book_of
from headrace.security.authorizer import Verdict
from headrace.security.records import (
    ACLS,
    DELEGATION,
    KEYS,
    MODE,
    NARROWER,
    SCRAM,
    SUPER_USERS,
    TOKEN_ID_CHARS,
    TOKENS,
    USERS,
    Acl,
    DelegationRecord,
    KeyRecord,
    Mode,
    ModeRecord,
    ScramRecord,
    TokenGrant,
    TokenRecord,
    UserRecord,
    name_in,
)
from headrace.security.rights import Operation, Resource

_NOBODY = Verdict(False, "no right allows it")
_CLUSTER_ACTION = Verdict(False, "only brokers have ClusterAction")
_DISABLED = Verdict(False, "the user is disabled")
_ENDED = Verdict(False, "the token has ended")
_NARROWER = Verdict(False, "the user may, and the token is not for it")
_UNKNOWN = Verdict(
    False, "a right in the coordinator can't be read and may be a denial: see the broker's log"
)


class Revoked(NamedTuple):
    """This user's connections must end (A9); with a credential: those alone that were opened with it."""

    name: str
    credential: str = ""


class SecurityImage:
    def __init__(self) -> None:
        self.version = 0
        self.mode = ModeRecord(Mode.OPEN)
        self.guards = False
        """Anything is asked at all: every mode but open."""
        self.enforces = False
        """What is not allowed is refused; in mode observe it is only noted."""
        self.super_users: frozenset[str] = frozenset()
        self.users: dict[str, UserRecord] = {}
        self.scram: dict[str, dict[str, ScramRecord]] = {}
        """User -> mechanism -> record."""
        self.tokens: dict[str, TokenRecord] = {}
        """By the SHA-256 of the token."""
        self.delegations: dict[str, DelegationRecord] = {}
        """By their ids."""
        self._limits: dict[str, AclBook | None] = {}
        """What credentials that can end by themselves are for, by their keys; None: all that their owners may."""
        self.keys: dict[str, KeyRecord] = {}
        """By the id of the access key."""
        self.acls = AclBook()
        self.unreadable: dict[str, str] = {}
        """Keys whose values are not what they promise: an alarm (A51), and never a right."""
        self._unknown: set[str] = set()
        """Rights among them of which we never knew what they say. They may be denials, so they deny everything to everybody
        but super users."""

    def load(self, stored: Mapping[str, bytes]) -> None:
        for name, raw in stored.items():
            self.apply(name, raw)

    def apply(self, name: str, raw: bytes | None) -> Revoked | None:
        """One key below `security/`; None when it was deleted."""
        self.version += 1
        self.unreadable.pop(name, None)
        self._unknown.discard(name)
        try:
            return self._take(name, raw)
        except (msgspec.MsgspecError, ValueError) as problem:
            self.unreadable[name] = str(problem)
            return self._fail_closed(name)

    def _fail_closed(self, name: str) -> Revoked | None:
        """A51: damage takes away and never gives. A right that was known stays as it was; a mode that can't be read is the strictest."""
        if name == MODE:
            self._set_mode(ModeRecord(Mode.ENFORCED))
        elif name.startswith(USERS):
            user = name[len(USERS) :]
            with contextlib.suppress(ValueError):
                user = name_in(user)
            self.users[user] = UserRecord(enabled=False)
            return Revoked(user)
        elif name.startswith(ACLS) and not self.acls.has(name[len(ACLS) :]):
            self._unknown.add(name)
        return None

    def _set_mode(self, mode: ModeRecord) -> None:
        self.mode = mode
        self.guards = mode.mode is not Mode.OPEN
        self.enforces = mode.mode is Mode.ENFORCED

    def _take(self, name: str, raw: bytes | None) -> Revoked | None:
        if name == MODE:
            self._set_mode(
                ModeRecord(Mode.OPEN) if raw is None else msgspec.json.decode(raw, type=ModeRecord)
            )
        elif name == SUPER_USERS:
            self.super_users = frozenset(() if raw is None else msgspec.json.decode(raw, type=list[str]))
        elif name.startswith(USERS):
            return self._take_user(name_in(name[len(USERS) :]), raw)
        elif name.startswith(SCRAM):
            quoted, _, mechanism = name[len(SCRAM) :].rpartition("/")
            self._take_scram(name_in(quoted), mechanism, raw)
        elif name.startswith((TOKENS, NARROWER)):
            return self._take_token(name, raw)
        elif name.startswith(DELEGATION):
            return self._take_delegation(name, raw)
        elif name.startswith(KEYS):
            self.keys.pop(name[len(KEYS) :], None)
            if raw is not None:
                self.keys[name[len(KEYS) :]] = msgspec.json.decode(raw, type=KeyRecord)
        elif name.startswith(ACLS):
            acl = None if raw is None else msgspec.json.decode(raw, type=Acl)
            if acl is not None and acl.digest != name[len(ACLS) :]:
                raise ValueError("it is not the right that its key names")
            self.acls.remove(name[len(ACLS) :])
            if acl is not None:
                self.acls.add(acl)
        return None

    def _take_user(self, name: str, raw: bytes | None) -> Revoked | None:
        before = self.users.pop(name, None)
        if raw is not None:
            self.users[name] = msgspec.json.decode(raw, type=UserRecord)
            if self.users[name].enabled:
                return None
        return Revoked(name) if before is not None and before.enabled else None

    def _take_token(self, key: str, raw: bytes | None) -> Revoked | None:
        space, _, digest = key.partition("/")
        before = self.tokens.pop(digest, None)
        self._limits.pop(key, None)
        if raw is None:
            return None if before is None else Revoked(before.owner, key)
        record = msgspec.json.decode(raw, type=TokenRecord)
        if (record.rights is not None) != (f"{space}/" == NARROWER):
            raise ValueError("what it is for does not fit the place where it is kept")
        self.tokens[digest] = record
        self._limits[key] = None if record.rights is None else book_of(record.rights)
        return None

    def _take_delegation(self, key: str, raw: bytes | None) -> Revoked | None:
        token_id = key[len(DELEGATION) :]
        before = self.delegations.pop(token_id, None)
        self._limits.pop(key, None)
        if raw is None:
            return None if before is None else Revoked(before.owner.partition(":")[2], key)
        record = msgspec.json.decode(raw, type=DelegationRecord)
        self.delegations[token_id] = record
        self._limits[key] = None
        if before is not None and record.expires_ms < before.expires_ms:
            # What was opened with it would last for as long as it was good then.
            return Revoked(record.owner.partition(":")[2], key)
        return None

    def _take_scram(self, name: str, mechanism: str, raw: bytes | None) -> None:
        records = self.scram.setdefault(name, {})
        records.pop(mechanism, None)
        if raw is not None:
            records[mechanism] = msgspec.json.decode(raw, type=ScramRecord)
        if not records:
            del self.scram[name]

    def set_policy(self, queue: str, acls: Sequence[Acl]) -> None:
        """What the policy of a queue stands for; nothing when it has none."""
        self.version += 1
        self.acls.set_policy(queue, acls)

    def shows(self, reader: str, host: str, topic: str) -> bool:
        """Whether a principal, as text, finds a topic that it looks for by a pattern."""
        kind, _, name = reader.partition(":")
        return not self.enforces or (
            self.decide(Principal(kind, name), host, Operation.DESCRIBE, Resource.TOPIC, topic).allowed
        )

    def rights_of(self, credential: str) -> tuple[TokenGrant, ...] | None:
        """What a credential is for; None: all that its owner may. One that has ended is for nothing."""
        space, _, digest = credential.partition("/")
        if f"{space}/" != NARROWER:
            return None
        held = self.tokens.get(digest)
        return () if held is None else held.rights

    def is_delegated(self, credential: str) -> bool:
        return credential.startswith(DELEGATION)

    def narrower_id(self, credential: str) -> str:
        """What a token that may less is called in lists; empty: it is none."""
        space, _, digest = credential.partition("/")
        return digest[:TOKEN_ID_CHARS] if f"{space}/" == NARROWER else ""

    def is_enabled(self, name: str) -> bool:
        user = self.users.get(name)
        return user is not None and user.enabled

    # -- deciding ----------------------------------------------------------------------------------------------------

    def decide(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        name: str,
        credential: str = "",
    ) -> Verdict:
        """What the user may, and the credential too (A40). Whatever the mode."""
        verdict = self._of_user(principal, host, operation, resource, name)
        if not credential or not verdict.allowed:
            return verdict
        if credential not in self._limits:
            return _ENDED
        limits = self._limits[credential]
        if limits is None or self._by(limits, principal, host, operation, resource, name).allowed:
            return verdict
        return _NARROWER

    def _of_user(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str
    ) -> Verdict:
        """A37: super user, then any denial, then any right that allows it, else no."""
        if operation is Operation.CLUSTER_ACTION:
            return _CLUSTER_ACTION
        user = self.users.get(principal.name) if principal.kind == USER else None
        if user is not None and not user.enabled:
            return _DISABLED
        if str(principal) in self.super_users:
            return Verdict(True, f"{principal} is a super user")
        if self._unknown:
            return _UNKNOWN
        return self._by(self.acls, principal, host, operation, resource, name)

    def _by(
        self,
        book: AclBook,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        name: str,
    ) -> Verdict:
        found = book.find(principal, host, operation, resource, name)
        if found.deny is not None:
            return Verdict(False, found.deny.words)
        if found.allow is not None:
            if resource is Resource.TOPIC and operation is Operation.READ and name.startswith("__"):
                # A41: what the broker keeps for itself shows more than one topic's worth.
                seen = self._by(book, principal, host, Operation.DESCRIBE, Resource.CLUSTER, "")
                return Verdict(True, found.allow.words) if seen.allowed else seen
            return Verdict(True, found.allow.words)
        if operation is Operation.IDEMPOTENT_WRITE:
            somewhere = book.writes_somewhere(principal, host)
            if somewhere is not None:
                return Verdict(True, somewhere.words)
        return _NOBODY
