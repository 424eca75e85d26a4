"""A request goes a short way: the calls of our own functions that one takes are counted through the door, and may only shrink.

`scripts/walk` shows the same counts, and with `--tree` who calls whom.
"""

from __future__ import annotations

from walks import take_walks

LIMITS = {
    "SQS SendMessage": 160,
    "SQS ReceiveMessage": 137,
    "SQS DeleteMessage": 120,
    "SQS SendMessageBatch of 10": 245,
    "SQS ReceiveMessage of 10": 200,
    "SQS DeleteMessageBatch of 10": 150,
    "SQS SendMessage, FIFO": 347,
    "SQS ReceiveMessage, FIFO": 148,
    "SQS DeleteMessage, FIFO": 126,
    "REST send": 190,
    "REST receive": 167,
    "REST ack": 200,
    "produce acks=1": 100,
    "produce acks=all": 110,
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
