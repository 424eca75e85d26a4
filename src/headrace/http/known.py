"""Door: nobody is told from old news that there is no such queue, topic, webhook or schedule, or that
its name is taken (F34, broker/latest.py)."""

from __future__ import annotations

from headrace.broker.latest import Latest
from headrace.http.messages import Answer, Handler, Request
from headrace.http.peer_requests import asked_from
from headrace.http.router import Behind, Route, Router

LISTS = frozenset(
    f"/api/v1/{things}" for things in ("topics", "queues", "subscriptions", "webhooks", "schedules")
)


class KnowingRouter(Behind):
    """Puts routes into another router, with handlers that are asked once more when there was news behind their refusal."""

    def __init__(self, router: Router, latest: Latest) -> None:
        super().__init__(router, self._knowing)
        self._latest = latest

    def _knowing(self, route: Route) -> Handler:
        handler = route.handler

        async def attempt(request: Request) -> Answer:
            answer = handler(request)
            return answer if isinstance(answer, Answer) else await answer

        is_list = route.method == "GET" and route.template in LISTS

        async def knowing(request: Request) -> Answer:
            await self._latest.reach(asked_from(request))
            if is_list:  # what is missing from a list tells nobody that it is missing
                await self._latest.news()
            return await self._latest.answer(lambda: attempt(request))

        return knowing
