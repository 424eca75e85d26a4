"""Codec: lists over REST: `?limit=&cursor=&fields=` in, `{"items": […], "next_cursor": …}` out.

A cursor is the name of the last item that was seen, so that a list that changes between two pages neither repeats nor skips
what stayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.http.messages import Request, Response
from headrace.http.rest.reading import answer, invalid, number

MAX_PAGE = 1_000
DEFAULT_PAGE = 1_000


def window(request: Request, names: Iterable[str]) -> tuple[list[str], str | None]:
    """The names that belong on this page, in order, and the cursor of the next one."""
    limit = number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
    after = request.query.get("cursor")
    ordered = sorted(name for name in names if after is None or name > after)
    more = len(ordered) > limit
    shown = ordered[:limit]
    return shown, shown[-1] if more else None


def page(request: Request, items: Sequence[dict[str, Any]], next_cursor: str | None = None) -> Response:
    text = request.query.get("fields")
    if text:
        wanted = [name for name in text.split(",") if name]
        for item in items[:1]:
            unknown = [name for name in wanted if name not in item]
            if unknown:
                raise invalid(f"there is no field {unknown[0]!r}", f"there are: {', '.join(item)}")
        items = [{name: item[name] for name in wanted} for item in items]
    return answer({"items": items, "next_cursor": next_cursor})
