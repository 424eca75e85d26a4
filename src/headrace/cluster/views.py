"""Machine: views: read-only topics without partitions of their own, which show what matches of another topic.

A view is a topic key with two configs, VIEW_SOURCE and VIEW_WHERE, and no partition keys: in the image it has its source's
partitions, so clients find the same leaders, and nobody elects, moves or stores anything for it. Its creation writes the
source's key again, unchanged: a deletion of the source that was decided without knowing of the view is refused (R1).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from headrace.core.errors import ErrorKind
from headrace.core.ids import is_internal
from headrace.core.plan import Rejected
from headrace.records.filters import Filter, FilterProblem, compile_filter

VIEW_SOURCE = "headrace.view.source"
VIEW_WHERE = "headrace.view.where"

MAX_VIEWS_PER_TOPIC = 100


class ViewSpec(NamedTuple):
    source: str
    filter: Filter

    @property
    def where(self) -> str:
        return self.filter.expression


_compiled = lru_cache(maxsize=256)(compile_filter)


def spec_of(configs: Mapping[str, str]) -> ViewSpec | None:
    """What a topic's configs say; None for an ordinary topic. Raises FilterProblem for a filter that does not parse."""
    source = configs.get(VIEW_SOURCE)
    return None if not source else ViewSpec(source, _compiled(configs.get(VIEW_WHERE, "")))


def wanted_view(configs: Mapping[str, str]) -> ViewSpec | Rejected | None:
    """The view that the (validated) configs of a new topic ask for; None when they ask for none."""
    if not configs.get(VIEW_SOURCE):
        if configs.get(VIEW_WHERE):
            return Rejected(ErrorKind.INVALID_CONFIG, f"{VIEW_WHERE} needs {VIEW_SOURCE}: what to filter")
        return None
    others = sorted(set(configs) - {VIEW_SOURCE, VIEW_WHERE})
    if others:
        return Rejected(
            ErrorKind.INVALID_CONFIG, f"a view stores nothing, so {others[0]} means nothing to it"
        )
    try:
        spec = spec_of(configs)
    except FilterProblem as problem:
        return Rejected(ErrorKind.INVALID_CONFIG, f"{VIEW_WHERE}: {problem.pointed()}")
    if spec is not None and is_internal(spec.source):
        return Rejected(ErrorKind.INVALID_CONFIG, f"{spec.source} is internal and has no views")
    return spec


def alteration_problem(name: str, is_view: bool, altered: set[str]) -> Rejected | None:
    """Why configs can't be altered: groups have read a view up to here with the filter that it has."""
    if is_view:
        return Rejected(
            ErrorKind.INVALID_CONFIG, f"{name} is a view and can't be changed: delete it and create it anew"
        )
    fixed = altered & {VIEW_SOURCE, VIEW_WHERE}
    if fixed:
        return Rejected(ErrorKind.INVALID_CONFIG, f"{min(fixed)} is given when a view is created")
    return None
