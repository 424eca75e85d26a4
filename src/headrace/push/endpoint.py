"""Driver: one request to an endpoint: the name is resolved once, every address of it is judged, and the connection goes to
an address that was judged, under the name's Host and SNI (X22). No redirects, no proxies, a small answer, a deadline for all of it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from headrace.core.limits import KIB
from headrace.net.h1_client import ClientSettings, H1Client, HttpFailure, HttpTimeout, Origin
from headrace.net.h1_connection import ResponseTooLarge
from headrace.push.spec import MAX_CONCURRENCY
from headrace.push.target import BadTarget, TargetRules, parse_target

MAX_ANSWER_BYTES = 64 * KIB
CONNECT_TIMEOUT_S = 3.0
RESOLVED_S = 10.0
"""For so long the addresses of a name are remembered, judged as they are."""
MAX_RESOLVED = 1_000
MAX_LOOKUPS = 2
IDLE_S = 4.0
"""Less than the five seconds after which many servers close a connection: nothing is sent into a closing door."""

Resolve = Callable[[str, int], Awaitable[list[str]]]


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class NotSent(Exception):
    """The address is not one a webhook may reach, or the URL no longer is one."""


class NoAnswer(Exception):
    """The endpoint could not be reached, or said nothing that is an answer, in time."""


class EndpointClient:
    def __init__(self, rules: TargetRules, *, ca_file: str = "", resolve: Resolve | None = None) -> None:
        self.rules = rules
        self._ca_file = ca_file
        self._resolve = resolve or _ask_the_system
        self._lookups: dict[tuple[str, int], asyncio.Future[list[str]]] = {}
        self._lookup_slots = asyncio.Semaphore(MAX_LOOKUPS)
        self._tls: ssl.SSLContext | None = None
        self._resolved: dict[tuple[str, int], tuple[float, str]] = {}
        self._client = H1Client(
            ClientSettings(
                max_connections_per_origin=MAX_CONCURRENCY,
                idle_s=IDLE_S,
                connect_timeout_s=CONNECT_TIMEOUT_S,
                max_body_bytes=MAX_ANSWER_BYTES,
            )
        )

    async def send(
        self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float, method: str = "POST"
    ) -> Answer:
        """Raises NotSent and NoAnswer."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(timeout_s):
                origin, path = await self._origin(url)
        except TimeoutError:
            raise NoAnswer(f"the name was not resolved within {timeout_s:g} s") from None
        left_s = timeout_s - (asyncio.get_running_loop().time() - began)
        try:
            got = await self._client.request(
                origin,
                method,
                path,
                headers={"user-agent": "headrace", **headers},
                body=body,
                timeout_s=max(0.001, left_s),
            )
        except ResponseTooLarge as problem:
            # What counts has been said before the part that is too long.
            if problem.status:
                return Answer(problem.status, {}, b"")
            raise NoAnswer(str(problem)) from None
        except HttpTimeout:
            self._forget(origin)
            raise NoAnswer(f"no answer within {timeout_s:g} s") from None
        except HttpFailure as problem:
            self._forget(origin)
            raise NoAnswer(str(problem)) from None
        except ValueError as problem:
            raise NotSent(f"the request can't be written: {problem}") from None
        return Answer(got.status, got.headers, got.body)

    async def _origin(self, url: str) -> tuple[Origin, str]:
        try:
            target = parse_target(url, self.rules)
        except BadTarget as problem:
            raise NotSent(str(problem)) from None
        address = target.host if target.literal else await self._address(target.host, target.port)
        tls = self._context() if target.scheme == "https" else None
        return Origin(target.host, target.port, tls, address), target.path

    async def _address(self, host: str, port: int) -> str:
        now_s = asyncio.get_running_loop().time()
        held = self._resolved.get((host, port))
        if held is not None and now_s < held[0]:
            return held[1]
        try:
            addresses = await self._look_up(host, port)
        except OSError as problem:
            raise NoAnswer(f"{host} can't be resolved: {problem.strerror or problem}") from None
        if not addresses:
            raise NoAnswer(f"{host} has no address")
        for address in addresses:
            # All of them: which one a client would pick is the attacker's choice.
            problem_ = self.rules.address_problem(address)
            if problem_ is not None:
                raise NotSent(f"{host}: {problem_}")
        if len(self._resolved) >= MAX_RESOLVED:
            self._resolved.clear()
        self._resolved[host, port] = (now_s + RESOLVED_S, addresses[0])
        return addresses[0]

    async def _look_up(self, host: str, port: int) -> list[str]:
        """A name server that hangs keeps a thread of the process busy, also when nobody waits any more: few names at once, each once."""
        lookup = self._lookups.get((host, port))
        if lookup is None:
            lookup = self._lookups[host, port] = asyncio.ensure_future(self._ask_in_turn(host, port))
            lookup.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(lookup)

    async def _ask_in_turn(self, host: str, port: int) -> list[str]:
        try:
            async with self._lookup_slots:
                return await self._resolve(host, port)
        finally:
            del self._lookups[host, port]

    def _forget(self, origin: Origin) -> None:
        """The next try asks again: the endpoint may have moved."""
        self._resolved.pop((origin.host, origin.port), None)

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=self._ca_file or None)
        return self._tls

    async def close(self) -> None:
        await self._client.close()


async def _ask_the_system(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
