"""What a crash does under each delivery guarantee (K8): one loses, one repeats, one does neither.

    .venv/bin/python examples/delivery.py

A worker copies numbers from one topic to another and is killed with -9 in the middle of its work, several times, each time
after it has published a result and before it could say that it is done. The only difference is one word.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter

from rich.console import Console
from rich.table import Table

from headrace import Client
from headrace.testing.broker_process import BrokerProcess

NUMBERS = 1_000
CRASHES_AFTER = (50, 300, 120)
GUARANTEES = ("at-most-once", "at-least-once", "exactly-once")
QUIET = {"log_level": 0, "session.timeout.ms": 2000, "heartbeat.interval.ms": 500}


def worker(bootstrap: str, delivery: str, crash_after: int) -> None:
    """Copies until there is nothing more, or until it falls over."""
    # The name lets a successor end the transaction that a crash left open; only exactly-once has one.
    with Client(bootstrap, delivery, transactional_id=f"copier-{delivery}", config=QUIET) as client:
        for count, message in enumerate(client.subscribe("numbers", group=delivery, follow=False), 1):
            client.publish(delivery, message.value)
            if count == crash_after:
                client.flush()
                os.kill(os.getpid(), signal.SIGKILL)


def copy_with_crashes(bootstrap: str, delivery: str) -> int:
    """Runs workers until one gets to the end; how many were killed on the way."""
    killed = 0
    for crash_after in (*CRASHES_AFTER, NUMBERS * 10):
        command = [sys.executable, __file__, "--worker", bootstrap, delivery, str(crash_after)]
        killed += subprocess.run(command, check=False).returncode == -signal.SIGKILL
    return killed


def main() -> int:
    console = Console(highlight=False)
    table = Table(title=f"{NUMBERS:,} numbers copied, with kill -9")
    for title in ("delivery", "killed", "arrived", "lost", "repeated"):
        table.add_column(title, justify="left" if title == "delivery" else "right")
    # A member that was killed is missed after its session; a second of that is enough for a demonstration.
    with BrokerProcess(arguments=("--group-min-session-timeout-ms", "1s")) as broker:
        with Client(broker.bootstrap, config=QUIET) as client:
            client.publish_many("numbers", range(NUMBERS))
        outcome = {}
        for delivery in GUARANTEES:
            killed = copy_with_crashes(broker.bootstrap, delivery)
            with Client(broker.bootstrap, config=QUIET) as client:
                arrived = Counter(int(message.text) for message in client.subscribe(delivery, follow=False))
            lost, repeated = NUMBERS - len(arrived), arrived.total() - len(arrived)
            outcome[delivery] = (lost, repeated)
            table.add_row(delivery, str(killed), f"{arrived.total():,}", str(lost), str(repeated))
    console.print(table)
    (lost, _), (_, repeated), neither = (outcome[delivery] for delivery in GUARANTEES)
    as_promised = outcome["at-most-once"][1] == 0 and outcome["at-least-once"][0] == 0 and neither == (0, 0)
    console.print(
        "As promised: one never repeats, one never loses, one does neither."
        if as_promised
        else "NOT as promised."
    )
    return 0 if as_promised and lost and repeated else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        sys.exit(main())
