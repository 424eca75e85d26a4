"""Door: pipelines, as they and their supervisors tell the cluster (core/pipelines.py). The broker runs no Spark and imports none of it.

GET   /api/v1/pipelines                      every one that was submitted, or that somebody runs by hand
GET   /api/v1/pipelines/{pipeline}           one, with its definition
GET   /api/v1/pipelines/{pipeline}/runs      its runs, the newest first, with their errors
POST  /api/v1/pipelines/{pipeline}/stop      ends when its round is done
POST  /api/v1/pipelines/{pipeline}/restart   a submitted one, once more
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec.structs import asdict, replace

from headrace.broker.coordinators import Coordinators
from headrace.broker.peers import Peers
from headrace.broker.txn_client import TransactionClient
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.pipelines import (
    ALIVE,
    BOARD,
    DEFINITIONS,
    Hold,
    Run,
    Shelf,
    Submitted,
    defining_id,
    encode,
    on_the_board,
    ordered,
    shown_state,
)
from headrace.core.ports import Clock
from headrace.http.contract import Contract, Param, whole
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.pipelines import (
    Asked,
    OnePipeline,
    PipelineVersion,
    ShownBatchOfRows,
    ShownPipeline,
    ShownPipelines,
    ShownRun,
    ShownRuns,
)
from headrace.http.rest.forms.queues import CHANGE_PROBLEMS, PAGE
from headrace.http.rest.paging import page, window
from headrace.http.rest.reading import answer, number
from headrace.http.rest.records import RecordReader
from headrace.records.build import Record, build_batch
from headrace.security.rights import OWN, TOPIC, Operation, read, write

CHUNK = 500
MAX_BATCHES = 30
"""Of what a run tells about its micro-batches."""
_TARGETS = ("target", "table", "to", "path", "target_bootstrap", "report", "warehouse")


class Followed:
    """What a compacted topic of one partition says, as far as it is committed; reads only what is new."""

    def __init__(self, image: ClusterImage, reader: RecordReader, topic: str) -> None:
        self._image = image
        self._reader = reader
        self._tp = TopicPartition(topic, 0)
        self._of: object = None
        """The life of the topic that was read: made again it begins anew (F1)."""
        self._position = 0
        self._one = asyncio.Lock()
        self.shelf = Shelf()
        self.entries: dict[str, dict[str, object]] = {}

    async def follow(self) -> None:
        async with self._one:
            known = self._image.topic(self._tp.topic)
            if known is None or known.id != self._of:
                self._of = None if known is None else known.id
                self._position = 0
                self.shelf.forget()
                self.entries.clear()
            if known is None:
                return
            bounds = await self._reader.bounds(self._tp)
            self._position = max(self._position, bounds.start)
            while self._position < bounds.end:
                chunk = await self._reader.read(self._tp, self._position, CHUNK)
                if chunk.next_offset <= self._position:
                    return
                for record in chunk.records:
                    self._learn(record)
                self._position = chunk.next_offset

    def _learn(self, record: Record) -> None:
        self.shelf.learn(record.key, None if record.value is None else bytes(record.value))
        name = (record.key or b"").decode(errors="replace")
        self.entries.pop(name, None)
        if record.value is not None and self._tp.topic == BOARD:
            try:
                self.entries[name] = msgspec.json.decode(record.value, type=dict)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return  # a client wrote it, and perhaps a newer one


class PipelineDoor(Door):
    def __init__(
        self,
        clock: Clock,
        image: ClusterImage,
        reader: RecordReader,
        peers: Peers,
        coordinators: Coordinators,
    ) -> None:
        self._clock = clock
        self._image = image
        self._peers = peers
        self._coordinators = coordinators
        self._submitted = Followed(image, reader, DEFINITIONS)
        self._by_hand = Followed(image, reader, BOARD)

    # -- what there is -------------------------------------------------------------------------------------------------

    async def rows(self, request: Request) -> dict[str, ShownPipeline]:
        """By name; nothing of a topic that the caller may not read."""
        wall_ms = self._clock.wall_ms()
        rows: dict[str, ShownPipeline] = {}
        if _may(request, Operation.READ, BOARD):
            await self._by_hand.follow()
            for name, entry in on_the_board(self._by_hand.entries, wall_ms).items():
                rows[name] = _row(name, entry, entry)
        if _may(request, Operation.READ, DEFINITIONS):
            await self._submitted.follow()
            shelf = self._submitted.shelf
            for name in shelf.names():
                definition = shelf.definition(name)
                assert definition is not None
                rows[name] = _submitted_row(definition, shelf.hold(name), wall_ms)
        return rows

    @route(
        "GET",
        "/api/v1/pipelines",
        OWN.showing(read(TOPIC)),
        Contract(
            "Pipelines",
            "pipelines",
            {200: ShownPipelines},
            "Those that were submitted, and those that somebody runs by hand. Nothing is shown to who may not read the topics they are kept in.",
            query=PAGE,
            problems=(400,),
        ),
    )
    async def _list(self, request: Request) -> Answer:
        rows = await self.rows(request)
        names, cursor = window(request, rows)
        return page(request, [rows[name] for name in names], cursor, len(rows))

    async def _need(self, request: Request) -> ShownPipeline:
        name = request.params["pipeline"]
        found = (await self.rows(request)).get(name)
        if found is None:
            raise HeadraceError(
                ErrorKind.NOT_FOUND,
                f'no pipeline "{name}" is known',
                "headrace pipeline list names those that are; headrace pipeline init KIND NAME begins one.",
            )
        return found

    @route(
        "GET",
        "/api/v1/pipelines/{pipeline}",
        OWN.showing(read(TOPIC)),
        Contract("One pipeline", "pipelines", {200: OnePipeline}),
    )
    async def _describe(self, request: Request) -> Answer:
        row = await self._need(request)
        definition = self._submitted.shelf.definition(row.name) if row.submitted else None
        versions = self._submitted.shelf.versions(row.name) if row.submitted else []
        return answer(
            OnePipeline(
                **asdict(row),
                toml="" if definition is None else definition.toml,
                versions=[
                    PipelineVersion(version=one.version, by=one.by, created_ms=one.at_ms) for one in versions
                ],
            )
        )

    @route(
        "GET",
        "/api/v1/pipelines/{pipeline}/runs",
        OWN.showing(read(TOPIC)),
        Contract(
            "The runs of a submitted pipeline",
            "pipelines",
            {200: ShownRuns},
            "The newest first; 200 are kept.",
            query=(Param("limit", "at most so many", whole(1, 200, 20)),),
        ),
    )
    async def _runs(self, request: Request) -> Answer:
        row = await self._need(request)
        limit = number(request, "limit", 20, 1, 200)
        runs = self._submitted.shelf.runs(row.name) if row.submitted else []
        return page(request, [_run(one) for one in runs[:limit]], None, len(runs))

    # -- what is asked of one ------------------------------------------------------------------------------------------

    @route(
        "POST",
        "/api/v1/pipelines/{pipeline}/stop",
        OWN.showing(write(TOPIC)),
        Contract(
            "Stop a pipeline",
            "pipelines",
            {202: Asked},
            "When its round is done. A submitted one stays stopped, on every supervisor, until it is restarted.",
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _stop(self, request: Request) -> Answer:
        row = await self._need(request)
        name = row.name
        if row.submitted:
            _need_right(request, DEFINITIONS)
            await self._order(request, name, wanted=False)
        elif row.state not in ALIVE:
            raise HeadraceError(ErrorKind.CONFLICT, f'pipeline "{name}" does not run: {row.state}')
        else:
            _need_right(request, BOARD)
            told = msgspec.json.encode({"run": self._by_hand.entries[name].get("run", "")})
            claim = self._claim(f"headrace-stop-{name}")
            await claim.begin()
            await self._write(claim, TopicPartition(BOARD, 0), f"{name}/stop", told)
        return answer(Asked(name=name, state="asked"), 202)

    @route(
        "POST",
        "/api/v1/pipelines/{pipeline}/restart",
        OWN.showing(write(TOPIC)),
        Contract(
            "Start a submitted pipeline again",
            "pipelines",
            {202: Asked},
            "One that was stopped, that waits to be tried again, or that runs.",
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _restart(self, request: Request) -> Answer:
        row = await self._need(request)
        name = row.name
        if not row.submitted:
            raise HeadraceError(
                ErrorKind.CONFLICT,
                f'pipeline "{name}" was not submitted: somebody runs it by hand, on {row.host}',
                "Give it to the supervisors with:  headrace pipeline submit FILE",
            )
        _need_right(request, DEFINITIONS)
        await self._order(request, name, wanted=True, restart=True)
        return answer(Asked(name=name, state="asked"), 202)

    def _claim(self, transactional_id: str) -> TransactionClient:
        return TransactionClient(self._image, self._peers, self._coordinators, transactional_id)

    async def _order(self, request: Request, name: str, *, wanted: bool, restart: bool = False) -> None:
        """A compared change, as the command line makes it: claim the id, read everything, then write."""
        claim = self._claim(defining_id(name))
        await claim.begin()
        await self._submitted.follow()
        known = self._submitted.shelf.definition(name)
        if known is None:
            raise HeadraceError(ErrorKind.NOT_FOUND, f'no pipeline "{name}" is submitted any more')
        by = str(request.access.principal) if request.access is not None else f"console@{request.peer.host}"
        fresh = ordered(known, by, self._clock.wall_ms(), wanted=wanted, restart=restart)
        await self._write(claim, TopicPartition(DEFINITIONS, 0), name, encode(fresh))

    async def _write(self, claim: TransactionClient, tp: TopicPartition, key: str, value: bytes) -> None:
        batch = build_batch(
            [Record(key.encode(), value)],
            wall_ms=self._clock.wall_ms(),
            producer_id=claim.producer_id,
            producer_epoch=claim.epoch,
            base_sequence=claim.next_sequence(tp, 1),
            transactional=True,
        )
        await claim.add([tp])
        try:
            await claim.produce(tp, batch)
        except BaseException:
            await claim.end(commit=False)
            raise
        await claim.end(commit=True)
        await claim.marked()


def _may(request: Request, operation: Operation, topic: str) -> bool:
    return request.access is None or not request.access.refuses(operation, TOPIC, topic)


def _need_right(request: Request, topic: str) -> None:
    if not _may(request, Operation.WRITE, topic):
        raise HeadraceError(
            ErrorKind.TOPIC_AUTHORIZATION_FAILED,
            f"needs Write on topic {topic}",
            "An administrator can grant it: headrace acl add.",
        )


def _submitted_row(definition: Submitted, hold: Hold | None, wall_ms: int) -> ShownPipeline:
    told = hold or Hold()
    return replace(
        _row(definition.name, told.progress, definition.definition),
        kind=definition.kind,
        state=shown_state(definition, hold, wall_ms),
        submitted=True,
        version=definition.version,
        by=definition.by,
        cron=definition.cron,
        host=told.host,
        error=told.error,
        restarts=told.restarts,
        attempts=told.attempts,
        run=told.run,
        log=told.log,
        since_ms=told.since_ms or None,
        updated_ms=told.at_ms or definition.changed_ms or None,
        next_ms=told.next_try_ms or None,
    )


def _row(name: str, told: Mapping[str, object], definition: Mapping[str, object]) -> ShownPipeline:
    """Clients wrote it, so nothing in it is taken for granted."""
    topics = definition.get("topics") or [definition.get("topic") or definition.get("queue") or ""]
    return ShownPipeline(
        name=name,
        kind=_text(told.get("kind")),
        state=_text(told.get("state")),
        submitted=False,
        version=0,
        by="",
        cron="",
        topics=[topic for topic in topics if isinstance(topic, str) and topic]
        if isinstance(topics, list)
        else [],
        target=next((text for key in _TARGETS if (text := _text(definition.get(key)))), ""),
        records=_number(told.get("records")),
        bytes=_number(told.get("bytes")),
        rate=_number(told.get("rate")),
        lag=_number(told.get("lag")),
        skipped=_number(told.get("skipped")),
        dead_rows=_number(told.get("dead_rows")),
        state_rows=_number(told.get("state_rows")),
        watermark=_text(told.get("watermark")),
        newest_ms=_number(told.get("newest_ms")),
        started_ms=_number(told.get("started_ms")),
        since_ms=None,
        updated_ms=_number(told.get("updated_ms")),
        next_ms=_number(told.get("next_try_ms")) or None,
        restarts=_number(told.get("restarts")) or 0,
        attempts=_number(told.get("attempts")) or 0,
        error=_text(told.get("error")),
        run=0,
        host=_text(told.get("host")),
        master=_text(told.get("master")),
        log="",
        ui=_text(told.get("ui")),
        table=_text(told.get("table")),
        path=_text(told.get("path")),
        batches=_batches(told.get("batches")),
    )


def _run(run: Run) -> ShownRun:
    return ShownRun(
        number=run.number,
        version=run.version,
        outcome=run.outcome,
        reason=run.reason,
        error=run.error,
        started_ms=run.started_ms or None,
        ended_ms=run.ended_ms or None,
        host=run.host,
        log=run.log,
        records=run.records,
        bytes=run.bytes,
    )


def _batches(told: object) -> list[ShownBatchOfRows]:
    """As Spark reports its micro-batches, or a pipeline that works in rounds its own."""
    if not isinstance(told, list):
        return []
    return [
        ShownBatchOfRows(
            id=_number(one.get("id")) or 0,
            at_ms=_number(one.get("at_ms")),
            rows=_number(one.get("rows")) or 0,
            total_ms=_number(one.get("total_ms")) or 0,
            parts_ms={
                str(key)[:60]: value
                for key, value in parts.items()
                if isinstance(value, int) and not isinstance(value, bool)
            }
            if isinstance(parts := one.get("parts_ms"), dict)
            else {},
        )
        for one in told[-MAX_BATCHES:]
        if isinstance(one, dict)
    ]


def _text(value: object) -> str:
    return value[:65_536] if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return (
        int(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63
        else None
    )
