#!/usr/bin/env python3
"""What a broker inside a test costs, once it is imported: python bench/local_broker.py [STARTS]. CPU is what a busy machine does not change."""

from __future__ import annotations

import os
import statistics
import sys
import time

from headrace.testing import LocalBroker, LocalCluster

STARTS = int(sys.argv[1]) if len(sys.argv) > 1 else 30


def costs(what: type[LocalCluster], *arguments: int) -> tuple[list[float], list[float]]:
    wall, cpu = [], []
    for _ in range(STARTS + 1):
        began, spent = time.perf_counter(), time.process_time()
        with what(*arguments):
            wall.append((time.perf_counter() - began) * 1000)
            cpu.append((time.process_time() - spent) * 1000)
    return wall[1:], cpu[1:]  # the first one imports


for name, (wall, cpu) in {
    "LocalBroker": costs(LocalBroker),
    "LocalCluster of three": costs(LocalCluster, 3),
}.items():
    print(
        f"{name}: ready after {statistics.median(wall):.0f} ms (at most {max(wall):.0f}), {statistics.median(cpu):.0f} ms of CPU; "
        f"{STARTS} starts, load {os.getloadavg()[0]:.0f}"
    )
