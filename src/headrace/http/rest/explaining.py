"""Door: why a group is behind (5.6): the facts are gathered here, the rules are in core/explain.py.

GET /api/v1/groups/{group}/explain
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.history import GroupNow
from headrace.core.explain import GroupFacts, PartitionFacts, explain
from headrace.core.ids import TopicPartition
from headrace.core.ports import Clock
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.administration import Explained, GroupExplanation
from headrace.http.rest.groups import GroupDoor
from headrace.http.rest.reading import answer
from headrace.http.whole import Whole
from headrace.security.rights import GROUP, TOPIC, describe, needs


class ExplainDoor(Door):
    def __init__(
        self,
        clock: Clock,
        groups: GroupDoor,
        whole: Whole,
        troubles: Callable[[], list[str]],
    ) -> None:
        self._clock = clock
        self._groups = groups
        self._whole = whole
        self._troubles = troubles

    @route(
        "GET",
        "/api/v1/groups/{group}/explain",
        needs(describe(GROUP, "{group}")).showing(describe(TOPIC)),
        Contract(
            "Why a group is behind",
            "groups",
            {200: GroupExplanation},
            "Rules over what the brokers know; no guessing.",
        ),
    )
    async def _explain(self, request: Request) -> Answer:
        name = request.params["group"]
        standing = await self._groups.standing(request)
        stable = await self._groups.stable_ends(standing)
        lately = await self._whole.look()
        now = lately.groups.get(name, GroupNow())
        owners = {
            TopicPartition(owned.topic, number): member.client_id or member.member_id
            for member in standing.members
            for owned in member.assignment
            for number in owned.partitions
        }
        partitions = tuple(
            PartitionFacts(
                tp, standing.committed.get(tp), bounds.start, stable.get(tp, bounds.end), bounds.end, owners.get(tp)
            )
            for tp, bounds in sorted(standing.bounds.items())
        )  # fmt: skip
        topics = {tp.topic for tp in standing.bounds}
        facts = GroupFacts(
            name=name,
            members=len(standing.members),
            partitions=partitions,
            in_per_s=sum(lately.topics[topic].in_per_s for topic in topics if topic in lately.topics),
            out_per_s=now.out_per_s,
            moved_ms=now.moved_ms or None,
            since_ms=lately.began_ms,
            now_ms=self._clock.wall_ms(),
            troubles=tuple(self._troubles()),
        )
        findings = [Explained(**finding._asdict()) for finding in explain(facts)]
        if findings:
            sentence = findings[0].sentence
        elif facts.lag == 0:
            sentence = "It is not behind."
        else:
            sentence = f"It is {facts.lag:,} messages behind, and nothing is known that would hold it up."
        return answer(GroupExplanation(group=name, lag=facts.lag, sentence=sentence, findings=findings))
