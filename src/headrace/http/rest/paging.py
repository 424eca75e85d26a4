"""Codec: lists over REST: `?q=&sort=&limit=&cursor=&fields=` in, `{"items": […], "next_cursor": …, "total": …}` out.

A cursor is the place of the last item that was seen: its name, or its number and name where the list is sorted by a number. So a list that
changes between two pages neither repeats nor skips what stayed. Searching and sorting look at names and at numbers that are there
anyway; whatever has to be asked for is asked for the shown ones only (W9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest

import msgspec

from headrace.http.messages import JSON, Request, Response
from headrace.http.rest.reading import invalid, number
from headrace.http.rest.showing import Row, row

MAX_PAGE = 1_000
DEFAULT_PAGE = 1_000
MAX_WORDS = 200

SortKeys = Mapping[str, Callable[[str], float]]
"""What a list can be sorted by besides its names: the number of each."""


def window(request: Request, names: Iterable[str]) -> tuple[list[str], str | None]:
    """The names that belong on this page, in order, and the cursor of the next one."""
    shown, cursor, _ = sorted_window(request, names, {})
    return shown, cursor


def sorted_window(
    request: Request, names: Iterable[str], keys: SortKeys
) -> tuple[list[str], str | None, int]:
    """The same by any of `keys`, and how many there are on all pages."""
    limit = number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
    found = matching(request.query.get("q", ""), names)
    sort = request.query.get("sort", "name")
    field, down = sort.removeprefix("-"), sort.startswith("-")
    after = request.query.get("cursor")
    if field == "name":
        ordered = sorted(found, reverse=down)
        rest = [name for name in ordered if after is None or (name < after if down else name > after)]
        shown = rest[:limit]
        return shown, shown[-1] if len(rest) > limit else None, len(found)
    key = keys.get(field)
    if key is None:
        raise invalid(f"this list is not sorted by {field!r}", f"there are: {', '.join(['name', *keys])}")
    sign = -1 if down else 1
    placed: list[tuple[float, str]] = [(sign * key(name), name) for name in found]
    if after is not None:
        begin = _decode_place(after)
        placed = [place for place in placed if place > begin]
    first = nsmallest(limit, placed)
    more = len(placed) > limit
    return [name for _, name in first], _encode_place(first[-1]) if more else None, len(found)


def matching(words: str, names: Iterable[str]) -> list[str]:
    """Those that hold every word, in whatever case."""
    if len(words) > MAX_WORDS:
        raise invalid(f"q has at most {MAX_WORDS} characters")
    wanted = words.lower().split()
    if not wanted:
        return list(names)
    return [name for name in names if all(word in name.lower() for word in wanted)]


def _encode_place(place: tuple[float, str]) -> str:
    return msgspec.json.encode(place).decode()


def _decode_place(text: str) -> tuple[float, str]:
    try:
        return msgspec.json.decode(text, type=tuple[float, str])
    except (msgspec.DecodeError, ValueError):
        raise invalid("the cursor is not one of ours") from None


def page(
    request: Request,
    items: Sequence[msgspec.Struct],
    next_cursor: str | None = None,
    total: int | None = None,
) -> Response:
    rows = [row(item) for item in items]
    text = request.query.get("fields")
    if text:
        wanted = [name for name in text.split(",") if name]
        for item in rows[:1]:
            unknown = [name for name in wanted if name not in item]
            if unknown:
                raise invalid(f"there is no field {unknown[0]!r}", f"there are: {', '.join(item)}")
        rows = [{name: item[name] for name in wanted} for item in rows]
    document: Row = {"items": rows, "next_cursor": next_cursor}
    if total is not None:
        document["total"] = total
    return Response(msgspec.json.encode(document), 200, JSON)
