"""One courier on virtual time, over the real queue engine: nothing lost, order kept, memory bounded, whatever the endpoint does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from push_world import Behaviour, World

from headrace.core.limits import MIB
from headrace.push.courier import MAX_TAKE
from headrace.push.endpoint import Answer, NoAnswer
from headrace.push.spec import Retry
from headrace.queues.config import QueueConfig, fifo_queue
from headrace.testing.dice import Dice
from headrace.testing.simulation import Simulation

OK = Answer(204, {}, b"")
QUICK = Retry(initial_ms=50, max_ms=400)


def simulate(seed: int, scenario: Callable[[Dice], Coroutine[Any, Any, None]]) -> None:
    async def run(simulation: Simulation) -> None:
        await scenario(simulation.dice.fork("test"))

    Simulation(seed).run(run)


def faulty(dice: Dice) -> Behaviour:
    """Fails, hangs, refuses, asks to wait, or takes its time."""

    async def behave(body: bytes) -> Answer:
        await asyncio.sleep(dice.exponential(0.02))
        draw = dice.between(0, 99)
        if draw < 6:
            await asyncio.sleep(10)
            raise NoAnswer("no answer within 10 s")
        if draw < 10:
            raise NoAnswer("connection refused")
        if draw < 22:
            return Answer(dice.pick([500, 502, 400, 307]), {}, b"")
        if draw < 25:
            return Answer(429, {"retry-after": "1"}, b"")
        return OK

    return behave


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_and_nothing_is_forgotten(seed: int) -> None:
    async def scenario(dice: Dice) -> None:
        taken: set[str] = set()
        inner = faulty(dice)

        async def behave(body: bytes) -> Answer:
            answer = await inner(body)
            if answer.status < 300:
                taken.update(one["value"] for one in msgspec.json.decode(body)["data"])
            return answer

        world = World(
            dice, QueueConfig(delays=True, journaled_leases=True), behave, retry=QUICK, batch_size=3
        )
        world.courier.start(world.spec)
        values = [f"m{number}" for number in range(150)]
        for first in range(0, 150, 30):
            world.publish(*values[first : first + 30])
            await asyncio.sleep(dice.uniform(0, 1))
        await world.until(lambda: world.done == 150, 3_600)
        assert taken == set(values)
        await world.stop()
        assert world.budget.used == 0 and world.courier.in_flight == 0 and world.held == 0

    simulate(seed, scenario)


@pytest.mark.parametrize("seed", range(8))
def test_r59_each_group_arrives_in_order(seed: int) -> None:
    """Nothing is even tried before everything in front of it in its group was taken, or travels in the same request."""

    async def scenario(dice: Dice) -> None:
        taken: dict[str, None] = {}
        overtaken: list[str] = []
        inner = faulty(dice)

        async def behave(body: bytes) -> Answer:
            data = msgspec.json.decode(body)["data"]
            values = [one["value"] for one in (data if isinstance(data, list) else [data])]
            for place, value in enumerate(values):
                in_front = {f"{value[0]}{number:02}" for number in range(int(value[1:]))}
                overtaken.extend(in_front - taken.keys() - set(values[:place]))
            answer = await inner(body)
            if answer.status < 300:
                taken.update(dict.fromkeys(values))
            return answer

        world = World(dice, fifo_queue(), behave, retry=QUICK, batch_size=dice.pick([1, 4]))
        world.courier.start(world.spec)
        for number in range(20):
            for group in "abc":
                world.publish(f"{group}{number:02}", group=group.encode())
        await world.until(lambda: world.done == 60, 3_600)
        await world.stop()
        assert overtaken == []
        for group in "abc":
            assert [value for value in taken if value[0] == group] == [f"{group}{n:02}" for n in range(20)]

    simulate(seed, scenario)


def test_memory_is_bounded_by_the_budget_and_one_take() -> None:
    async def scenario(dice: Dice) -> None:
        async def slow(body: bytes) -> Answer:
            await asyncio.sleep(0.9)
            return OK

        world = World(dice, QueueConfig(), slow, max_concurrency=256, batch_size=50)
        world.budget.limit = 4 * MIB
        world.courier.limit._limit = 256.0
        world.publish(*(f"m{number}" for number in range(400)), size=100_000)
        world.courier.start(world.spec)
        await world.until(lambda: world.done == 400, 3_600)
        await world.stop()
        assert world.most_held <= 4 * MIB + MIB, "the budget, and one message more than fits"

    simulate(1, scenario)


def test_an_open_circuit_receives_nothing() -> None:
    """D2: an endpoint that is down uses up no deliveries but those of its probes."""

    async def scenario(dice: Dice) -> None:
        down = True

        async def behave(body: bytes) -> Answer:
            if down:
                raise NoAnswer("connection refused")
            return OK

        world = World(dice, QueueConfig(journaled_leases=True), behave, retry=QUICK)
        world.publish(*(f"m{number}" for number in range(200)))
        world.courier.start(world.spec)
        await asyncio.sleep(3_600)
        world._catch_up()
        assert len(world.sent) < 40, "an hour: five failures, then probes with growing rests"
        assert world.courier.in_flight == 0 and world.held == 0
        down = False
        await world.until(lambda: world.done == 200, 900)
        await world.stop()

    simulate(2, scenario)


def test_gone_ends_it_at_once() -> None:
    async def scenario(dice: Dice) -> None:
        async def behave(body: bytes) -> Answer:
            await asyncio.sleep(0.01)
            return Answer(410, {}, b"")

        world = World(dice, QueueConfig(), behave)
        world.publish(*(f"m{number}" for number in range(50)))
        world.courier.start(world.spec)
        await asyncio.sleep(60)
        assert "410" in world.disabled and len(world.sent) <= 4
        await world.stop()
        assert world.done == 0 and world.held == 0

    simulate(3, scenario)


def test_what_is_no_longer_leased_is_not_sent() -> None:
    async def scenario(dice: Dice) -> None:
        async def slow(body: bytes) -> Answer:
            await asyncio.sleep(4)
            return OK

        world = World(dice, fifo_queue(), slow, batch_size=3)
        # Too large for one request, so they form a line; and somebody else gets the lease of the second one.
        world.publish("a", "b", "c", group=b"g", size=MIB)
        world.refuse_extend = True
        world.courier.start(world.spec)
        await asyncio.sleep(10)
        assert [batch[0][:1] for batch in world.sent] == ["a"]
        world.refuse_extend = False
        await world.until(lambda: world.done == 3, 600)
        await world.stop()
        assert [batch[0][:1] for batch in world.sent] == ["a", "b", "c"]

    simulate(4, scenario)


def test_without_a_secret_nothing_leaves() -> None:
    async def scenario(dice: Dice) -> None:
        async def behave(body: bytes) -> Answer:
            return OK

        world = World(dice, QueueConfig(), behave, retry=QUICK)
        secrets, world.secrets = world.secrets, ()
        world.publish("x")
        world.courier.start(world.spec)
        await asyncio.sleep(5)
        assert world.sent == [] and world.courier.log.newest()[0].outcome == "refused"
        world.secrets = secrets
        await world.until(lambda: world.done == 1, 600)
        await world.stop()

    simulate(5, scenario)


def test_one_receive_is_bounded() -> None:
    async def scenario(dice: Dice) -> None:
        async def behave(body: bytes) -> Answer:
            return OK

        world = World(dice, QueueConfig(), behave, max_concurrency=256, batch_size=100)
        world.courier.limit._limit = 256.0
        world.publish(*(f"m{number}" for number in range(1_000)))
        world.courier.start(world.spec)
        await world.until(lambda: world.done == 1_000, 60)
        await world.stop()
        assert world.received >= 1_000 // MAX_TAKE

    simulate(6, scenario)
