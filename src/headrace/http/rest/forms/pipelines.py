"""Codec: pipelines, as they and their supervisors tell the cluster."""

from __future__ import annotations

import msgspec


class ShownBatchOfRows(msgspec.Struct, kw_only=True):
    id: int
    at_ms: int | None
    rows: int
    total_ms: int
    parts_ms: dict[str, int]
    """Where the time went, by Spark's own names; empty for pipelines that work in rounds."""


class ShownPipeline(msgspec.Struct, kw_only=True):
    name: str
    kind: str
    state: str
    """submitted, waiting, starting, running, backing-off, failing, stopping, stopped, finished, failed, or lost: nothing is heard of it."""
    submitted: bool
    """Its definition is kept in the cluster, and a supervisor runs it; otherwise somebody runs it by hand."""
    version: int
    by: str
    cron: str
    topics: list[str]
    target: str
    """A topic, a table or a path."""
    records: int | None
    """Of this run."""
    bytes: int | None
    rate: int | None
    """Records a second, over the run."""
    lag: int | None
    skipped: int | None
    """Records that were gone before they were read."""
    dead_rows: int | None
    state_rows: int | None
    watermark: str
    newest_ms: int | None
    started_ms: int | None
    since_ms: int | None
    """Of the state."""
    updated_ms: int | None
    next_ms: int | None
    """When it is tried again, or comes next."""
    restarts: int
    attempts: int
    """Failures in a row."""
    error: str
    run: int
    """Number of its last run; 0 for one that is run by hand."""
    host: str
    master: str
    log: str
    """A file on `host`."""
    ui: str
    """Spark's own pages of this run."""
    table: str
    path: str
    batches: list[ShownBatchOfRows]
    """The last ones, the newest last."""


class ShownPipelines(msgspec.Struct, kw_only=True):
    items: list[ShownPipeline]
    next_cursor: str | None
    total: int


class PipelineVersion(msgspec.Struct, kw_only=True):
    version: int
    by: str
    created_ms: int


class OnePipeline(ShownPipeline, kw_only=True):
    toml: str
    """As its author wrote it; empty for one that is run by hand."""
    versions: list[PipelineVersion]
    """The newest first."""


class ShownRun(msgspec.Struct, kw_only=True):
    number: int
    version: int
    outcome: str
    """running, finished, stopped, failed, or lost: nobody knows how it ended."""
    reason: str
    error: str
    started_ms: int | None
    ended_ms: int | None
    host: str
    log: str
    records: int
    bytes: int


class ShownRuns(msgspec.Struct, kw_only=True):
    items: list[ShownRun]
    next_cursor: None
    total: int


class Asked(msgspec.Struct, kw_only=True):
    name: str
    state: str
    """asked: it happens when its supervisor, or the run itself, hears of it."""
