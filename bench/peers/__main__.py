"""python bench/peers: see cli.py."""

import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path[0] = str(BENCH)
for beside in ("models", "torture"):
    sys.path.append(str(BENCH.parent / "tests" / beside))

from peers.cli import main  # noqa: E402 - the path must be known first

if __name__ == "__main__":
    sys.exit(main())
