"""Door: what was denied in the whole cluster, or would be, and who came without a name: every broker is asked (A30, A52).

GET /api/v1/security/denials    of the last day; asked by a broker: what came to this one alone
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import asdict

from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ports import Clock
from headrace.core.principals import Principal
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.peer_requests import PeerRequests
from headrace.http.rest.forms.security import AtBroker, DenialList, Denied, Nameless
from headrace.http.rest.reading import answer
from headrace.security.denials import Want
from headrace.security.desk import Security
from headrace.security.records import word
from headrace.security.rights import CLUSTER, describe, needs

PATH = "/api/v1/security/denials"
HOUR_MS = 3_600_000
ASK_S = 5.0
_SAME = ("principal", "operation", "resource", "name", "token", "host", "client")
"""What makes two entries of two brokers one."""


E = TypeVar("E", Denied, Nameless)


class DenialsSeen(msgspec.Struct):
    denied: list[Denied]
    nameless: list[Nameless]
    brokers: list[AtBroker]


class DenialDoor(Door):
    def __init__(self, security: Security, clock: Clock, image: ClusterImage, peers: PeerRequests) -> None:
        self._security = security
        self._clock = clock
        self._image = image
        self._peers = peers

    @route(
        "GET",
        PATH,
        needs(describe(CLUSTER)),
        Contract(
            "What was denied in the last day, or would be, at every broker",
            "security",
            {200: DenialList},
            problems=(),
        ),
    )
    async def _show(self, request: Request) -> Answer:
        seen = self._own() if request.sender is not None else await self.everywhere()
        return answer(DenialList(broker=self._image.broker_id, **asdict(seen)))

    async def need_ready(self) -> None:
        """A52: enforcing refuses while somebody would be locked out by it, at whichever broker. Raises CONFLICT."""
        since_ms = self._clock.wall_ms() - HOUR_MS
        seen = await self.everywhere()
        denied = [
            f"{each.principal} {each.operation} {each.resource} {each.name}".rstrip()
            for each in seen.denied
            if each.last_ms >= since_ms and each.still
        ]
        nameless = [
            f"{each.host} {each.client}".rstrip() for each in seen.nameless if each.last_ms >= since_ms
        ]
        silent = [f"broker {each.broker} ({each.problem})" for each in seen.brokers if each.problem]
        words = []
        if nameless:
            words.append(f"{len(nameless)} came without a name ({', '.join(nameless[:5])})")
        if denied:
            words.append(f"{len(denied)} would be denied ({', '.join(denied[:5])})")
        if silent:
            words.append(f"what came to {', '.join(silent)} is not known")
        if words:
            raise HeadraceError(
                ErrorKind.CONFLICT,
                f"in the last hour {' and '.join(words)}",
                f"GET {PATH} lists them; headrace acl suggest writes the rights; force does it all the same.",
            )

    async def everywhere(self) -> DenialsSeen:
        others = [broker.id for broker in self._image.live_brokers() if broker.id != self._image.broker_id]
        found = [self._own(), *await asyncio.gather(*(self._at(broker_id) for broker_id in others))]
        return DenialsSeen(
            _together(each for seen in found for each in seen.denied),
            _together(each for seen in found for each in seen.nameless),
            sorted((each for seen in found for each in seen.brokers), key=lambda each: each.broker),
        )

    async def _at(self, broker_id: int) -> DenialsSeen:
        try:
            got = await self._peers.ask(broker_id, "GET", PATH, {}, b"", ASK_S)
            if got.status != 200:
                raise HeadraceError(ErrorKind.BROKER_NOT_AVAILABLE, f"it answers {got.status}")
            return msgspec.json.decode(got.body, type=DenialsSeen)
        except (HeadraceError, msgspec.MsgspecError) as problem:
            return DenialsSeen([], [], [AtBroker(broker_id, problem=str(problem))])

    def _own(self) -> DenialsSeen:
        since_ms = self._clock.wall_ms() - 24 * HOUR_MS
        denials, image = self._security.denials, self._security.image
        own = AtBroker(self._image.broker_id, image.mode.mode, self._security.admin.revision)
        return DenialsSeen(
            [
                Denied(
                    want.principal,
                    word(want.operation),
                    word(want.resource),
                    want.name,
                    times.count,
                    times.last_ms,
                    times.host,
                    image.narrower_id(want.credential),
                    self._is_denied(want, times.host),
                )
                for want, times in denials.since(since_ms)
            ],
            [
                Nameless(host, client, times.count, times.last_ms)
                for host, client, times in denials.nameless_since(since_ms)
            ],
            [own],
        )

    def _is_denied(self, want: Want, host: str) -> bool:
        kind, _, name = want.principal.partition(":")
        who = Principal(kind, name)
        image = self._security.image
        return not image.decide(who, host, want.operation, want.resource, want.name, want.credential).allowed


def _together(entries: Iterable[E]) -> list[E]:
    """The same at several brokers is one, with the sum of their counts."""
    found: dict[tuple[str, ...], E] = {}
    for each in entries:
        key = tuple(str(getattr(each, name, "")) for name in _SAME)
        held = found.setdefault(key, each)
        if held is not each:
            held.count += each.count
            held.last_ms = max(held.last_ms, each.last_ms)
    return list(found.values())
