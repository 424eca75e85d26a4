"""awscli in one process, for many commands: reads lines of JSON (the words of a command), writes lines of JSON (what came of it).

A process for each costs seconds on a busy machine, and all of it in starting up.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from awscli.clidriver import create_clidriver


def main() -> None:
    driver = create_clidriver()
    for line in sys.stdin:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = driver.main(json.loads(line))
            except SystemExit as ended:
                code = ended.code
        print(json.dumps({"code": code, "out": out.getvalue(), "err": err.getvalue()}), flush=True)


main()
