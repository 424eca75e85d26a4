"""Commands on a terminal: a real pty of 80 columns, and what a person sees there."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

COLUMNS = 80
PROGRAM = """
import json, sys
from headrace.cli.main import main
for words in json.load(open(sys.argv[1])):
    try:
        main(words, prog_name="headrace")
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    print(f"\\x00{code}\\x00", end="", flush=True)
"""
"""Many commands in one process: each of its own would spend most of its time on starting Python."""


class Shown(NamedTuple):
    code: int
    lines: list[str]


def look_at(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str], directory: Path
) -> list[Shown]:
    """What each of them shows, one after the other."""
    listed = directory / "commands.json"
    listed.write_text(json.dumps(list(map(list, commands))))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(listed)],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**kept, "NO_COLOR": "1", **environment}, cwd=directory,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        pass  # Linux says EIO when the last one has hung up
    os.close(ours)
    assert process.wait(60) == 0, shown.decode()
    parts = shown.decode().replace("\r\n", "\n").split("\x00")
    return [Shown(int(code), text.splitlines()) for text, code in zip(parts[::2], parts[1::2], strict=False)]
