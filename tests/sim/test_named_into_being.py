"""A4, F21: topics and queues that come to be because REST names them have the same allowance as Kafka's; a whole broker, virtual time."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from headrace.broker.auto_creation import AutoCreation

sys.path.insert(0, str(Path(__file__).parent))
from test_health import HTTP_PORT, Beginner, until_ready


async def post(address: str, path: str) -> tuple[int, bytes]:
    """Status, and everything that came."""
    reader, writer = await asyncio.open_connection(address, HTTP_PORT)
    head = f"POST {path} HTTP/1.1\r\nhost: {address}:{HTTP_PORT}\r\ncontent-type: text/plain\r\n"
    writer.write(f"{head}content-length: 2\r\nconnection: close\r\n\r\nhi".encode())
    answer = await reader.read(65536)
    while more := await reader.read(65536):
        answer += more
    writer.close()
    return int(answer.split()[1]), answer


def test_f21_rest_names_a_bounded_number_into_being() -> None:
    beginner = Beginner(5)

    async def scenario(it: Beginner) -> None:
        it.machine.start()
        await until_ready(it.machine)
        address = it.machine.address
        allowance: Any = it.nodes[0].services.auto_creation
        assert isinstance(allowance, AutoCreation) and allowance.is_allowed
        # That it fills up again is shown in unit/broker/test_auto_creation.py.
        allowance._at_once, allowance._per_second = 3, 0
        made = [await post(address, f"/topics/t{number}/records") for number in range(2)]
        made.append(await post(address, "/queues/q0/messages"))
        assert [status // 100 for status, _ in made] == [2, 2, 2], made
        for path in ("/topics/t2/records", "/queues/q1/messages"):
            status, answer = await post(address, path)
            assert status == 429 and b"retry-after: 1" in answer.lower() and b"POST /api/v1/topics" in answer
            assert it.nodes[0].metadata.image.topic(path.split("/")[2]) is None
        for path in ("/topics/t1/records", "/queues/q0/messages"):
            assert (await post(address, path))[0] // 100 == 2, "what is there takes what it is sent"

    beginner.run(scenario)
