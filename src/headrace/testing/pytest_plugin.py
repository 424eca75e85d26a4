"""Public: the pytest plugin that installing headrace brings along.

It is loaded into every pytest run of every user, so it imports nothing heavy at the top and changes nothing unless
a test asks for one of its fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing import LocalBroker


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


@pytest.fixture(scope="session")
def headrace_broker() -> Iterator[LocalBroker]:
    """A broker of this test run, in memory."""
    from headrace.testing import LocalBroker

    with LocalBroker() as broker:
        yield broker
