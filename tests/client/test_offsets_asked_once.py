"""Decision 0083 with the client that it is for: librdkafka asks for the offsets of an assignment while its coordinator resigns."""

from __future__ import annotations

from typing import Any

import confluent_kafka as ck
import pytest

from headrace.broker.groups import Groups
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.handlers import k09_offset_fetch
from headrace.testing import LocalBroker

pytestmark = pytest.mark.client


def resign_once(monkeypatch: pytest.MonkeyPatch, kind: ErrorKind) -> None:
    """The first question for offsets is answered as a coordinator does that is one no more."""
    fetch_offsets, asked = Groups.fetch_offsets, 0

    async def resigning(self: Groups, *given: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise HeadraceError(kind)
        return await fetch_offsets(self, *given)

    monkeypatch.setattr(Groups, "fetch_offsets", resigning)


def first_heard(broker: LocalBroker) -> ck.Message:
    """A message, or that something failed."""
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders", b"one")
    assert producer.flush(60) == 0
    consumer = ck.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["orders"])
        while (message := consumer.poll(60)) is None:
            pass
        return message
    finally:
        consumer.close()


@pytest.mark.parametrize("kind", [ErrorKind.NOT_COORDINATOR, ErrorKind.COORDINATOR_NOT_AVAILABLE])
def test_a_consumer_reads_on_when_its_coordinator_resigns(
    kind: ErrorKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    resign_once(monkeypatch, kind)
    with LocalBroker() as broker:
        heard = first_heard(broker)
        assert heard.error() is None and heard.value() == b"one"


def test_without_the_cure_it_is_told_once_and_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What librdkafka does with a refusal. When it has learnt to ask again, decision 0083 can be looked at again."""
    resign_once(monkeypatch, ErrorKind.NOT_COORDINATOR)
    monkeypatch.setattr(k09_offset_fetch, "LAST_WORDS", ())
    with LocalBroker() as broker:
        error = first_heard(broker).error()
        assert error is not None and error.code() == ck.KafkaError.NOT_COORDINATOR
