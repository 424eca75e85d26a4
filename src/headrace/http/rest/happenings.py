"""Door: what happened to the cluster lately.

GET /api/v1/happenings    ?limit=50&severity=warning&thing=queue&name=orders&from=

What every broker sees is told by the one that has been there longest; what only one sees, by that one. Kept in memory: nothing is known from before the
oldest of the brokers began.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from headrace.broker.happenings import Observer
from headrace.cluster.image import ClusterImage
from headrace.core.happenings import Happening
from headrace.http.contract import TIME, Contract, Param, one_of, whole
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.happenings import Happened, ShownHappening
from headrace.http.rest.reading import answer, invalid, number, time_ms
from headrace.http.whole import Whole
from headrace.security.rights import GROUP, OWN, TOPIC, Resource, describe

MAX_ROWS = 500
SEVERITIES = ("good", "info", "warning", "error")
THINGS = ("broker", "topic", "partition", "queue", "webhook")
NAMED = 3
"""So many names stand in a sentence."""
PLURAL = {"is": "are", "was": "were", "has": "have", "does": "do"}
SEEN_AS: dict[str, Resource] = {"topic": TOPIC, "partition": TOPIC, "queue": GROUP, "webhook": GROUP}


class HappeningDoor(Door):
    def __init__(self, image: ClusterImage, observer: Observer, whole: Whole) -> None:
        self._image = image
        self._observer = observer
        self._whole = whole

    @route(
        "GET",
        "/api/v1/happenings",
        OWN.showing(describe(TOPIC), describe(GROUP)),
        Contract(
            "What happened lately",
            "cluster",
            {200: Happened},
            "Elections, replicas that fall behind and catch up, brokers that come and go, topics made and deleted, webhooks that are disabled, dead letters that begin, moves.",
            query=(
                Param("limit", "at most so many", whole(1, MAX_ROWS, 50)),
                Param("severity", "this one, and worse", one_of(*SEVERITIES)),
                Param("thing", "only what happened to one of these", one_of(*THINGS)),
                Param("name", "only what happened to this one"),
                Param("from", "from this time on", TIME),
            ),
            problems=(400,),
        ),
    )
    async def _list(self, request: Request) -> Answer:
        wanted = _Wanted(request)
        own = Happened(
            items=[self._shown(row) for row in self._observer.happenings.rows()],
            next_cursor=None,
            began_ms=self._observer.began_ms,
            answered_by=self._image.broker_id,
            missing=[],
        )
        if request.sender is not None:  # a broker asks, for somebody whom it knows
            return answer(own)
        told = [own, *await self._whole.gather(request, Happened)]
        longest = min(told, key=lambda one: (one.began_ms, one.answered_by))
        rows = [row for one in told for row in one.items if one is longest or not row.everywhere]
        rows.sort(key=lambda row: row.at_ms, reverse=True)
        answered = {one.answered_by for one in told}
        return answer(
            Happened(
                items=list(islice(filter(None, map(wanted.seen, rows)), wanted.limit)),
                next_cursor=None,
                began_ms=longest.began_ms,
                answered_by=self._image.broker_id,
                missing=sorted(set(self._whole.others()) - answered),
            )
        )

    def _shown(self, row: Happening) -> ShownHappening:
        return ShownHappening(
            at_ms=row.at_ms,
            last_ms=row.last_ms,
            kind=row.kind,
            severity=row.severity,
            thing=row.thing,
            names=row.names,
            count=row.count,
            text=row.text,
            seen_by=self._image.broker_id,
            everywhere=row.everywhere,
        )


class _Wanted:
    """What a request asks for, and what whoever sends it may see (A44)."""

    def __init__(self, request: Request) -> None:
        query = request.query
        self._sees = request.sees
        self.limit = number(request, "limit", 50, 1, MAX_ROWS)
        self._worst = SEVERITIES.index(_one(query.get("severity", "good"), "severity", SEVERITIES))
        self._thing = _one(query["thing"], "thing", THINGS) if "thing" in query else ""
        self._name = query.get("name", "")
        self._from_ms = time_ms(query["from"], "from") if "from" in query else 0

    def seen(self, row: ShownHappening) -> ShownHappening | None:
        if SEVERITIES.index(row.severity) < self._worst or row.last_ms < self._from_ms:
            return None
        if self._thing not in ("", row.thing):
            return None
        names = [name for name in row.names if self._may_see(row.thing, name)]
        if self._name:
            names = [name for name in names if self._name in (name, _topic_of(row.thing, name))]
        if not names:
            return None
        count = row.count if len(names) == len(row.names) else len(names)
        return msgspec.structs.replace(
            row, names=names, count=count, text=_sentence(row.thing, names, count, row.text)
        )

    def _may_see(self, thing: str, name: str) -> bool:
        resource = SEEN_AS.get(thing)
        return resource is None or self._sees(resource, _topic_of(thing, name))


def _topic_of(thing: str, name: str) -> str:
    return name.rpartition("-")[0] if thing == "partition" else name


def _one(text: str, name: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise invalid(f"{name} is one of {', '.join(known)}")
    return text


def _sentence(thing: str, names: list[str], count: int, text: str) -> str:
    if count == 1:
        return f"{thing.capitalize()} {names[0]} {text}" if thing != "partition" else f"{names[0]} {text}"
    verb, _, rest = text.partition(" ")
    more = f" and {count - NAMED:,} more" if count > NAMED else ""
    return f"{count:,} {thing}s {PLURAL.get(verb, verb)} {rest}: {', '.join(names[:NAMED])}{more}"
