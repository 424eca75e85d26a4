"""A supervisor for tests/client/test_pipeline_service.py, whose runs are `leashed_run.py`: python supervisor_process.py BOOTSTRAP DIRECTORY"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from headrace.spark.connection import ClusterAccess
from headrace.spark.service.supervisor import PipelineSupervisor


def main() -> None:
    runs = [sys.executable, str(Path(__file__).parent / "leashed_run.py")]
    access = ClusterAccess(sys.argv[1], request_seconds=5.0)
    supervisor = PipelineSupervisor(
        access, Path(sys.argv[2]), tell=lambda text: print(text, flush=True), command=runs
    )
    signal.signal(signal.SIGTERM, lambda *_: supervisor.stop())
    supervisor.run()


if __name__ == "__main__":
    main()
