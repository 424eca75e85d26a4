"""Command: `python -m headrace.testing`: a LocalBroker for tests in other languages, with a second address to control it.

The first line on stdout says where everything is. POST with JSON:
    CONTROL/clock/advance          {"hours": 12}
    CONTROL/faults/lose_answers    {"count": 1, "door": "http"}     also refuse, cut, delay, repeat_sends, fill_disk, heal
It ends on SIGTERM, on Ctrl+C, and when whoever started it closes its stdin.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headrace.testing.local_broker import HOST, LocalBroker

FAULTS = ("refuse", "cut", "delay", "lose_answers", "repeat_sends", "fill_disk", "heal")
MAX_BODY_BYTES = 64 * 1024


class Control(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, broker: LocalBroker) -> None:
        super().__init__((HOST, 0), Requests)
        self.broker = broker

    def carry_out(self, path: str, given: dict[str, Any]) -> None:
        """LookupError for what there is not; TypeError and ValueError for what it can't be given."""
        about, _, what = path.strip("/").partition("/")
        if (about, what) == ("clock", "advance"):
            self.broker.clock.advance(**given)
        elif about == "faults" and what in FAULTS:
            getattr(self.broker.faults, what)(**given)
        else:
            raise LookupError(path)


class Requests(BaseHTTPRequestHandler):
    server: Control

    def do_POST(self) -> None:
        # A page in somebody's browser can't say this without being asked first, and nobody here answers that.
        if self.headers.get_content_type() != "application/json":
            self._answer(415, {"detail": "say content-type: application/json"})
            return
        try:
            length = min(int(self.headers.get("Content-Length") or 0), MAX_BODY_BYTES)
            given = json.loads(self.rfile.read(length) or b"{}")
            self.server.carry_out(self.path, given)
        except LookupError:
            known = ["clock/advance", *(f"faults/{fault}" for fault in FAULTS)]
            self._answer(404, {"detail": f"there is no {self.path}; there is: {', '.join(known)}"})
        except (TypeError, ValueError) as problem:
            self._answer(400, {"detail": str(problem)})
        else:
            self._answer(200, {"now": self.server.broker.clock.now().isoformat()})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main(arguments: list[str]) -> None:
    """`arguments` are settings of `headrace serve`: num_partitions=3"""
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    settings = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    with LocalBroker(**settings) as broker, Control(broker) as control:
        threading.Thread(target=control.serve_forever, daemon=True).start()
        threading.Thread(target=_watch_stdin, args=(over,), daemon=True).start()
        ready = {
            "bootstrap": broker.bootstrap,
            "url": broker.url,
            "control": f"http://{HOST}:{control.server_port}",
            "pid": os.getpid(),
        }
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        over.wait()
        control.shutdown()


def _watch_stdin(over: threading.Event) -> None:
    """A test that died has no say any more. Only a pipe tells: stdin of a service is closed from the start."""
    import stat

    if stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
        while os.read(sys.stdin.fileno(), 1024):
            pass
        over.set()


if __name__ == "__main__":
    main(sys.argv[1:])
