"""The largest legal request of each API with lists: how long it keeps the loop, what it costs, what it needs (A3).

python bench/largest_requests.py [--partitions 5000] [--only 'Metadata|Fetch']

A whole broker runs in this process on the standard library's event loop, whose callbacks are timed in CPU time of their own thread,
so a busy machine does not change the figures much. Requests come over sockets from another thread. The longest single callback
is what other clients have to wait for; the rule is 50 ms. Ends with exit code 1 when a request breaks it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
from largest_requests import Broker, Case, cases
from raw_client import RawClient

from headrace.wire.codec import encode

LONGEST_MS = 50.0


class Gauge:
    """CPU time of each callback of one event loop."""

    def __init__(self, thread: int | None) -> None:
        self.longest_s = 0.0
        self.total_s = 0.0
        run = asyncio.events.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            if threading.get_ident() != thread:
                return run(handle)
            started = time.thread_time()
            run(handle)
            spent = time.thread_time() - started
            self.total_s += spent
            self.longest_s = max(self.longest_s, spent)

        asyncio.events.Handle._run = timed  # type: ignore[method-assign]

    def reset(self) -> None:
        self.longest_s = self.total_s = 0.0


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def measure(broker: Broker, gauge: Gauge, name: str, case: Case) -> bool:
    with RawClient(broker.node.kafka_port, 300) as client:
        frame = client.frame(case.key, case.version, encode(case.request(), case.version))
        gc.collect()
        before_mb = resident_mb()
        gauge.reset()
        client.socket.sendall(frame)
        try:
            (size,) = struct.unpack(">i", client.read(4))
            client.read(size)
        except ConnectionError:
            size = -1
        # The answer may have been sent from within the callback that is still running.
        broker.wait(asyncio.sleep(0.01))
        longest_ms, total_ms = gauge.longest_s * 1000, gauge.total_s * 1000
    answer = f"{size:>10,}" if size >= 0 else "    closed"
    fits = longest_ms <= LONGEST_MS and size >= 0
    print(
        f"{name:<30} {case.entries:>7,} {len(frame):>10,} {answer} {total_ms:>9.0f} {longest_ms:>8.1f} "
        f"{resident_mb() - before_mb:>8.1f}{'' if fits else '  <--'}",
        flush=True,
    )
    return fits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    broker = Broker()
    gauge = Gauge(broker.thread.ident)
    producer_id = broker.prepare(options.partitions)
    # As `headrace serve` does.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    only = [name for name in options.only.split("|") if name]
    print(
        f"{'request':<30} {'entries':>7} {'bytes':>10} {'answer':>10} {'CPU ms':>9} {'longest':>8} {'memory MB':>8}"
    )
    good = True
    for name, case in cases(options.partitions, producer_id).items():
        if not only or name in only:
            good = measure(broker, gauge, name, case) and good
    broker.close()
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
