"""What a supervisor starts in tests/client/test_pipeline_service.py: a run that obeys its supervisor and needs no Spark.

    python leashed_run.py pipeline run definition.json --supervised DIRECTORY [--once]

It ends as the file `end` in its state directory says, which holds an exit code and an error."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from headrace.core.errors import HeadraceError
from headrace.spark.pipelines.loading import load
from headrace.spark.service.leash import Leash, mark_state
from headrace.spark.sync_client import pause


def main() -> int:
    definition = load(Path(sys.argv[3]))
    with Leash(Path(sys.argv[5])) as leash:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
        try:
            mark_state(definition, leash)
        except HeadraceError as problem:
            leash.entry["error"] = f"{problem.detail}. {problem.hint}"
            return 1
        print(f"run of {definition.name}", flush=True)
        leash.entry.update(state="running", records=42, lag=1)
        end = Path(definition.state) / "end"
        while not end.exists():
            pause(0.05)
        code, _, error = end.read_text().partition(" ")
        end.unlink()
        leash.entry["error"] = error
        return int(code)


if __name__ == "__main__":
    sys.exit(main())
