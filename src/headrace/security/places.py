"""Machine: the names that stand at the places of a right in a request (see rights.py for the words)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headrace.schemas.registry import topic_of
from headrace.security.rights import Right

MANY = "[]"


class Lookups(NamedTuple):
    """What a request does not say itself."""

    topic_by_id: Callable[[bytes], str | None]
    topics_of: Callable[[str], Sequence[str]]
    """Of a queue."""
    queue_of: Callable[[str], str | None]
    """Of a webhook."""
    source_of: Callable[[str], str | None]
    """The queue that a move task takes messages from."""
    is_topic: Callable[[str], bool] = lambda name: True
    """Whether there is one of that name already."""


class Named(NamedTuple):
    name: str
    by_id: bool = False
    """The request has its id: whoever may not see it hears that there is no such id (A44)."""


def kafka_names(right: Right, request: object, lookups: Lookups) -> Iterator[Named]:
    """A topic id that nobody has names nothing: the handler answers that it is unknown."""
    for place in right.places:
        yield from _names(right, place, request, lookups)


def part_names(
    right: Right, list_name: str, request: object, entry: object, lookups: Lookups
) -> Iterator[Named]:
    """Those in one entry of a list of the request."""
    whole = list_name + MANY
    for place in right.places:
        if place == whole:
            yield from _of_holder(right, request, (entry,), lookups)
        elif place.startswith(whole + "."):
            yield from _names(right, place[len(whole) + 1 :], entry, lookups)


def is_of_part(right: Right, list_name: str) -> bool:
    return any(
        place == list_name + MANY or place.startswith(list_name + MANY + ".") for place in right.places
    )


def _names(right: Right, place: str, root: object, lookups: Lookups) -> Iterator[Named]:
    *path, last = place.split(".")
    holders = [root]
    for part in path:
        holders = [found for holder in holders for found in _values(holder, part)]
    for holder in holders:
        yield from _of_holder(right, holder, _values(holder, last), lookups)


def _of_holder(right: Right, holder: object, values: Sequence[object], lookups: Lookups) -> Iterator[Named]:
    if right.only is not None and getattr(holder, right.only.field) != right.only.value:
        return
    for value in values:
        by_id = isinstance(value, bytes)
        name = lookups.topic_by_id(value) if isinstance(value, bytes) else str(value)
        if name:
            yield Named(name.partition(right.until)[0] if right.until else name, by_id)


def is_asked_for(right: Right, request: object) -> bool:
    """Of a right without a name."""
    return right.only is None or getattr(request, right.only.field) == right.only.value


def _values(holder: object, part: str) -> Sequence[object]:
    value = getattr(holder, part.removesuffix(MANY))
    if value is None:
        return ()
    return value if part.endswith(MANY) else (value,)


def http_names(
    right: Right, params: Mapping[str, str], body: Mapping[str, object], lookups: Lookups
) -> Iterator[str]:
    for place in right.places:
        for name in _http_values(place, params, body, lookups):
            if name:
                yield name


def _http_values(
    place: str, params: Mapping[str, str], body: Mapping[str, object], lookups: Lookups
) -> Sequence[str]:
    if " or " in place:
        either = (_http_values(each, params, body, lookups) for each in place.split(" or "))
        return next((given for given in either if any(given)), ())
    words, _, last = place.rpartition(" ")
    if last.startswith("{"):
        names: list[str] = [params[last[1:-1]]]
    else:
        value = body.get(last.removeprefix("body.").removesuffix(MANY))
        names = [str(entry) for entry in value] if isinstance(value, list) else [str(value or "")]
    for word in reversed(words.removesuffix(" of").split(" of ") if words else []):
        if word == "topic":
            names = [topic_of(name) for name in names if name]
        elif word == "topics":
            names = [topic for name in names if name for topic in lookups.topics_of(name)]
        else:
            find = lookups.queue_of if word == "queue" else lookups.source_of
            names = [found for name in names if (found := find(name)) is not None]
    return names
