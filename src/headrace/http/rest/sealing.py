"""Door: the keys under which the coordinator's secrets are sealed, and sealing all of them anew (A31).

GET  /api/v1/security/sealing    which keys each broker has, by their marks
POST /api/v1/security/reseal     everything anew, under the key that is the first line of every broker's secrets.key
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.peer_requests import PeerRequests
from headrace.http.rest.forms.queues import CHANGE_PROBLEMS
from headrace.http.rest.forms.security import BrokerKeys, Resealed, SealingKeys
from headrace.http.rest.reading import answer
from headrace.security.desk import Security
from headrace.security.resealing import Resealing
from headrace.security.rights import CLUSTER, alter, describe, needs

PATH = "/api/v1/security/sealing"
ASK_S = 5.0


class SealingDoor(Door):
    def __init__(
        self,
        security: Security,
        resealing: Resealing,
        image: ClusterImage,
        peers: PeerRequests,
        look: Callable[[], None],
    ) -> None:
        """`look`: at the file of keys, now."""
        self._keys = security.keys
        self._resealing = resealing
        self._image = image
        self._peers = peers
        self._look = look

    @route(
        "GET",
        PATH,
        needs(describe(CLUSTER)),
        Contract(
            "Which keys each broker seals and opens secrets with",
            "security",
            {200: SealingKeys},
            "Not the keys: marks, by which they are told apart. Each broker looks at its file first.",
            problems=(),
        ),
    )
    async def _show(self, request: Request) -> Answer:
        own = self._own()
        return answer(SealingKeys([own] if request.sender is not None else await self._everywhere()))

    @route(
        "POST",
        "/api/v1/security/reseal",
        needs(alter(CLUSTER)),
        Contract(
            "Seal every secret anew",
            "security",
            {200: Resealed},
            "Under the first key of every broker's secrets.key; refused while they are not the same. Then the old key can go.",
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _reseal(self, request: Request) -> Answer:
        found = await self._everywhere()
        need_one_key(found)
        done = await self._resealing.everything()
        return answer(Resealed(key=found[0].keys[0], resealed=done.done, unreadable=list(done.lost)))

    def _own(self) -> BrokerKeys:
        self._look()
        return BrokerKeys(self._image.broker_id, self._keys.marks)

    async def _everywhere(self) -> list[BrokerKeys]:
        own = self._own()
        others = [broker.id for broker in self._image.live_brokers() if broker.id != own.broker]
        asked = await asyncio.gather(*(self._at(broker_id) for broker_id in others))
        return sorted([own, *asked], key=lambda each: each.broker)

    async def _at(self, broker_id: int) -> BrokerKeys:
        try:
            got = await self._peers.ask(broker_id, "GET", PATH, {}, b"", ASK_S)
            if got.status != 200:
                raise HeadraceError(ErrorKind.BROKER_NOT_AVAILABLE, f"it answers {got.status}")
            return msgspec.json.decode(got.body, type=SealingKeys).brokers[0]
        except (HeadraceError, msgspec.MsgspecError, IndexError) as problem:
            return BrokerKeys(broker_id, [], str(problem))


def need_one_key(found: Sequence[BrokerKeys]) -> None:
    """Every broker seals with the same. Raises CONFLICT, and POLICY_VIOLATION where no key is."""
    if not any(each.keys for each in found):
        raise HeadraceError(
            ErrorKind.POLICY_VIOLATION,
            "no broker has a key to seal secrets with",
            "start them with --secure, or with --secrets-key-file (the same for all)",
        )
    silent = [f"broker {each.broker} ({each.problem})" for each in found if each.problem]
    if silent:
        raise HeadraceError(ErrorKind.CONFLICT, f"which keys {', '.join(silent)} has is not known")
    first = {each.keys[0] if each.keys else "none" for each in found}
    if len(first) > 1:
        words = ", ".join(f"broker {each.broker}: {each.keys[0] if each.keys else 'none'}" for each in found)
        raise HeadraceError(
            ErrorKind.CONFLICT,
            f"the brokers do not seal with one key ({words})",
            "make the new key the first line of every broker's secrets.key, and leave the old one below it",
        )
