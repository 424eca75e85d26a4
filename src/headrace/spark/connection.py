"""Driver: one blocking connection to one broker, for Spark tasks: they are threads of work, not event loops.

Answers come in the order of the requests, so several requests may be on the way at once (`send`, then `receive` for each).
Every wait has a deadline. After any failure the connection is closed: what was on the way may or may not have happened.

Invariant: with `reuse`, the memory of an answer belongs to the connection and is overwritten two answers later.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_FRAME_BYTES, MIB
from headrace.core.ports import Buffer
from headrace.net.secret_files import read_secret
from headrace.wire.api import API, ApiKey
from headrace.wire.codec import decode, encode_buffers
from headrace.wire.framing import RequestHeader, decode_response_header, encode_request_frame
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest
from headrace.wire.primitives import ProtocolError

_IOV_MAX = 512
_CONNECT_SECONDS = 10.0

HIGHEST = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 13,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.DESCRIBE_LOG_DIRS: 4,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.SASL_AUTHENTICATE: 2,
}
"""What this client speaks: one group or coordinator a request; records by topic id where the broker can. The broker may offer less."""


class ConnectionLost(HeadraceError):
    def __init__(self, detail: str) -> None:
        super().__init__(ErrorKind.NETWORK_EXCEPTION, detail)


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How to reach a cluster. Travels to the executors, so it is plain data."""

    bootstrap: str
    client_id: str = "headrace-spark"
    request_seconds: float = 30.0
    tls: bool = False
    tls_ca: str | None = None
    sasl_user: str | None = None
    sasl_password: str | None = None
    password_file: str | None = None
    """Where the password is, on every machine that connects: it is read then, and travels nowhere (A28)."""
    token_file: str | None = None
    """The same of a token, which needs no user."""

    def __repr__(self) -> str:
        # Without the password: Spark prints partitions and options in plans and logs.
        return f"Access({self.bootstrap!r})"

    def credential(self) -> tuple[str, bytes] | None:
        """Mechanism and first message of a login; None: nobody asks. Raises HeadraceError."""
        if self.token_file is not None:
            token = read_secret(self.token_file).encode()
            return "OAUTHBEARER", b"n,,\x01auth=Bearer " + token + b"\x01\x01"
        if self.sasl_user is None:
            return None
        password = read_secret(self.password_file) if self.password_file else self.sasl_password or ""
        return "PLAIN", f"\0{self.sasl_user}\0{password}".encode()


class PendingExchange(NamedTuple):
    key: int
    version: int
    correlation_id: int


