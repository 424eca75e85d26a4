"""Driver: what a Python worker of Spark has imported is kept out of the garbage collector's sight.

`pyspark.daemon` collects garbage after every task and after every call of a planner, four times for a micro-batch of a stream
from topic to topic. Walking all that PySpark, Arrow and numpy have loaded takes 20 to 30 ms of CPU each time, as much as the
work itself. Modules do not go away, so they are frozen (`gc.freeze`): collecting then looks at what tasks have made only.
"""

from __future__ import annotations

import gc
import sys

_seen = 0


def settle() -> None:
    """At the start of a task. Does nothing outside of Spark's workers, nor when nothing was imported since the last time,
    so that what tasks leave behind is never frozen again and again."""
    global _seen
    if len(sys.modules) == _seen or not _in_worker():
        return
    _seen = len(sys.modules)
    gc.freeze()


def _in_worker() -> bool:
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return started is not None and started.name == "pyspark.daemon"
