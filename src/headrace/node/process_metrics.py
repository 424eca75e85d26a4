"""Driver: what the operating system and Python say about this process, under the names every dashboard knows."""

from __future__ import annotations

import gc
import os
import platform
import resource
from collections.abc import Iterable
from pathlib import Path

from headrace import __version__
from headrace.core.measures import Family, Sample, counter, gauge

PROC = Path("/proc/self")


class ProcessMetrics:
    def collect(self) -> Iterable[Family]:
        times = os.times()
        yield counter("process_cpu_seconds_total", "User and system CPU time.", times.user + times.system)
        yield gauge(
            "process_max_fds", "Files it may have open.", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        )
        if PROC.exists():  # Linux only; elsewhere these are left out, as other exporters do
            fields = (PROC / "stat").read_text().rpartition(")")[2].split()
            page = os.sysconf("SC_PAGE_SIZE")
            yield gauge("process_virtual_memory_bytes", "Virtual memory.", int(fields[20]))
            yield gauge("process_resident_memory_bytes", "Memory in RAM.", int(fields[21]) * page)
            yield gauge("process_open_fds", "Files it has open.", len(os.listdir(PROC / "fd")))
            started = boot_time() + int(fields[19]) / os.sysconf("SC_CLK_TCK")
            yield gauge("process_start_time_seconds", "When it was started, since 1970.", started)
        yield _by_generation("python_gc_collections_total", "Collections.", "collections")
        yield _by_generation("python_gc_objects_collected_total", "Objects found in cycles.", "collected")
        yield gauge(
            "mq_build_info",
            "The version that runs.",
            1,
            version=__version__,
            python=platform.python_version(),
        )


def boot_time() -> int:
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime"))


def _by_generation(name: str, text: str, field: str) -> Family:
    counts = [
        Sample((("generation", str(index)),), found[field]) for index, found in enumerate(gc.get_stats())
    ]
    return Family(name, "counter", text, counts)
