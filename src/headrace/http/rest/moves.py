"""Door: dead letters sent back, edited or discarded, as tasks of the broker that go on when nobody looks (R60, 5.3).

GET|POST   /api/v1/queues/{queue}/moves    {"act": "redrive", "to": "", "filter": "", "set": [], "rate": 50, "max": 0, "dry_run": false}
DELETE     /api/v1/moves/{task}
"""

from __future__ import annotations

from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.moves.move_tasks import EditSample, MoveTask, MoveTasks
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.messages import ShownRecord
from headrace.http.rest.forms.moves import MovePage, MoveSample, NewMove, ShownMove
from headrace.http.rest.reading import answer, body_of, queue_of
from headrace.records.shown import shown_record
from headrace.security.rights import GROUP, TOPIC, Operation, delete, describe, needs, read, write
from headrace.security.standing import StandingOrders

CONSOLE = "console@localhost"
"""Who changes something in the console of a broker without users (W22)."""


class MoveDoor(Door):
    def __init__(self, catalog: QueueCatalog, moves: MoveTasks, standing: StandingOrders) -> None:
        self._catalog = catalog
        self._standing = standing
        self._tasks = moves

    def _spec(self, request: Request) -> QueueSpec:
        return queue_of(request, self._catalog.find)

    @route(
        "GET",
        "/api/v1/queues/{queue}/moves",
        needs(describe(GROUP, "{queue}")),
        Contract("Moves out of a queue", "queues", {200: MovePage}),
    )
    async def _list(self, request: Request) -> Answer:
        tasks = self._tasks.tasks(self._spec(request).name)
        return answer(MovePage(items=[_shown(task) for task in tasks], next_cursor=None))

    @route(
        "POST",
        "/api/v1/queues/{queue}/moves",
        needs(
            read(GROUP, "{queue}"),
            read(TOPIC, "topics of {queue}"),
            delete(GROUP, "{queue}"),
            write(TOPIC, "topics of body.to"),
        ),
        Contract(
            "Redrive, edit or discard dead letters",
            "queues",
            {202: ShownMove, 200: ShownMove},
            "By the broker, each message once, whoever looks on.",
            body=(NewMove,),
            body_required=False,
            problems=(400, 404, 409),
        ),
    )
    async def _start(self, request: Request) -> Answer:
        spec = self._spec(request)
        body = body_of(request, NewMove)
        task = MoveTask(
            id="",
            source=spec.name,
            destination=body.to,
            rate=body.rate,
            filter=body.filter,
            limit=body.max,
            act=body.act,
            edits=body.set,
            by=caller(request),
            **self._standing.of(request.access)._asdict(),
        )
        if task.act == "redrive" and not task.destination:
            self._standing.need_named(request.access)
        if task.act == "edit":
            _may_write(request, spec)
        if body.dry_run:
            plan = await self._tasks.plan(task)
            return answer(_shown(plan.task, plan.samples))
        return answer(_shown(await self._tasks.start(task)), 202)

    @route(
        "DELETE",
        "/api/v1/moves/{task}",
        needs(
            read(GROUP, "source of {task}"),
            read(TOPIC, "topics of source of {task}"),
            delete(GROUP, "source of {task}"),
        ),
        Contract("Stop a move", "queues", {200: ShownMove}),
    )
    async def _cancel(self, request: Request) -> Answer:
        return answer(_shown(await self._tasks.cancel(request.params["task"])))


def caller(request: Request) -> str:
    """Who asks, for what is kept about it."""
    if request.access is not None:
        return str(request.access.principal)
    return CONSOLE if b"sec-fetch-site" in request.headers else f"anonymous@{request.peer.host}"


def _may_write(request: Request, spec: QueueSpec) -> None:
    """Who edits letters where they are writes to the queue's own topic."""
    access = request.access
    if access is not None and any(access.refuses(Operation.WRITE, TOPIC, topic) for topic in spec.topics):
        raise HeadraceError(ErrorKind.ACCESS_DENIED, f"needs {write(TOPIC)} {spec.topics[0]}")


def _shown(task: MoveTask, samples: list[EditSample] | None = None) -> ShownMove:
    return ShownMove(
        id=task.id,
        source=task.source,
        act=task.act,
        to=task.destination,
        status=task.status.lower(),
        moved=task.moved,
        to_move=task.to_move,
        skipped=task.skipped,
        rate=task.rate,
        filter=task.filter,
        set=task.edits,
        by=task.by,
        started_ms=task.started_ms,
        failure=task.failure,
        samples=[
            MoveSample(
                before=ShownRecord(**shown_record(*one.source[1:], one.before)),
                after=ShownRecord(**shown_record(*one.source[1:], one.after)),
            )
            for one in samples or ()
        ],
    )
