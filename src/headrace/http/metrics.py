"""Door: /metrics in the Prometheus text format, version 0.0.4, or in OpenMetrics where that is asked for.

Collectors are asked at scrape time. One that fails costs its own families and nothing else; series beyond the cap
are dropped and counted, so that a million topics cannot take the scraper down (X28).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from headrace.core.measures import (
    SECONDS_BUCKETS,
    Collector,
    Family,
    FamilyKind,
    Histogram,
    Sample,
    counter,
    gauge,
)
from headrace.http.contract import plain_text
from headrace.http.declared import Door, route
from headrace.http.messages import Request, Response
from headrace.security.rights import CLUSTER, describe, needs

__all__ = [
    "SECONDS_BUCKETS",
    "Collector",
    "Collectors",
    "Family",
    "FamilyKind",
    "Histogram",
    "MetricsDoor",
    "Sample",
    "counter",
    "gauge",
    "render_families",
]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
DEFAULT_MAX_SERIES = 50_000
MAX_LABEL_CHARS = 1_024

_log = logging.getLogger("headrace.http")
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\\"]")


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    if character == "\n":
        return "\\n"
    if character in '\\"':
        return "\\" + character
    # The format has no escape for other control characters; written out, they cannot upset a terminal (X28).
    return f"\\\\x{ord(character):02x}"


def escape_label_value(value: str) -> str:
    clean = value[:MAX_LABEL_CHARS].encode("utf-8", "replace").decode("utf-8")
    return _CONTROL.sub(_escaped, clean)


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _format_value(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _series(name: str, sample: Sample) -> str:
    if not sample.labels:
        return f"{name}{sample.suffix} {_format_value(sample.value)}\n"
    pairs = ",".join([f'{label}="{escape_label_value(value)}"' for label, value in sample.labels])
    return f"{name}{sample.suffix}{{{pairs}}} {_format_value(sample.value)}\n"


def _check_names(families: Iterable[Family]) -> None:
    for family in families:
        if not _METRIC_NAME.fullmatch(family.name):
            raise ValueError(f"{family.name!r} is not a metric name")
        for label in {label for sample in family.samples for label, _ in sample.labels}:
            if not _LABEL_NAME.fullmatch(label):
                raise ValueError(f"{label!r} is not a label name")


def render_families(
    families: Iterable[Family], max_series: int = DEFAULT_MAX_SERIES, *, openmetrics: bool = False
) -> tuple[str, int]:
    """The text and the number of series that did not fit. Families of one name are merged under one header."""
    merged: dict[str, Family] = {}
    for family in families:
        known = merged.get(family.name)
        if known is None:
            merged[family.name] = family
        elif known.kind != family.kind:
            raise ValueError(f"{family.name} is both a {known.kind} and a {family.kind}")
        else:
            merged[family.name] = known._replace(samples=[*known.samples, *family.samples])
    lines: list[str] = []
    room = max_series
    dropped = 0
    for family in merged.values():
        name, kind = _openmetrics_header(family) if openmetrics else (family.name, str(family.kind))
        lines.append(f"# HELP {name} {_escape_help(family.help)}\n")
        lines.append(f"# TYPE {name} {kind}\n")
        kept = family.samples[: max(room, 0)]
        lines.extend(_series(family.name, sample) for sample in kept)
        room -= len(kept)
        dropped += len(family.samples) - len(kept)
    return "".join(lines), dropped


def _openmetrics_header(family: Family) -> tuple[str, str]:
    """There a counter is called without the _total that its series have, and what has none is not a counter."""
    if family.kind != "counter":
        return family.name, family.kind
    bare = family.name.removesuffix("_total")
    return (bare, "counter") if bare != family.name else (family.name, "unknown")


class Collectors:
    """The collectors of this process, in the order they were added."""

    def __init__(self, max_series: int = DEFAULT_MAX_SERIES) -> None:
        self.max_series = max_series
        self._collectors: list[Collector] = []
        self._failures = 0

    def add(self, collector: Collector) -> None:
        self._collectors.append(collector)

    def remove(self, collector: Collector) -> None:
        self._collectors.remove(collector)

    def render(self, *, openmetrics: bool = False) -> str:
        families: list[Family] = []
        for collector in self._collectors:
            try:
                found = list(collector.collect())
                _check_names(found)  # one bad name costs this collector and not the page
            except Exception:
                self._failures += 1
                _log.exception("metrics: collector %s failed", type(collector).__name__)
                continue
            families.extend(found)
        text, dropped = render_families(
            _without_conflicts(families), self.max_series, openmetrics=openmetrics
        )
        own, _ = render_families(
            (
                gauge("mq_metrics_dropped_series", "Series left out because of metrics.max_series", dropped),
                counter("mq_metrics_collector_failures_total", "Collectors that raised", self._failures),
            ),
            openmetrics=openmetrics,
        )
        return text + own + ("# EOF\n" if openmetrics else "")


def _without_conflicts(families: list[Family]) -> list[Family]:
    kinds: dict[str, str] = {}
    kept = []
    for family in families:
        if kinds.setdefault(family.name, family.kind) == family.kind:
            kept.append(family)
        else:
            _log.error("metrics: %s is reported with two types; one is left out", family.name)
    return kept


class MetricsDoor(Door):
    def __init__(self, registry: Collectors) -> None:
        self._registry = registry

    @route("GET", "/metrics", needs(describe(CLUSTER)), plain_text("Metrics for Prometheus"))
    def _answer(self, request: Request) -> Response:
        openmetrics = "application/openmetrics-text" in request.header(b"accept")
        text = self._registry.render(openmetrics=openmetrics)
        return Response(text.encode(), 200, OPENMETRICS_TYPE if openmetrics else CONTENT_TYPE)
