"""Door: what supervisors know of all submitted pipelines, for Prometheus. Any of them can be asked: they all read the same topic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headrace.core.pipelines import Hold, Submitted, shown_state

STATES = (
    "submitted", "waiting", "starting", "running", "backing-off", "failing", "stopping", "stopped", "finished", "failed", "lost",
)  # fmt: skip
_NUMBERS = {
    "mq_pipeline_lag_records": ("lag", "Records that wait to be read."),
    "mq_pipeline_run_records": ("records", "Records of the run."),
    "mq_pipeline_run_bytes": ("bytes", "Bytes of the run."),
    "mq_pipeline_run_records_per_second": ("rate", "Over the whole run."),
    "mq_pipeline_skipped_records": ("skipped", "Records that were gone before they were read."),
    "mq_pipeline_dead_rows": ("dead_rows", "Rows of the run that were not what the schema says."),
}


def exposition(pipelines: Iterable[tuple[Submitted, Hold | None]], wall_ms: int) -> str:
    return "".join(f"{line}\n" for line in _lines(list(pipelines), wall_ms))


def _lines(pipelines: list[tuple[Submitted, Hold | None]], wall_ms: int) -> Iterator[str]:
    yield from _head("mq_pipeline_state", "1 for the state that the pipeline is in.")
    for definition, hold in pipelines:
        now = shown_state(definition, hold, wall_ms)
        for state in STATES:
            yield f'mq_pipeline_state{{{_who(definition)},state="{state}"}} {int(state == now)}'
    held = [(definition, hold) for definition, hold in pipelines if hold is not None]
    yield from _head("mq_pipeline_failed_runs", "Runs of this version that failed.")
    for definition, hold in held:
        yield f"mq_pipeline_failed_runs{{{_who(definition)}}} {hold.restarts}"
    yield from _head("mq_pipeline_beat_age_seconds", "Since its supervisor was last heard of.")
    for definition, hold in held:
        yield f"mq_pipeline_beat_age_seconds{{{_who(definition)}}} {max(0, wall_ms - hold.at_ms) / 1000:.3f}"
    yield from _head("mq_pipeline_freshness_seconds", "Age of the newest record that is committed: tables.")
    for definition, hold in held:
        newest = hold.progress.get("newest_ms")
        if isinstance(newest, int) and newest > 0:
            yield f"mq_pipeline_freshness_seconds{{{_who(definition)}}} {max(0, wall_ms - newest) / 1000:.3f}"
    for name, (key, text) in _NUMBERS.items():
        yield from _head(name, text)
        for definition, hold in held:
            value = hold.progress.get(key)
            if isinstance(value, int):
                yield f"{name}{{{_who(definition)}}} {value}"


def _head(name: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"


def _who(definition: Submitted) -> str:
    """Names and kinds are out of letters, digits and . _ -, so nothing has to be quoted; what is not so is not shown."""
    return f'pipeline="{_plain(definition.name)}",kind="{_plain(definition.kind)}"'


def _plain(text: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "_" for char in text)


def serve_metrics(port: int, text: Callable[[], str]) -> int:
    """On loopback, in threads of its own; returns the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.path.partition("?")[0] == "/metrics"
            body = text().encode() if is_known else b"try /metrics\n"
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_address[1])
