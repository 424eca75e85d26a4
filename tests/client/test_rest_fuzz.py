"""Schemathesis over the OpenAPI document: no 500, and every answer is what the document says. `make rest-fuzz` goes on for longer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.testing.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parents[1] / "rest"))
from rest_fuzz import ENVIRONMENT, fuzz

pytestmark = pytest.mark.client


def test_whatever_is_sent_is_answered_as_documented(fresh_broker: Callable[..., BrokerProcess]) -> None:
    fuzz(fresh_broker(environment=ENVIRONMENT), examples=3, seed=1)
