"""Machine: the names that stand at the places of a right in a request (see rights.py for the words)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

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


def kafka_names(right: Right, request: object, lookups: Lookups) -> Iterator[str]:
    """A topic id that nobody has names nothing: the handler answers that it is unknown."""
    for place in right.places:
        *path, last = place.split(".")
        holders = [request]
        for part in path:
            holders = [found for holder in holders for found in _values(holder, part)]
        for holder in holders:
            if right.only is None or getattr(holder, right.only.field) == right.only.value:
                for value in _values(holder, last):
                    name = lookups.topic_by_id(value) if isinstance(value, bytes) else str(value)
                    if name:
                        yield name.partition(right.until)[0] if right.until else name


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
    words, _, last = place.rpartition(" ")
    if last.startswith("{"):
        names: list[str] = [params[last[1:-1]]]
    else:
        value = body.get(last.removeprefix("body.").removesuffix(MANY))
        names = [str(entry) for entry in value] if isinstance(value, list) else [str(value or "")]
    for word in reversed(words.removesuffix(" of").split(" of ") if words else []):
        if word == "topics":
            names = [topic for name in names if name for topic in lookups.topics_of(name)]
        else:
            find = lookups.queue_of if word == "queue" else lookups.source_of
            names = [found for name in names if (found := find(name)) is not None]
    return names
