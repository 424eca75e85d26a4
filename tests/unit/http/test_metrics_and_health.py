from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.http.health import HealthDoor
from headrace.http.messages import Request, Response
from headrace.http.metrics import (
    Collectors,
    Family,
    Histogram,
    MetricsDoor,
    Sample,
    counter,
    escape_label_value,
    gauge,
    render_families,
)
from headrace.http.router import Match, Router


class Fixed:
    def __init__(self, *families: Family) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


class Broken:
    def collect(self) -> Iterable[Family]:
        raise RuntimeError("no")


def answer(router: Router, path: str, query: str = "") -> Response:
    found = router.resolve("GET", path)
    assert isinstance(found, Match)
    response = found.route.handler(Request("GET", path, query_string=query))
    assert isinstance(response, Response)
    return response


def test_exposition() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    text, dropped = render_families(
        [
            counter("mq_sent_total", "Sent\nand so on", 3, topic="orders"),
            gauge("mq_ratio", "A ratio", 0.25),
            Family("mq_seconds", "histogram", "Time", histogram.samples((("api", "x"),))),
            counter("mq_sent_total", "Sent", 4, topic="other"),
        ]
    )
    assert dropped == 0
    assert text == (
        "# HELP mq_sent_total Sent\\nand so on\n# TYPE mq_sent_total counter\n"
        'mq_sent_total{topic="orders"} 3\nmq_sent_total{topic="other"} 4\n'
        "# HELP mq_ratio A ratio\n# TYPE mq_ratio gauge\nmq_ratio 0.25\n"
        "# HELP mq_seconds Time\n# TYPE mq_seconds histogram\n"
        'mq_seconds_bucket{api="x",le="0.1"} 2\nmq_seconds_bucket{api="x",le="1"} 3\n'
        'mq_seconds_bucket{api="x",le="+Inf"} 4\nmq_seconds_sum{api="x"} 7.65\nmq_seconds_count{api="x"} 4\n'
    )


@given(st.text(max_size=50))
def test_x28_label_values_stay_on_their_line(value: str) -> None:
    escaped = escape_label_value(value)
    assert not any(character < " " or character == "\x7f" for character in escaped)
    text, _ = render_families([gauge("g", "h", 1, name=value)])
    assert text.count("\n") == 3
    escaped.encode()


def test_prometheus_reads_what_we_write() -> None:
    from prometheus_client import parser

    value = 'a"b\\c\nd'
    histogram = Histogram()
    histogram.observe(0.003)
    text, _ = render_families(
        [gauge("g", "h", float("inf"), name=value), Family("s", "histogram", "t", histogram.samples())]
    )
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert families["g"].samples[0].labels == {"name": value}
    assert families["s"].type == "histogram"


def test_x28_series_are_capped_and_the_rest_is_counted() -> None:
    registry = Collectors(max_series=10)
    registry.add(Fixed(Family("g", "gauge", "h", [Sample((("n", str(n)),), n) for n in range(100_000)])))
    text = registry.render()
    assert text.count("g{n=") == 10
    assert "mq_metrics_dropped_series 99990" in text


def test_a_failing_collector_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    registry = Collectors()
    for collector in (
        Broken(),
        Fixed(gauge("bad name", "h", 1)),
        Fixed(gauge("good", "h", 1)),
        Fixed(counter("good", "h", 2)),
        Fixed(Family("bad_label", "gauge", "h", [Sample((("a-b", "c"),), 1)])),
    ):
        registry.add(collector)
    text = registry.render()
    assert "good 1\n" in text
    assert "bad" not in text
    assert "mq_metrics_collector_failures_total 3" in text


def test_metrics_door() -> None:
    router, registry = Router(), Collectors()
    registry.add(Fixed(gauge("g", "h", 1)))
    MetricsDoor(registry).mount(router)
    response = answer(router, "/metrics")
    assert response.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert b"g 1\n" in response.body


def test_histogram_bounds() -> None:
    histogram = Histogram((1, 2, 4))
    for value in (0.5, 1.5, 1.5, 3, 100):
        histogram.observe(value)
    assert histogram.count == 5
    assert histogram.counts == [1, 2, 1, 1]
    for bounds in ((), (2, 1), (1, 1)):
        with pytest.raises(ValueError):
            Histogram(bounds)


def test_health() -> None:
    trouble: dict[str, str | None] = {"log": None, "coordinator": None}

    def broken() -> str | None:
        raise KeyError("x")

    checks = {"log": lambda: trouble["log"], "coordinator": lambda: trouble["coordinator"]}
    door = HealthDoor(live={"loop": lambda: None}, ready=checks)
    router = Router()
    door.mount(router)
    for path in ("/livez", "/readyz", "/healthz", "/health"):
        assert answer(router, path).body == b"ok\n"
    assert answer(router, "/readyz", "verbose").body.decode().splitlines()[:3] == [
        "[+]loop ok", "[+]log ok", "[+]coordinator ok",
    ]  # fmt: skip
    trouble["coordinator"] = "etcd does not answer"
    response = answer(router, "/readyz")
    assert (response.status, response.content_type) == (503, "application/problem+json")
    problem = json.loads(response.body)
    assert problem["code"] == "NOT_READY"
    assert problem["checks"] == {"coordinator": "etcd does not answer"}
    assert json.loads(answer(router, "/health", "verbose").body)["checks"]["log"] == "ok"
    assert answer(router, "/livez").status == 200
    router = Router()
    HealthDoor(ready={**checks, "odd": broken}).mount(router)
    assert "KeyError" in json.loads(answer(router, "/readyz").body)["detail"]
