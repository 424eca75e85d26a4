"""Door: the cluster in one look.

GET /api/v1/cluster
GET /api/v1/cluster/troubled     partitions without a leader, behind or being moved
"""

from __future__ import annotations

import asyncio
from typing import Literal

from headrace.broker.history import BrokerNow
from headrace.cluster.image import ClusterImage
from headrace.cluster.rows import BrokerNode
from headrace.cluster.state import PartitionState
from headrace.http.contract import Contract, Param, whole
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.administration import (
    AwayBroker,
    ShownBroker,
    ShownCluster,
    TroubledPage,
    TroubledPartition,
)
from headrace.http.rest.reading import answer, number
from headrace.http.whole import Whole
from headrace.security.rights import OWN, TOPIC, describe

URGENCY = ("no-leader", "behind", "moving")
SLICE = 2_000
"""Partitions looked at in one turn of the loop."""


class ClusterDoor(Door):
    def __init__(self, image: ClusterImage, whole: Whole) -> None:
        self._image = image
        self._whole = whole

    @route(
        "GET",
        "/api/v1/cluster",
        OWN,
        Contract("The cluster in one look", "cluster", {200: ShownCluster}, problems=()),
    )
    async def _describe(self, request: Request) -> Answer:
        image = self._image
        await self._whole.look()
        led: dict[int, int] = {}
        held: dict[int, int] = {}
        under_replicated = offline = 0
        live = {node.id for node in image.live_brokers()}
        away = {
            broker_id: AwayBroker(id=broker_id, partitions=0, only_there=0)
            for broker_id in image.brokers.keys() - live
        }
        for place, (_, _, state) in enumerate(list(image.all_partitions()), 1):
            led[state.leader] = led.get(state.leader, 0) + 1
            under_replicated += state.leader >= 0 and len(state.isr) < len(state.replicas)
            offline += state.leader < 0
            for broker_id in state.replicas:
                held[broker_id] = held.get(broker_id, 0) + 1
                if broker_id not in live:
                    gone = away.setdefault(broker_id, AwayBroker(id=broker_id, partitions=0, only_there=0))
                    gone.partitions += 1
                    gone.only_there += state.leader < 0
            if place % SLICE == 0:
                await asyncio.sleep(0)
        controller = image.controller
        return answer(
            ShownCluster(
                cluster_id="" if image.cluster is None else image.cluster.cluster_id,
                answered_by=image.broker_id,
                controller=controller.broker_id if controller is not None else None,
                brokers=[
                    _shown(node, held.get(node.id, 0), led.get(node.id, 0), self._whole.brokers.get(node.id))
                    for node in image.live_brokers()
                ],
                away=[away[broker_id] for broker_id in sorted(away)],
                topics=sum(not topic.internal for topic in image.topics.values()),
                under_replicated_partitions=under_replicated,
                offline_partitions=offline,
            )
        )

    @route(
        "GET",
        "/api/v1/cluster/troubled",
        OWN.showing(describe(TOPIC)),
        Contract(
            "Partitions without a leader, behind or being moved",
            "cluster",
            {200: TroubledPage},
            query=(Param("limit", "at most so many, the worst first", whole(1, 1_000)),),
            problems=(400,),
        ),
    )
    async def _list_troubled(self, request: Request) -> Answer:
        limit = number(request, "limit", 100, 1, 1_000)
        found: list[TroubledPartition] = []
        for place, (topic, index, state) in enumerate(list(self._image.all_partitions()), 1):
            what = _trouble(state)
            if what is not None and request.sees(TOPIC, topic.name):
                found.append(
                    TroubledPartition(
                        topic=topic.name,
                        partition=index,
                        leader=state.leader,
                        replicas=list(state.replicas),
                        in_sync=list(state.isr),
                        adding=list(state.adding),
                        removing=list(state.removing),
                        state=what,
                    )
                )
            if place % SLICE == 0:
                await asyncio.sleep(0)
        found.sort(key=lambda one: (URGENCY.index(one.state), one.topic, one.partition))
        return answer(TroubledPage(items=found[:limit], next_cursor=None, total=len(found)))


def _trouble(state: PartitionState) -> Literal["no-leader", "behind", "moving"] | None:
    if state.leader < 0:
        return "no-leader"
    if state.adding or state.removing:
        return "moving"
    return "behind" if len(state.isr) < len(state.replicas) else None


def _shown(node: BrokerNode, held: int, led: int, now: BrokerNow | None) -> ShownBroker:
    """Without numbers when it does not answer."""
    at = node.registration
    return ShownBroker(
        id=node.id,
        kafka=f"{at.host}:{at.port}",
        http=f"{at.http_host}:{at.http_port}",
        rack=node.rack,
        partitions=held,
        partitions_led=led,
        in_per_s=None if now is None else round(now.in_per_s, 2),
        in_bytes_per_s=None if now is None else round(now.in_bytes_per_s),
        out_bytes_per_s=None if now is None else round(now.out_bytes_per_s),
        free_bytes=None if now is None or now.free_bytes < 0 else now.free_bytes,
        cpu=None if now is None else now.cpu,
        loop_lag_ms=None if now is None else now.loop_lag_ms,
        sync_p99_ms=None if now is None else now.sync_p99_ms,
        coordinator=None if now is None else now.coordinator,
        coordinator_silence_ms=None if now is None else now.coordinator_silence_ms,
        version=None if now is None else now.version,
        began_ms=None if now is None else now.began_ms,
    )
