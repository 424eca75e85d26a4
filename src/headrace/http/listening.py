"""Port: what an HTTP connection uses of the server that took it, so that neither module knows the other one's class."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from headrace.core import limits
from headrace.core.ports import Clock
from headrace.core.principals import Principal
from headrace.http.admission import BodyBudget
from headrace.http.browsers import BrowserPolicy
from headrace.http.messages import Peer, Request, Response
from headrace.http.reader import ReadLimits
from headrace.http.router import Router

Recognize = Callable[[Mapping[str, Any], str], Principal | None]
"""Who shows this certificate, from this host. Raises LoginFailed: nobody does."""

C_contra = TypeVar("C_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    max_header_bytes: int = 32 * limits.KIB
    max_header_count: int = 100
    max_target_bytes: int = 8 * limits.KIB
    max_body_bytes: int = 2 * limits.MIB
    """SQS takes 1 MiB of payload; JSON around it needs room (X20). A route may set its own."""
    max_inflight_body_bytes: int = limits.MAX_INFLIGHT_REQUEST_BYTES
    max_pipelined: int = 64
    max_requests_per_connection: int = 1_000_000
    max_connections: int = limits.MAX_CONNECTIONS
    max_connections_per_host: int = limits.MAX_CONNECTIONS_PER_IP
    connections_reserved_for_loopback: int = 8
    idle_connection_ms: int = limits.IDLE_CONNECTION_MS
    partial_request_ms: int = limits.PARTIAL_FRAME_MS
    write_stall_ms: int = limits.WRITE_STALL_MS
    request_timeout_ms: int = 65_000
    """A long poll may last 20 s (SQS) and a commit 30 s; after this the handler is cancelled."""
    linger_ms: int = 2_000
    tls_handshake_s: float = 10.0


class Listener(Protocol[C_contra]):
    """`C_contra` is the connection."""

    router: Router
    recognize: Recognize
    clock: Clock
    settings: HttpSettings
    read_limits: ReadLimits
    browsers: BrowserPolicy
    judge_peer: Callable[[Request], Response | None]
    body_budget: BodyBudget
    is_draining: bool
    received_bytes: int
    fixed_lines: bytes
    read_lines: bytes
    request_id_prefix: str
    request_count: int

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def opened(self, connection: C_contra) -> bool: ...

    def closed(self, connection: C_contra) -> None: ...

    def note_answer(self, route: str, status: int, seconds: float) -> None: ...

    def note_refusal(self, peer: Peer, response: Response) -> None: ...

    def note_timeout(self, what: str, peer: Peer) -> None: ...
