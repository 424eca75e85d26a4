"""Door: who writes what and who reads it, as one picture (5.1): writers, topics, their readers, and where those pass things on.

GET /api/v1/flow     nodes and links, busiest first, with rates and what is behind
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.broker.history import Lately, Sampler
from headrace.cluster.image import ClusterImage
from headrace.core.pipelines import BOARD, DEFINITIONS, ENDED
from headrace.http.contract import Contract, Param, whole
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.looking import FlowLink, FlowNode, FlowThing, Hidden, ShownFlow
from headrace.http.rest.forms.pipelines import ShownPipeline
from headrace.http.rest.reading import answer, number
from headrace.http.whole import Whole
from headrace.security.rights import GROUP, OWN, TOPIC, describe

MOST = 200
MOST_WRITERS = 30
PipelineRows = Callable[[Request], Awaitable[dict[str, ShownPipeline]]]
USUAL = 30
STANDING_PER_S = 0.01
"""Below this nothing flows."""


class FlowDoor(Door):
    def __init__(self, image: ClusterImage, sampler: Sampler, whole: Whole, pipelines: PipelineRows) -> None:
        self._image = image
        self._sampler = sampler
        self._whole = whole
        self._pipelines = pipelines

    @route(
        "GET",
        "/api/v1/flow",
        OWN.showing(describe(TOPIC), describe(GROUP)),
        Contract(
            "What flows where",
            "cluster",
            {200: ShownFlow},
            "Client ids that write, topics, the groups, queues and pipelines that read them, and where dead letters go; the busiest and those in trouble.",
            query=(Param("limit", "of each kind at most", whole(1, 200, 30)),),
            problems=(400,),
        ),
    )
    async def _flow(self, request: Request) -> Answer:
        most = number(request, "limit", USUAL, 1, MOST)
        lately = await self._whole.look()
        specs = {spec.name: spec for spec in self._sampler.queues.specs() if request.sees(GROUP, spec.name)}
        groups = {name: group for name, group in lately.groups.items() if request.sees(GROUP, name)}
        topics = {
            name: topic
            for name, topic in lately.topics.items()
            if request.sees(TOPIC, name) and name in self._image.topics and name not in (BOARD, DEFINITIONS)
        }
        read = {topic for group in groups.values() for topic in group.topics}
        read |= {topic for spec in specs.values() for topic in spec.topics}
        ranked = sorted(
            topics, key=lambda name: (-topics[name].in_per_s, name not in read, -topics[name].messages, name)
        )
        shown = set(ranked[:most])
        nodes: list[FlowNode] = [
            _node("topic", name, topics[name].in_per_s, topics[name].messages, None) for name in ranked[:most]
        ]
        links: list[FlowLink] = []
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
        self._add_writers(lately, ranked[:most], nodes, links)
        await self._add_pipelines(request, shown, nodes, links)
        hidden = Hidden(
            topics=max(0, len(topics) - most),
            groups=max(0, len(groups) - most),
            queues=max(0, len(specs) - most),
        )
        return answer(ShownFlow(nodes=nodes, links=links, hidden=hidden))

    def _add_writers(
        self, lately: Lately, topics: list[str], nodes: list[FlowNode], links: list[FlowLink]
    ) -> None:
        """Client ids, each once however many topics it writes; the busiest `MOST_WRITERS`."""
        rates: dict[tuple[str, str], float] = {}
        # Those that have gone are known by what they hold.
        held = (self._image.partition(topic, 0) for topic in topics)
        peers = {f"broker-{node.id}" for node in self._image.live_brokers()}
        peers |= {
            f"broker-{broker_id}" for state in held if state is not None for broker_id in state.replicas
        }
        wrote: list[tuple[tuple[str, str], str, float]] = []
        for topic in topics:
            for row in lately.writers_of(topic):
                if row.client in peers:
                    continue  # brokers move messages for queues
                who = (row.client, row.door)
                rates[who] = rates.get(who, 0.0) + row.per_s
                wrote.append((who, topic, row.per_s))
        busiest = sorted(rates, key=lambda who: (-rates[who], who))[:MOST_WRITERS]
        nodes += [_node("writer", _client(who), rates[who], 0, None) for who in busiest]
        totals: dict[tuple[str, str], float] = {}
        for who, topic, per_s in wrote:
            if who in busiest:
                place = (_client(who), topic)
                totals[place] = totals.get(place, 0.0) + per_s
        links += [
            _link("writer", name, "topic", topic, per_s, 0, kind="writes")
            for (name, topic), per_s in totals.items()
        ]

    async def _add_pipelines(
        self, request: Request, shown: set[str], nodes: list[FlowNode], links: list[FlowLink]
    ) -> None:
        for name, row in (await self._pipelines(request)).items():
            if row.state in ENDED:
                continue
            rate, lag = float(row.rate or 0) if row.state == "running" else 0.0, row.lag or 0
            nodes.append(_node("pipeline", name, rate, lag, None))
            links += [
                _link("topic", topic, "pipeline", name, rate, lag) for topic in row.topics if topic in shown
            ]
            if row.target in shown:
                links.append(_link("pipeline", name, "topic", row.target, rate, 0, kind="writes"))


def _client(who: tuple[str, str]) -> str:
    """As people know it: its id, and by which door where that is not Kafka's."""
    client, door = who
    return (client or "unnamed") if door in ("kafka", "") else f"{client or 'unnamed'}/{door}"


def _waiting(lately: Lately, queue: str) -> int:
    now = lately.queues.get(queue)
    return 0 if now is None else now.ready + now.in_flight


def _node(
    kind: str, name: str, per_s: float, amount: int, members: int | None, *, paused: bool = False
) -> FlowNode:
    return FlowNode(
        kind=kind, name=name, per_s=round(per_s, 2), amount=amount, members=members, paused=paused
    )


def _link(
    from_kind: str, source: str, to_kind: str, target: str, per_s: float, behind: int, *, kind: str = "reads"
) -> FlowLink:
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
    return FlowLink(
        source=FlowThing(kind=from_kind, name=source),
        target=FlowThing(kind=to_kind, name=target),
        kind=kind,
        per_s=round(per_s, 2),
        behind=behind,
        state=state,
    )
