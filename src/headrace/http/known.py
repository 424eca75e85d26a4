"""Door: nobody is told from old news that there is no such queue, topic, webhook or schedule, or that
its name is taken (F34, broker/latest.py)."""

from __future__ import annotations

from headrace.broker.latest import Latest
from headrace.http.messages import Answer, Handler, Request
from headrace.http.router import Route, Router, TooLarge
from headrace.security.rights import Rights

LISTS = frozenset(
    f"/api/v1/{things}" for things in ("topics", "queues", "subscriptions", "webhooks", "schedules")
)


class KnowingRouter(Router):
    """Puts routes into another router, with handlers that are asked once more when there was news behind their refusal."""

    def __init__(self, router: Router, latest: Latest) -> None:
        super().__init__()
        self._router = router
        self._latest = latest

    def add(
        self,
        method: str,
        template: str,
        handler: Handler,
        rights: Rights,
        *,
        max_body_bytes: int | None = None,
        any_body: bool = False,
        too_large: TooLarge | None = None,
    ) -> None:
        async def attempt(request: Request) -> Answer:
            answer = handler(request)
            return answer if isinstance(answer, Answer) else await answer

        is_list = method == "GET" and template in LISTS

        async def knowing(request: Request) -> Answer:
            if is_list:  # what is missing from a list tells nobody that it is missing
                await self._latest.news()
            return await self._latest.answer(lambda: attempt(request))

        self._router.add(
            method,
            template,
            knowing,
            rights,
            max_body_bytes=max_body_bytes,
            any_body=any_body,
            too_large=too_large,
        )

    def routes(self) -> list[Route]:
        return self._router.routes()
