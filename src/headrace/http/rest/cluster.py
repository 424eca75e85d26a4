"""Door: the cluster in one look.

GET /api/v1/cluster
"""

from __future__ import annotations

from headrace.cluster.image import ClusterImage
from headrace.http.messages import Answer, Request
from headrace.http.rest.reading import answer
from headrace.http.router import Router
from headrace.security.rights import OWN


class ClusterDoor:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def mount(self, router: Router) -> None:
        router.add("GET", "/api/v1/cluster", self._describe, OWN)

    def _describe(self, request: Request) -> Answer:
        image = self._image
        led: dict[int, int] = {}
        under_replicated = offline = 0
        for _, _, state in image.all_partitions():
            led[state.leader] = led.get(state.leader, 0) + 1
            under_replicated += len(state.isr) < len(state.replicas)
            offline += state.leader < 0
        brokers = [
            {
                "id": node.id,
                "kafka": f"{node.registration.host}:{node.registration.port}",
                "http": f"{node.registration.http_host}:{node.registration.http_port}",
                "rack": node.rack,
                "partitions_led": led.get(node.id, 0),
            }
            for node in image.live_brokers()
        ]
        controller = image.controller
        return answer(
            {
                "cluster_id": "" if image.cluster is None else image.cluster.cluster_id,
                "answered_by": image.broker_id,
                "controller": controller.broker_id if controller is not None else None,
                "brokers": brokers,
                "topics": sum(not topic.internal for topic in image.topics.values()),
                "under_replicated_partitions": under_replicated,
                "offline_partitions": offline,
            }
        )
