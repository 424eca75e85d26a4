"""Kernel: who somebody is, the same at every door. A broker also has the registration (its epoch) it proved to be."""

from __future__ import annotations

from typing import NamedTuple

USER, BROKER = "User", "Broker"


class Principal(NamedTuple):
    kind: str
    name: str
    broker_epoch: int = -1

    @property
    def is_broker(self) -> bool:
        return self.kind == BROKER

    @property
    def broker_id(self) -> int:
        """-1 for everybody who has not proved to be a broker."""
        return int(self.name) if self.kind == BROKER else -1

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")


def broker(broker_id: int, broker_epoch: int) -> Principal:
    return Principal(BROKER, str(broker_id), broker_epoch)
