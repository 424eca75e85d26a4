"""Costs follow what changed, not what there is (F27)."""

from __future__ import annotations

from typing import Any

import pytest
from largest_requests import Broker
from raw_client import RawClient

from headrace.cluster import controller
from headrace.wire.api import ApiKey
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

pytestmark = pytest.mark.client

TOPICS = 300


def test_a_new_topic_is_not_a_look_at_all_the_others_f27(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller looked at each partition of the cluster for each topic that was made: 45,000 looks for these. Now and then
    it looks at all of them, whatever it has heard of, and that is allowed for here."""
    looks = 0
    settle: Any = controller.settle

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal looks
        looks += 1
        return settle(*arguments, **options)

    monkeypatch.setattr(controller, "settle", counted)
    broker = Broker()
    try:
        with RawClient(broker.node.kafka_port, 120) as client:
            for first in range(0, TOPICS, 50):
                topics = [CreatableTopic(f"t{number}", 1, 1) for number in range(first, first + 50)]
                rows = client.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics)).topics
                assert not any(row.error_code for row in rows)
    finally:
        broker.close()
    assert TOPICS <= looks < 40 * TOPICS
