"""Door: who writes what and who reads it, as one picture (5.1): topics, their readers, and where those pass things on.

GET /api/v1/flow     nodes and links, busiest first, with rates and what is behind
"""

from __future__ import annotations

from typing import Any

from headrace.broker.history import Sampler
from headrace.cluster.image import ClusterImage
from headrace.http.messages import Answer, Request
from headrace.http.rest.reading import answer, number
from headrace.http.router import Router
from headrace.security.rights import GROUP, OWN, TOPIC, describe

MOST = 200
USUAL = 30
STANDING_PER_S = 0.01
"""Below this nothing flows."""


class FlowDoor:
    def __init__(self, image: ClusterImage, sampler: Sampler) -> None:
        self._image = image
        self._sampler = sampler

    def mount(self, router: Router) -> None:
        router.add("GET", "/api/v1/flow", self._flow, OWN.showing(describe(TOPIC), describe(GROUP)))

    def _flow(self, request: Request) -> Answer:
        most = number(request, "limit", USUAL, 1, MOST)
        lately = self._sampler.lately
        specs = {spec.name: spec for spec in self._sampler.queues.specs() if request.sees(GROUP, spec.name)}
        groups = {name: group for name, group in lately.groups.items() if request.sees(GROUP, name)}
        topics = {
            name: topic
            for name, topic in lately.topics.items()
            if request.sees(TOPIC, name) and (name in self._image.topics)
        }
        read = {topic for group in groups.values() for topic in group.topics}
        read |= {topic for spec in specs.values() for topic in spec.topics}
        ranked = sorted(
            topics, key=lambda name: (-topics[name].in_per_s, name not in read, -topics[name].messages, name)
        )
        shown = set(ranked[:most])
        nodes: list[dict[str, Any]] = [
            _node("topic", name, topics[name].in_per_s, topics[name].messages, None) for name in ranked[:most]
        ]
        links: list[dict[str, Any]] = []
        behind = sorted(groups, key=lambda name: (-groups[name].lag, -groups[name].out_per_s, name))
        for name in behind[:most]:
            group = groups[name]
            nodes.append(_node("group", name, group.out_per_s, group.lag, group.members))
            links += [
                _link("topic", topic, "group", name, share.out_per_s, share.lag)
                for topic, share in sorted(group.topics.items())
                if topic in shown
            ]
        for name in sorted(specs, key=lambda one: -_waiting(lately, one))[:most]:
            queue = lately.queues.get(name)
            if queue is None:
                continue
            spec = specs[name]
            nodes.append(
                _node(
                    "queue", name, queue.done_per_s, queue.ready + queue.in_flight, None, paused=queue.paused
                )
            )
            links += [
                _link("topic", topic, "queue", name, queue.done_per_s, queue.ready)
                for topic in spec.topics
                if topic in shown
            ]
            dead = spec.queue_config.dead_letter
            if dead and dead in specs:
                links.append(
                    _link("queue", name, "queue", dead, 0.0, _waiting(lately, dead), kind="dead letters")
                )
        hidden = {
            "topics": max(0, len(topics) - most),
            "groups": max(0, len(groups) - most),
            "queues": max(0, len(specs) - most),
        }
        return answer({"nodes": nodes, "links": links, "hidden": hidden})


def _waiting(lately: Any, queue: str) -> int:
    now = lately.queues.get(queue)
    return 0 if now is None else int(now.ready + now.in_flight)


def _node(
    kind: str, name: str, per_s: float, amount: int, members: int | None, *, paused: bool = False
) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "per_s": round(per_s, 2),
        "amount": amount,
        "members": members,
        "paused": paused,
    }


def _link(
    from_kind: str, source: str, to_kind: str, target: str, per_s: float, behind: int, *, kind: str = "reads"
) -> dict[str, Any]:
    """Standing: something waits, and nothing moves; slow: it waits although something does."""
    flows = per_s > STANDING_PER_S
    state = (
        "standing"
        if behind and not flows
        else "slow"
        if behind > max(100.0, 10 * per_s)
        else "flowing"
        if flows
        else "idle"
    )
    return {
        "from": {"kind": from_kind, "name": source},
        "to": {"kind": to_kind, "name": target},
        "kind": kind,
        "per_s": round(per_s, 2),
        "behind": behind,
        "state": state,
    }
