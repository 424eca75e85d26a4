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

    def next_id(self) -> int:
        self.newest_id += 1
        return self.newest_id

    def opened(self, connection: ClientConnection) -> None:
        self._open[connection.id] = connection

    def closed(self, connection_id: int) -> None:
        self._open.pop(connection_id, None)

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
