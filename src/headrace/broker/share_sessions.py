"""Machine: share sessions (KIP-932): which partitions a member reads from this broker, so that it need not say so again.

A session belongs to one member of one group, and to the connection it came over: when that closes, what the member
holds is given back. Epoch 0 opens, -1 closes, anything else must be the next number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.core.errors import ErrorKind
from headrace.core.limits import MAX_SHARE_SESSION_PARTITIONS, MAX_SHARE_SESSIONS

OPEN, FINAL = 0, -1
MAX_SESSIONS = MAX_SHARE_SESSIONS
MAX_PARTITIONS = MAX_SHARE_SESSION_PARTITIONS
_MAX_EPOCH = 2**31 - 1

Key = tuple[bytes, int]
"""Topic id and partition."""
Owner = tuple[str, str]
"""Group and member."""


class ShareSession:
    __slots__ = ("connection_id", "epoch", "owner", "partitions")

    def __init__(self, owner: Owner, connection_id: int) -> None:
        self.owner = owner
        self.connection_id = connection_id
        self.epoch = 1
        self.partitions: dict[Key, None] = {}

    def rotate(self, keys: Iterable[Key]) -> None:
        """Partitions that gave something go to the end, so that all get their turn."""
        for key in keys:
            if key in self.partitions:
                del self.partitions[key]
                self.partitions[key] = None


class Turn(NamedTuple):
    """What one request may do. `session` is None for a final one: it reads nothing."""

    session: ShareSession | None
    is_new: bool = False


class ShareSessions:
    def __init__(self) -> None:
        self._sessions: dict[Owner, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, owner: Owner, epoch: int, connection_id: int, added: Iterable[Key], forgotten: Iterable[Key]
    ) -> Turn | ErrorKind:
        added = list(added)
        kept = self._sessions.get(owner)
        if len(added) + (0 if epoch == OPEN or kept is None else len(kept.partitions)) > MAX_PARTITIONS:
            return ErrorKind.SHARE_SESSION_LIMIT_REACHED
        if epoch == OPEN:
            if owner not in self._sessions and len(self._sessions) >= MAX_SESSIONS:
                return ErrorKind.SHARE_SESSION_LIMIT_REACHED
            session = self._sessions[owner] = ShareSession(owner, connection_id)
            session.partitions.update(dict.fromkeys(added))
            return Turn(session, True)
        held = self._sessions.get(owner)
        if held is None:
            return ErrorKind.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL:
            del self._sessions[owner]
            return Turn(None)
        if epoch != held.epoch:
            return ErrorKind.INVALID_SHARE_SESSION_EPOCH
        held.epoch = 1 if held.epoch == _MAX_EPOCH else held.epoch + 1
        for key in forgotten:
            held.partitions.pop(key, None)
        for key in added:
            held.partitions.setdefault(key)
        return Turn(held)

    def connection_closed(self, connection_id: int) -> list[Owner]:
        """Whose sessions ended with this connection."""
        gone = [owner for owner, session in self._sessions.items() if session.connection_id == connection_id]
        for owner in gone:
            del self._sessions[owner]
        return gone