class BlockingConnection:
    def __init__(self, host: str, port: int, access: ClusterAccess) -> None:
        self._access = access
        self.address = f"{host}:{port}"
        self._correlation = 0
        self._waiting: deque[PendingExchange] = deque()
        self._buffers = [bytearray(), bytearray()]
        self._turn = 0
        self.closed = False
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            self._socket = socket.create_connection(
                (host, port), timeout=min(_CONNECT_SECONDS, access.request_seconds)
            )
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if access.tls:
                context = ssl.create_default_context(cafile=access.tls_ca)
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except OSError as problem:
            raise ConnectionLost(f"{self.address} can't be reached: {problem}") from problem
        self._negotiate()
        credential = access.credential()
        if credential is not None:
            self._authenticate(*credential)

    def _negotiate(self) -> None:
        answer = self._call_at(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        if answer.error_code:
            raise HeadraceError(ErrorKind(answer.error_code), f"{self.address} does not tell its versions")
        for offered in answer.api_keys:
            self._versions[offered.api_key] = (offered.min_version, offered.max_version)

    def _authenticate(self, mechanism: str, message: bytes) -> None:
        shaken = self.call(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism))
        if shaken.error_code:
            raise HeadraceError(
                ErrorKind(shaken.error_code), f"the broker does not take SASL {mechanism} here"
            )
        answer = self.call(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(message))
        if answer.error_code or bytes(answer.auth_bytes).startswith(b"{"):
            kind = ErrorKind(answer.error_code or ErrorKind.SASL_AUTHENTICATION_FAILED)
            raise HeadraceError(kind, answer.error_message or "the token is not known, or has ended")

    def version(self, key: ApiKey) -> int:
        """The highest version both sides speak."""
        if key not in self._versions:
            raise HeadraceError(
                ErrorKind.UNSUPPORTED_VERSION, f"the broker at {self.address} does not serve {key.name}"
            )
        low, high = self._versions[key]
        chosen = min(high, HIGHEST[key])
        if chosen < low:
            raise HeadraceError(
                ErrorKind.UNSUPPORTED_VERSION, f"{key.name}: the broker wants v{low} or newer"
            )
        return chosen

    # -- requests ------------------------------------------------------------------------------------------------

    def call(self, key: ApiKey, request: object) -> Any:
        """Send one message and decode its answer. Nothing else may be on the way."""
        return self._call_at(key, self.version(key), request)

    def _call_at(self, key: ApiKey, version: int, request: object) -> Any:
        assert not self._waiting, "requests are on the way here; use another connection"
        self.send(key, version, encode_buffers(request, version))
        frame, position = self.receive(reuse=False)
        try:
            return decode(API[key].response, version, frame, position)
        except ProtocolError as problem:
            self.close()
            raise ConnectionLost(f"{self.address} answered with something else: {problem}") from problem

    def send(self, key: ApiKey, version: int, body: Sequence[Buffer]) -> None:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        header = RequestHeader(key, version, self._correlation, self._access.client_id)
        try:
            self._socket.settimeout(self._access.request_seconds)
            self._send_all(encode_request_frame(header, body))
        except OSError as problem:
            raise self._lost(problem) from problem
        self._waiting.append(PendingExchange(key, version, self._correlation))

    def _send_all(self, buffers: list[Buffer]) -> None:
        if self._access.tls:
            self._socket.sendall(b"".join(buffers))
            return
        left = [memoryview(buffer) for buffer in buffers if len(buffer)]
        while left:
            sent = self._socket.sendmsg(left[:_IOV_MAX])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]

    def receive(self, *, reuse: bool, seconds: float | None = None) -> tuple[memoryview, int]:
        """The oldest outstanding answer: its frame, and where the body begins."""
        exchange = self._waiting.popleft()
        deadline = time.monotonic() + (seconds or self._access.request_seconds)
        try:
            prefix = bytearray(4)
            self._fill(memoryview(prefix), deadline)
            size = int.from_bytes(prefix, "big", signed=True)
            if not 0 < size <= MAX_FRAME_BYTES + MIB:
                raise OSError(f"an answer of {size} bytes")
            frame = self._room(size) if reuse else memoryview(bytearray(size))
            self._fill(frame, deadline)
            correlation, position = decode_response_header(frame, exchange.key, exchange.version)
            if correlation != exchange.correlation_id:
                raise OSError("answers are out of order")
        except (OSError, ProtocolError) as problem:
            raise self._lost(problem) from problem
        return frame, position

    def _room(self, size: int) -> memoryview:
        """Memory that was used before is much faster than fresh pages (spark.md 3)."""
        self._turn ^= 1
        if len(self._buffers[self._turn]) < size:
            self._buffers[self._turn] = bytearray(size + size // 4)
        return memoryview(self._buffers[self._turn])[:size]

    def _fill(self, target: memoryview, deadline: float) -> None:
        while target:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no answer within {self._access.request_seconds:g} s")
            self._socket.settimeout(left)
            received = self._socket.recv_into(target)
            if not received:
                raise ConnectionResetError("closed by the other side")
            target = target[received:]

    def _lost(self, problem: BaseException) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"the connection to {self.address} broke: {problem}")

    def close(self) -> None:
        self.closed = True
        self._waiting.clear()
        self._socket.close()
