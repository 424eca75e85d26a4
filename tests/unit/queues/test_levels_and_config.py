from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queues.config import (
    Backoff,
    QueueConfig,
    config_from_json,
    config_to_json,
    fifo_queue,
    share_group,
    standard_queue,
)
from headrace.queues.levels import DELAY_LEVELS, level_by_name


def test_eighteen_levels() -> None:
    assert len(DELAY_LEVELS) == 18
    assert level_by_name("30s") == 30_000
    assert level_by_name(" 2H ") == 7_200_000
    assert level_by_name("11s") is None


@given(deliveries=st.integers(1, 5_000), draw=st.floats(0, 1, exclude_max=True))
def test_back_off_grows_to_its_maximum(deliveries: int, draw: float) -> None:
    backoff = Backoff(initial_ms=100, multiplier=2, max_ms=5_000, jitter=0.5)
    delay_ms = backoff.delay_ms(deliveries, draw)
    assert 50 <= delay_ms <= 5_000
    assert backoff.delay_ms(deliveries, 0.0) == min(100 * 2 ** (deliveries - 1), 5_000)


@pytest.mark.parametrize(
    "config",
    [
        QueueConfig(fifo=True, fair=True), QueueConfig(fifo=True, priorities=True), QueueConfig(visibility_ms=-1),
        QueueConfig(max_deliveries=-1), QueueConfig(max_in_flight=0), QueueConfig(window=0),
        QueueConfig(dead_letter_expired=True), QueueConfig(backoff=Backoff(multiplier=0.5)),
        QueueConfig(backoff=Backoff(jitter=1.5)),
    ],
)  # fmt: skip
def test_what_makes_no_sense(config: QueueConfig) -> None:
    assert config.problem()


def test_what_makes_sense() -> None:
    for config in (
        QueueConfig(),
        standard_queue(),
        fifo_queue(),
        share_group(),
        QueueConfig(backoff=Backoff(jitter=1.0)),
    ):
        assert config.problem() is None


def test_json_round_trip_and_a_newer_brokers_field() -> None:
    config = replace(fifo_queue(max_deliveries=3, dead_letter="d"), backoff=Backoff(initial_ms=7))
    raw = config_to_json(config)
    assert config_from_json(raw) == config
    assert config_from_json(raw[:-1] + b',"from_the_future":1}') == config
    assert config_from_json(b"{}") == QueueConfig()
