"""Door: the cluster in one look.

GET /api/v1/cluster
"""

from __future__ import annotations

import asyncio

from headrace.broker.history import BrokerNow
from headrace.cluster.image import ClusterImage
from headrace.cluster.rows import BrokerNode
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.administration import AwayBroker, ShownBroker, ShownCluster
from headrace.http.rest.reading import answer
from headrace.http.whole import Whole
from headrace.security.rights import OWN

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
                    _shown(node, led.get(node.id, 0), self._whole.brokers.get(node.id))
                    for node in image.live_brokers()
                ],
                away=[away[broker_id] for broker_id in sorted(away)],
                topics=sum(not topic.internal for topic in image.topics.values()),
                under_replicated_partitions=under_replicated,
                offline_partitions=offline,
            )
        )


def _shown(node: BrokerNode, led: int, now: BrokerNow | None) -> ShownBroker:
    """Without numbers when it does not answer."""
    at = node.registration
    return ShownBroker(
        id=node.id,
        kafka=f"{at.host}:{at.port}",
        http=f"{at.http_host}:{at.http_port}",
        rack=node.rack,
        partitions_led=led,
        in_per_s=None if now is None else round(now.in_per_s, 2),
        in_bytes_per_s=None if now is None else round(now.in_bytes_per_s),
        out_bytes_per_s=None if now is None else round(now.out_bytes_per_s),
        free_bytes=None if now is None or now.free_bytes < 0 else now.free_bytes,
    )
