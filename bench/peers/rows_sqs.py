"""SQS over HTTP: the same prepared requests from bare sockets for everybody (sqs_load.py)."""

from __future__ import annotations

from queues import BATCH, send, send_batches, take
from sqs_load import ask, run

from peers.headrace_peer import Headrace, TwoHeadraces
from peers.rounds import Figure, Goal, Row, Size, Turns
from peers.rows_small import counted
from peers.sqs_peers import ElasticMq, Moto, SqsPeer

WORKERS = 16


def _sqs(peer: Headrace | TwoHeadraces | SqsPeer, size: Size) -> Turns:
    # moto is a stand-in for tests: fifty times slower than the others, and every worker waits for its turn.
    each = max(1, size.queued // WORKERS // (20 if isinstance(peer, Moto) else 1))
    ports = peer.http_ports
    number = 0

    def one_round(each: int) -> dict[str, float]:
        nonlocal number
        number += 1
        url = ask(ports[0], "CreateQueue", QueueName=f"bench-{number}")["QueueUrl"]
        tens = max(BATCH, each * 5 // BATCH * BATCH)
        works = {
            "sent": lambda: run(ports, [send(url, each) for _ in range(WORKERS)]),
            "taken singly": lambda: run(ports, [take(url, each, 1) for _ in range(WORKERS)]),
            "sent in tens": lambda: run(ports, [send_batches(url, tens) for _ in range(WORKERS)]),
            "taken in tens": lambda: run(ports, [take(url, tens, BATCH) for _ in range(WORKERS)]),
        }
        found: dict[str, float] = {}
        for name, work in works.items():
            found |= counted(peer.pids(), f"{name}/s", f"{name}: CPU µs", work)
        return found

    one_round(max(1, each // 4))
    while True:
        yield one_round(each)


ROWS = [
    Row(
        "sqs", "SQS, messages",
        (
            Figure("sent/s", more=True), Figure("sent: CPU µs"), Figure("sent in tens/s", more=True), Figure("sent in tens: CPU µs"),
            Figure("taken singly/s", True, Goal(3500)), Figure("taken singly: CPU µs", goal=Goal(250)),
            Figure("taken in tens/s", True, Goal(1.5, ("elasticmq",))), Figure("taken in tens: CPU µs"),
        ),
        (Headrace, TwoHeadraces, ElasticMq, Moto), _sqs, note="taken: received and deleted; 16 keep-alive sockets, 256 characters",
    ),
]  # fmt: skip
