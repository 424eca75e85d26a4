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
    "REST send": 360,
    "REST receive": 370,
    "REST ack": 340,
    "produce acks=1": 150,
    "produce acks=all": 160,
    "fetch": 150,
}


async def test_no_request_takes_more_calls_than_it_did() -> None:
    walks = {walk.name: walk for walk in await take_walks()}
    too_long = {
        name: f"{len(walks[name].steps)} calls, {limit} allowed"
        for name, limit in LIMITS.items()
        if len(walks[name].steps) > limit
    }
    assert not too_long, "scripts/walk --tree shows what they are"
