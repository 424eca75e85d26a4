"""Refusals as problems: what passes by itself is never the caller's fault."""

from __future__ import annotations

import pytest

from headrace.core.errors import ErrorKind
from headrace.http.problem import problem_of_kind


@pytest.mark.parametrize(
    "kind",
    [
        ErrorKind.NETWORK_EXCEPTION,
        ErrorKind.NOT_LEADER_OR_FOLLOWER,
        ErrorKind.LEADER_NOT_AVAILABLE,
        ErrorKind.FENCED_LEADER_EPOCH,
        ErrorKind.UNKNOWN_LEADER_EPOCH,
        ErrorKind.BROKER_NOT_AVAILABLE,
    ],
)
def test_f44_a_broker_that_could_not_be_asked_is_a_503_with_a_retry_after(kind: ErrorKind) -> None:
    refusal = problem_of_kind(kind)
    assert refusal.status == 503 and ("retry-after", "1") in refusal.headers
