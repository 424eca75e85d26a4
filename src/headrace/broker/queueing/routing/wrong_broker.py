"""Kernel of queueing: the answer is with another broker, and this one has done nothing yet: any door may ask there (C6)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError


class WrongBroker(HeadraceError):
    def __init__(self, broker_id: int, what: str) -> None:
        super().__init__(ErrorKind.NOT_COORDINATOR, f"{what} lives on broker {broker_id}")
        self.broker_id = broker_id
