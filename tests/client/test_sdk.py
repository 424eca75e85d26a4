"""`from headrace import Client` against a real broker: the delivery knob (K8) under crashes, both ways of iterating."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import FrameType

import pytest

from headrace import Client, HeadraceError, Receipt
from headrace.core.errors import ErrorKind
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

QUIET = {"log_level": 0}


def test_publish_is_answered_with_the_place_of_the_message(broker: BrokerProcess, topic: str) -> None:
    with Client(broker.bootstrap, config=QUIET) as client:
        assert client.publish(topic, "first").result(10) == Receipt(0, 0)
        deliveries = client.publish_many(topic, [b"raw", {"id": 7}, None], key="k", headers={"h": "1"})
        assert [delivery.result(10).offset for delivery in deliveries] == [1, 2, 3]
        found = list(client.subscribe(topic, follow=False))
    assert [message.value for message in found] == [b"first", b"raw", b'{"id":7}', None]
    assert found[2].json() == {"id": 7} and found[2].key == b"k" and found[2].headers == (("h", b"1"),)
    assert [message.offset for message in found] == [0, 1, 2, 3]
    assert found[0].timestamp is not None and abs(datetime.now(UTC) - found[0].timestamp) < timedelta(
        minutes=1
    )


def test_reading_alone_starts_anywhere_and_commits_nothing(broker: BrokerProcess, topic: str) -> None:
    with Client(broker.bootstrap, config=QUIET) as client:
        client.publish_many(topic, [str(number) for number in range(10)])
        client.flush()

        def texts(start: str | datetime) -> list[str]:
            return [message.text for message in client.subscribe(topic, start=start, follow=False)]

        assert texts("-3") == ["7", "8", "9"]
        assert texts("8") == ["8", "9"]
        assert texts("end") == []
        assert (
            texts(datetime.now(UTC) - timedelta(hours=1))
            == texts("start")
            == [str(number) for number in range(10)]
        )


def test_async_publish_and_subscribe(broker: BrokerProcess, topic: str) -> None:
    async def talk(client: Client) -> list[str]:
        for number in range(5):
            receipt = await client.publish(topic, str(number))
            assert receipt.offset == number
        found = []
        async with client.subscribe(topic, group=f"g-{topic}") as subscription:
            async for message in subscription:
                found.append(message.text)
                if len(found) == 5:
                    break
        return found

    with Client(broker.bootstrap, config=QUIET) as client:
        assert asyncio.run(talk(client)) == ["0", "1", "2", "3", "4"]


def test_a_cancelled_wait_loses_nothing(broker: BrokerProcess, topic: str) -> None:
    async def talk(client: Client) -> list[str]:
        subscription = client.subscribe(topic, group=f"g-{topic}", create=True)
        waiting = asyncio.ensure_future(anext(subscription))
        done, _ = await asyncio.wait({waiting}, timeout=0.05)
        assert not done
        waiting.cancel()
        client.publish_many(topic, ["a", "b"])
        found = [(await anext(subscription)).text, (await anext(subscription)).text]
        await subscription.aclose()
        return found

    with Client(broker.bootstrap, config=QUIET) as client:
        assert asyncio.run(talk(client)) == ["a", "b"]


def take(client: Client, topic: str, count: int, *, ack: bool = False) -> list[str]:
    """Take so many and go away in the middle of the last one."""
    found = []
    with client.subscribe(topic, group=f"g-{topic}", ack="manual" if ack else "auto") as subscription:
        for message in subscription:
            found.append(message.text)
            if len(found) == count:
                break
    return found


def test_at_least_once_repeats_what_was_not_finished_k8(broker: BrokerProcess, topic: str) -> None:
    with Client(broker.bootstrap, config=QUIET) as client:
        client.publish_many(topic, ["a", "b", "c"])
        client.flush()
        assert take(client, topic, 2) == ["a", "b"]
        # b was being worked on when its worker went away.
        assert take(client, topic, 2) == ["b", "c"]


def test_at_most_once_never_repeats_k8(broker: BrokerProcess, topic: str) -> None:
    with Client(broker.bootstrap, delivery="at-most-once", config=QUIET) as client:
        client.publish_many(topic, ["a", "b", "c"])
        client.flush()
        first = take(client, topic, 1)
        rest = [message.text for message in client.subscribe(topic, group=f"g-{topic}", follow=False)]
    assert first == ["a"]
    assert "a" not in rest, "it was committed before it was handed out"


def test_acks_out_of_order_commit_only_the_finished_prefix(broker: BrokerProcess, topic: str) -> None:
    group = f"g-{topic}"
    with Client(broker.bootstrap, config=QUIET) as client:
        client.publish_many(topic, ["a", "b", "c", "d"])
        client.flush()
        with client.subscribe(topic, group=group, ack="manual") as subscription:
            a, _, c, d = (next(subscription) for _ in range(4))
            for message in (c, a, d):
                message.ack()
        again = [message.text for message in client.subscribe(topic, group=group, follow=False)]
    assert again == ["b", "c", "d"]


def test_an_early_ack_counts_although_the_next_is_never_asked_for(broker: BrokerProcess, topic: str) -> None:
    with Client(broker.bootstrap, config=QUIET) as client:
        client.publish_many(topic, ["a", "b", "c"])
        client.flush()
        with client.subscribe(topic, group=f"g-{topic}") as subscription:
            first, second = next(subscription), next(subscription)
            first.ack()  # long done
            second.ack()
        again = [message.text for message in client.subscribe(topic, group=f"g-{topic}", follow=False)]
    assert again == ["c"]


def test_every_partition_of_every_topic_is_finished_for_itself(broker: BrokerProcess, topic: str) -> None:
    """What is finished is noted for many messages at once, with several partitions mixed in them."""
    names = [f"{topic}-{number}" for number in range(3)]
    with Client(broker.bootstrap, config=QUIET) as client:
        for number in range(700):
            client.publish(names[number % 3], number)
        client.flush()
        seen: list[int] = []
        for count in (1, 250, 333, 700):  # the last of each is left half done, and comes again
            with client.subscribe(names, group=f"g-{topic}", follow=False) as subscription:
                for _, message in zip(range(count), subscription, strict=False):
                    seen.append(message.json())
    assert set(seen) == set(range(700)) and len(seen) == 700 + 3


def calls_of(work: Callable[[], object]) -> int:
    """Functions of the SDK that this thread enters meanwhile."""
    found = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal found
        found += event == "call" and "/headrace/client/" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("group", [None, "readers"])
def test_f86_a_message_costs_a_few_calls(broker: BrokerProcess, topic: str, group: str | None) -> None:
    """bench/sdk.py has the time; here is what it is made of, which no load changes."""
    with Client(broker.bootstrap, config=QUIET) as client:
        client.publish(topic, b"first").result(60)
        spent = calls_of(
            lambda: (
                [client.publish(topic, b"v", key=b"k") for _ in range(2000)],
                client.flush(),
            )
        )
        assert spent < 2000 * 3.5, "publish, publish, answered"
        subscription = client.subscribe(topic, group=group and f"{group}-{topic}", follow=False)
        spent = calls_of(lambda: [message.value for message in subscription])
        assert spent < 2001 * 1.5, "the iterator, and little for many"


def doubled(client: Client, source: str, sink: str, fail_at: int | None = None) -> int:
    """Read all of `source`, publish each number twice as large to `sink`. Fails half-way through one, if told to."""
    count = 0
    with client.subscribe(source, group=f"g-{source}", follow=False) as subscription:
        for message in subscription:
            client.publish(sink, int(message.text) * 2)
            count += 1
            if fail_at is not None and count >= fail_at:
                raise RuntimeError("the worker fell over")
    return count


def committed(broker: BrokerProcess, topic: str) -> list[int]:
    with Client(broker.bootstrap, delivery="exactly-once", config=QUIET) as client:
        return [int(message.text) for message in client.subscribe(topic, follow=False)]


def test_exactly_once_neither_loses_nor_repeats_k8(broker: BrokerProcess, topic: str) -> None:
    sink = f"{topic}-out"
    with Client(broker.bootstrap, config=QUIET) as client:
        client.publish_many(topic, [str(number) for number in range(500)])
    for fail_at in (3, 250, 7):
        with (
            pytest.raises(RuntimeError),
            Client(broker.bootstrap, delivery="exactly-once", config=QUIET) as client,
        ):
            doubled(client, topic, sink, fail_at)
    with Client(broker.bootstrap, delivery="exactly-once", config=QUIET) as client:
        doubled(client, topic, sink)
    assert sorted(committed(broker, sink)) == [number * 2 for number in range(500)]
    with Client(broker.bootstrap, delivery="exactly-once", config=QUIET) as client:
        assert doubled(client, topic, sink) == 0, "the offsets were committed with the results"


def test_exactly_once_publishing_is_all_or_nothing(broker: BrokerProcess, topic: str) -> None:
    with Client(broker.bootstrap, delivery="exactly-once", config=QUIET) as client:
        client.publish_many(topic, [1, 2, 3])
        assert client.publish(topic, 4).result(20).offset >= 0
        assert committed(broker, topic) == [], "acknowledged, but not committed yet"
        client.flush()
        assert committed(broker, topic) == [1, 2, 3, 4]
    with (
        pytest.raises(RuntimeError),
        Client(broker.bootstrap, delivery="exactly-once", config=QUIET) as client,
    ):
        client.publish(topic, 5)
        raise RuntimeError("changed my mind")
    assert committed(broker, topic) == [1, 2, 3, 4]


def test_exactly_once_has_one_transaction_and_so_one_reader(broker: BrokerProcess, topic: str) -> None:
    with Client(broker.bootstrap, delivery="exactly-once", config=QUIET) as client:
        client.subscribe(topic, group=f"g-{topic}", create=True)
        with pytest.raises(HeadraceError, match="one subscription of a group at a time"):
            client.subscribe(topic, group=f"h-{topic}")


def test_acknowledged_messages_survive_kill_9_in_mid_load_k8(
    fresh_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = fresh_broker()
    with Client(broker.bootstrap, timeout=300, config=QUIET) as client:
        deliveries = client.publish_many(topic, [str(number) for number in range(2000)])
        broker.kill()
        acknowledged = [delivery for delivery in deliveries if delivery.done()]
        broker.start()
        client.flush()
        found = [message.text for message in client.subscribe(topic, follow=False)]
    assert len(acknowledged) <= 2000
    assert found == [str(number) for number in range(2000)], "each once, in order, although the broker died"


def test_a_failed_publish_is_told_by_result_and_by_flush() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        client = Client(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.5, config=QUIET)
        delivery = client.publish("t", "x")
        with pytest.raises(HeadraceError) as refused:
            delivery.result(60)
        assert refused.value.kind is ErrorKind.REQUEST_TIMED_OUT
        client.publish("t", "y")
        with pytest.raises(HeadraceError, match=r"not published|not acknowledged"):
            client.flush(60)
