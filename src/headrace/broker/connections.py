"""Driver: the connections of the Kafka door, as far as the broker has to know them: which are open, and which of two is heard.

Ids rise with every connection that this broker accepts, so of two that speak for the same sender the newer can be told (R47).
"""

from __future__ import annotations

from typing import Protocol

from headrace.core.principals import USER, Principal
from headrace.transactions.connections import Leaderships, MarkerSenders, NewestConnections


class ClientConnection(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def principal(self) -> Principal: ...

    @property
    def credential(self) -> str: ...

    @property
    def idle_since_ms(self) -> int | None:
        """None while something is asked of it, or answered."""
        ...

    def close(self) -> None: ...


class Connections:
    def __init__(self, *, fencing: bool) -> None:
        """`fencing`: whether transactions of clients that do not bump epochs are kept apart by their connections."""
        self.newest_id = 0
        self.fencing = fencing
        self.producers = NewestConnections()
        self.offset_commits = NewestConnections()
        """The same for TxnOffsetCommit: clients may have one connection for records and another for offsets."""
        self.marker_senders = MarkerSenders()
        self.leaderships = Leaderships()
        self._open: dict[int, ClientConnection] = {}
        self._of_user: dict[Principal, dict[int, ClientConnection]] = {}
        """Those that have proved to be somebody."""
        self._user_of: dict[int, Principal] = {}

    def next_id(self) -> int:
        self.newest_id += 1
        return self.newest_id

    def opened(self, connection: ClientConnection) -> None:
        self._open[connection.id] = connection

    def closed(self, connection_id: int) -> None:
        self._open.pop(connection_id, None)
        self._leave(connection_id)

    def _leave(self, connection_id: int) -> None:
        user = self._user_of.pop(connection_id, None)
        if user is not None:
            held = self._of_user[user]
            del held[connection_id]
            if not held:
                del self._of_user[user]

    def proved(self, connection_id: int, most: int) -> bool:
        """A62: whether a user may have this one too. Where there are as many as may be, the longest idle one makes room; False: none is idle."""
        connection = self._open.get(connection_id)
        if connection is None or connection.principal.kind != USER:
            return connection is not None
        if self._user_of.get(connection_id) != connection.principal:
            self._leave(connection_id)  # known by a certificate until now
            self._user_of[connection_id] = connection.principal
            self._of_user.setdefault(connection.principal, {})[connection_id] = connection
        held = [one for one in self._of_user[connection.principal].values() if one.is_open]
        if len(held) <= most:
            return True
        idle = [one for one in held if one.id != connection_id and one.idle_since_ms is not None]
        if not idle or not most:
            return False
        min(idle, key=lambda one: one.idle_since_ms or 0).close()
        return True

    def close(self, connection_id: int) -> None:
        connection = self._open.get(connection_id)
        if connection is not None:
            connection.close()

    def close_user(self, name: str, credential: str = "") -> None:
        """Every connection of a user that is no longer one; or those that came with a credential that has ended (A9)."""
        gone = Principal(USER, name)
        for connection in list(self._open.values()):
            if connection.principal == gone and credential in ("", connection.credential):
                connection.close()

    def is_open(self, connection_id: int) -> bool:
        connection = self._open.get(connection_id)
        return connection is not None and connection.is_open
