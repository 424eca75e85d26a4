"""Driver: one request to etcd, from whichever endpoint answers, within a deadline.

etcd takes connections before it has a leader, and then requests hang instead of failing (etcd rule 5); so an endpoint
that does not answer in time is left for the next one. What may be repeated is repeated there. A transaction is not: once
its bytes may have arrived and no clear refusal came back, its outcome is unknown (R5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.coordinator import etcd_codec as codec
from headrace.coordinator.port import (
    CoordinatorError,
    CoordinatorRefused,
    CoordinatorUnavailable,
    OutcomeUnknown,
)
from headrace.core.limits import MIB
from headrace.net.h1_client import H1Client, HttpFailure, Origin

MAX_REPLY_BYTES = 64 * MIB
ROUND_PAUSE_S = 0.05
SHORTEST_ATTEMPT_S = 0.3

NOT_FOUND = 5
FAILED_PRECONDITION = 9
OUT_OF_RANGE = 11
_RESOURCE_EXHAUSTED = 8
_UNAUTHENTICATED = 16
_REFUSALS = {3, NOT_FOUND, 6, 7, _RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE, 12, _UNAUTHENTICATED}
"""gRPC codes with which etcd says that it did not do it. All others, timeouts above all, leave it open."""

_NO_LEADER = "etcdserver: no leader"
_STALE_TOKEN = ("invalid auth token", "revision in header is old", "auth revision")


class EtcdRefusal(CoordinatorRefused):
    """etcd answered, and the answer is no; nothing happened."""

    def __init__(self, failure: codec.GrpcFailure) -> None:
        super().__init__(f"etcd refused: {failure.message}")
        self.code = failure.code
        self.message = failure.message


@dataclass(frozen=True, slots=True)
class Credentials:
    """CN-certificate users do not work through etcd's gateway, so authentication is by password (etcd rule 8)."""

    user: str
    password: str = field(repr=False)  # X25


class EtcdCalls:
    def __init__(
        self,
        endpoints: Sequence[Origin],
        client: H1Client,
        *,
        credentials: Credentials | None,
        deadline_s: float,
        first_endpoint: int = 0,
    ) -> None:
        self._endpoints = tuple(endpoints)
        self.client = client
        self._credentials = credentials
        self.deadline_s = deadline_s
        self._current = first_endpoint % len(self._endpoints)
        self._token: str | None = None
        self._token_turn = asyncio.Lock()

    @property
    def endpoint(self) -> Origin:
        """The one that works, as far as we know."""
        return self._endpoints[self._current]

    def avoid(self, endpoint: Origin) -> None:
        """It failed; callers move on to the next. Late news about one that was already left changes nothing."""
        if endpoint == self.endpoint:
            self._current = (self._current + 1) % len(self._endpoints)

    async def call(
        self, path: str, body: bytes, *, repeatable: bool, deadline_s: float | None = None
    ) -> bytes:
        """The body of a 200. Raises EtcdRefusal and CoordinatorUnavailable, and OutcomeUnknown unless repeatable."""
        limit_s = self.deadline_s if deadline_s is None else deadline_s
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        renewed_token = False
        tried = 0
        trouble = "no time left"
        while (left_s := deadline - loop.time()) > 0:
            endpoint = self.endpoint
            attempt_s = self._attempt_s(left_s, repeatable)
            try:
                return await self._attempt(endpoint, path, body, attempt_s)
            except EtcdRefusal as refusal:
                stale = any(text in refusal.message for text in _STALE_TOKEN)
                if not stale or renewed_token or self._credentials is None:
                    raise
                renewed_token, self._token = True, None
                continue
            except CoordinatorUnavailable as error:
                trouble = str(error)
            except OutcomeUnknown as error:
                if not repeatable:
                    self.avoid(endpoint)
                    raise
                trouble = str(error)
            self.avoid(endpoint)
            tried += 1
            if tried % len(self._endpoints) == 0:
                await asyncio.sleep(min(ROUND_PAUSE_S, max(0.0, deadline - loop.time())))
        raise CoordinatorUnavailable(f"etcd did not answer in {limit_s:g} s: {trouble}")

    async def headers(self, timeout_s: float) -> dict[str, str]:
        """What every request carries. Raises CoordinatorError when a token is needed and cannot be had."""
        # Without a leader etcd then refuses at once instead of hanging, and ends watches that could go stale.
        headers = {"Content-Type": "application/json", "Grpc-Metadata-hasleader": "true"}
        if self._credentials is not None:
            headers["Authorization"] = await self._current_token(self._credentials, timeout_s)
        return headers

    def forget_token(self) -> None:
        self._token = None

    def _attempt_s(self, left_s: float, repeatable: bool) -> float:
        """What can be repeated leaves time for a second endpoint."""
        if repeatable and len(self._endpoints) > 1:
            return min(left_s, max(SHORTEST_ATTEMPT_S, left_s / 2))
        return left_s

    async def _attempt(self, endpoint: Origin, path: str, body: bytes, timeout_s: float) -> bytes:
        headers = await self.headers(timeout_s)
        return await self._post(endpoint, path, body, headers, timeout_s)

    async def _post(
        self, endpoint: Origin, path: str, body: bytes, headers: dict[str, str], timeout_s: float
    ) -> bytes:
        try:
            response = await self.client.request(
                endpoint,
                "POST",
                path,
                headers=headers,
                body=body,
                timeout_s=timeout_s,
                max_body_bytes=MAX_REPLY_BYTES,
            )
        except HttpFailure as error:
            failure = OutcomeUnknown if error.sent else CoordinatorUnavailable
            raise failure(str(error)) from error
        if response.status == 200:
            return response.body
        raise judge(codec.decode_failure(response.body))

    async def _current_token(self, credentials: Credentials, timeout_s: float) -> str:
        async with self._token_turn:
            if self._token is None:
                body = codec.encode_authenticate(credentials.user, credentials.password)
                headers = {"Content-Type": "application/json"}
                try:
                    reply = await self._post(self.endpoint, "/v3/auth/authenticate", body, headers, timeout_s)
                    self._token = codec.decode(codec.TokenReply, reply).token
                except (OutcomeUnknown, codec.GatewayError) as error:
                    # Asking for a token changes nothing, so the call it is for did not happen.
                    raise CoordinatorUnavailable(f"no token: {error}") from error
            return self._token


def judge(failure: codec.GrpcFailure) -> CoordinatorError:
    """What a gRPC status says about the request that met it."""
    if failure.message == _NO_LEADER:  # said before the request is looked at
        return CoordinatorUnavailable(failure.message)
    if failure.code == _RESOURCE_EXHAUSTED and "too many requests" in failure.message:
        return CoordinatorUnavailable(failure.message)
    if failure.code in _REFUSALS:
        return EtcdRefusal(failure)
    return OutcomeUnknown(f"etcd: {failure.message}")
