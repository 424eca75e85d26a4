"""Public: the pytest plugin that installing headrace brings along.

It is loaded into every pytest run of every user, so it imports nothing heavy at the top and changes nothing unless
a test asks for one of its fixtures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing import LocalBroker, LocalCluster

MARKER = "headrace(**settings): settings of the brokers that the fixtures of this test start, as those of `headrace serve`"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("headrace")
    group.addoption(
        "--headrace-seed",
        type=int,
        default=None,
        help="run every simulation of a test with this one seed instead of the seeds it names",
    )


@pytest.fixture
def headrace_seed(request: pytest.FixtureRequest) -> int:
    """The seed asked for on the command line, else 1: the same test is the same run."""
    seed: int | None = request.config.getoption("--headrace-seed")
    return 1 if seed is None else seed


def _settings(request: pytest.FixtureRequest) -> dict[str, object]:
    """Of the markers around a test; the nearest wins."""
    found: dict[str, object] = {}
    for marker in request.node.iter_markers("headrace"):
        found = {**marker.kwargs, **found}
    return found


@pytest.fixture
def headrace(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A broker of this test's own: it starts in some ten milliseconds, and its clock is nobody else's."""
    from headrace.testing import LocalBroker

    with LocalBroker(**_settings(request)) as broker:
        yield broker


@pytest.fixture
def headrace_topic(request: pytest.FixtureRequest, headrace: LocalBroker) -> str:
    """A topic with the name of the test."""
    return headrace.create_topic(_name(request))


@pytest.fixture
def headrace_queue(request: pytest.FixtureRequest, headrace: LocalBroker) -> str:
    """A queue with the name of the test."""
    return headrace.create_queue(_name(request))


@pytest.fixture
def headrace_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Three brokers of this test's own, in one process."""
    from headrace.testing import LocalCluster

    with LocalCluster(3, **_settings(request)) as cluster:
        yield cluster


def _name(request: pytest.FixtureRequest) -> str:
    """As topics and queues alike may be called."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", request.node.name)[:60].strip("-")
