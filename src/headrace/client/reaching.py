"""Adapter: whether anybody listens at all, told at once and in words."""

from __future__ import annotations

import socket
import time

from headrace.core.errors import ErrorKind, HeadraceError

LARGE_MESSAGES = {"message.max.bytes": 1_000_000_000}
"""How large a message may be is the topic's decision (max.message.bytes), not the client's (F50)."""

PAUSE_SECONDS = 0.1
CONNECT_SECONDS = 2.0


def need_broker(bootstrap: str, seconds: float) -> None:
    """HeadraceError when none of the addresses takes a connection for so long (F51)."""
    deadline = time.monotonic() + seconds
    while True:
        reasons = []
        for address in bootstrap.split(","):
            try:
                socket.create_connection(parse_address(address.strip()), CONNECT_SECONDS).close()
                return
            except OSError as problem:
                reasons.append(f"{address.strip()}: {(problem.strerror or str(problem)).lower()}")
        if time.monotonic() >= deadline:
            raise HeadraceError(
                ErrorKind.BROKER_NOT_AVAILABLE,
                f"no broker answers at {'; '.join(reasons)}",
                "Start one with: headrace serve",
            )
        time.sleep(PAUSE_SECONDS)  # noqa: TID251 - a program waits for its broker here


def parse_address(address: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port`, or a bare host on Kafka's port."""
    host, colon, port = address.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        return address.strip("[]"), 9092
    if not port.isdecimal() or int(port) > 65535:
        raise HeadraceError(ErrorKind.INVALID_PARAMETER, f'"{address}" is not an address', "host:port")
    return host.strip("[]") or "localhost", int(port)
