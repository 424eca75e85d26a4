"""A request goes a short way: the calls of our own functions that one takes are counted through the door, and may only shrink.

`scripts/walk` shows the same counts, and with `--tree` who calls whom.
"""

from __future__ import annotations

from walks import take_walks

LIMITS = {
    "SQS SendMessage": 340,
    "SQS ReceiveMessage": 360,
    "SQS DeleteMessage": 255,
    "SQS SendMessageBatch of 10": 910,
    "SQS ReceiveMessage of 10": 520,
    "SQS DeleteMessageBatch of 10": 280,
    "REST send": 325,
    "REST receive": 330,
    "REST ack": 290,
    "produce acks=1": 105,
    "produce acks=all": 115,
    "fetch": 95,
}


async def test_no_request_takes_more_calls_than_it_did() -> None:
    walks = {walk.name: walk for walk in await take_walks()}
    too_long = {
        name: f"{len(walks[name].steps)} calls, {limit} allowed"
        for name, limit in LIMITS.items()
        if len(walks[name].steps) > limit
    }
    assert not too_long, "scripts/walk --tree shows what they are"
