"""Command: partitions that are being moved, watched until they are where they should be."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from headrace.cli.cluster_view import ClusterLink
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.progress import progress
from headrace.cluster.reassignment import Reassignment

LOOK_S = 0.2


def carry_out(run: Invocation, link: ClusterLink, plan: Sequence[Reassignment], wait_ms: int) -> None:
    """Ask for the moves, and wait for them and for those of others."""
    link.start(plan)
    deadline, pause = time.monotonic() + wait_ms / 1000, threading.Event()
    done = 0
    with progress(run, "Moving partitions", len(plan)) as advance:
        while left := len(link.moving()):
            if time.monotonic() > deadline:
                raise Failure(
                    Exit.TIMEOUT,
                    f"{left} partitions are still being moved",
                    "they go on by themselves; look with:  headrace cluster status",
                )
            moved = max(done, len(plan) - left)  # others may move some more meanwhile
            advance(moved - done)
            done = moved
            pause.wait(LOOK_S)
