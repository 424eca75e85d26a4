"""A schedule's message is sent once for each tick, also when others change the schedule while it is sent."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from queue_clients import SqsClient
from sim_client import SimClient
from test_supervision import alone, until

from headrace.broker.queueing.cron import CronSchedules
from headrace.node.node import Node
from headrace.records.build import Record
from headrace.testing.dice import Dice
from headrace.testing.simulation import Simulation

MINUTE_S = 60.0


@pytest.mark.parametrize(("asks", "messages"), [(False, 1), (True, 2)], ids=["stale", "asked"])
def test_what_others_change_while_a_schedule_sends_makes_no_message_come_twice_or_never(
    asks: bool, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note of a tick that met a change was refused, and the tick came again; another one took away what was asked for meanwhile."""
    send, met = CronSchedules._send, list[str]()

    async def scenario(simulation: Simulation, node: Node, client: SimClient) -> None:
        metadata = node.metadata
        replaced = CronSchedules._replaced

        async def busy(self: CronSchedules, topic: str, record: Record) -> None:
            await send(self, topic, record)
            if asks and not met:
                met.append("asked")
                await self.send_now("hourly")

        def stale(self: CronSchedules, fresh):  # type: ignore[no-untyped-def]
            """Once, as if this broker had not heard yet of a change."""
            change = replaced(self, fresh)
            if not asks and not met and fresh.sent_ms:
                met.append("stale")
                (compare,) = change.compares
                return change._replace(compares=(compare._replace(expected=self._image.revision + 1),))
            return change

        monkeypatch.setattr(CronSchedules, "_send", busy)
        monkeypatch.setattr(CronSchedules, "_replaced", stale)
        rest = SqsClient([node.settings.host], Dice(1))
        wanted = {"name": "hourly", "cron": "0 * * * *", "topic": "t", "value": "due"}
        await rest.rest("POST", "/api/v1/schedules", wanted)
        partition = node.broker.partitions["t", 0]
        await until(lambda: partition.high_watermark > 0)
        await asyncio.sleep(5 * MINUTE_S)
        assert met and partition.high_watermark == messages, (
            "the tick, and what was asked for while it was sent"
        )
        schedule = metadata.image.opaque("schedules")["hourly"]
        assert b'"asked_ms":0' in schedule.replace(b" ", b"")

    alone(scenario, limit_s=2 * 3600.0)
