"""Debian packages without installing them: fetched, unpacked into .peers and run from there, so no service is started by anybody."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from peers.servers import KEPT, Unobtainable, has_program, obtained

ROOT = KEPT / "debian"


def unpack(package: str) -> Path:
    """The directory that has this package and what it needs and the system lacks."""
    mark = ROOT / f".{package}"
    if mark.exists():
        return ROOT
    for program in ("apt-get", "dpkg"):
        has_program(program)
    names = _missing(package)
    if not names:  # the lists are not there yet, or it is installed already
        obtained(["apt-get", "update", "-qq"], KEPT)
        names = _missing(package)
    if not names:
        raise Unobtainable(f"apt-get has nothing to install for {package}")
    files = KEPT / f"debs-{package}"
    obtained(["apt-get", "download", "-qq", *names], files)
    for file in sorted(files.glob("*.deb")):
        obtained(["dpkg", "-x", str(file), str(ROOT)], KEPT)
    mark.write_text(" ".join(names) + "\n")
    return ROOT


def _missing(package: str) -> list[str]:
    asked = ["apt-get", "-s", "install", "--no-install-recommends", package]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return re.findall(r"^Inst (\S+)", done.stdout, re.MULTILINE)


def libraries(root: Path) -> dict[str, str]:
    """The environment in which its programs find their libraries."""
    found = [*root.glob("usr/lib/*-linux-gnu"), *root.glob("lib/*-linux-gnu")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, found))}
