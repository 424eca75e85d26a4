"""Fuzz the REST API by its own OpenAPI document: whatever is sent, nothing is a 500, and answers are what the document says.

python tests/rest/rest_fuzz.py [--examples 200] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from headrace.testing.broker_process import BrokerProcess

HOOKS = Path(__file__).parent / "fuzz_hooks.py"
CONFIG = Path(__file__).parent / "schemathesis.toml"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
ENDLESS = ("/queues/{queue}/stream", "/topics/{topic}/tail", "/api/v1/events")
ENVIRONMENT = {
    "HEADRACE_WEBHOOK_ALLOW_HTTP": "true",
    "HEADRACE_WEBHOOK_NETWORKS": "127.0.0.0/8",
}


def post(broker: BrokerProcess, path: str, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    request = urllib.request.Request(broker.url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120):
        pass


def furnish(broker: BrokerProcess) -> None:
    """Something of everything, with the names that the hooks know."""
    post(broker, "/api/v1/topics", {"name": "fuzz-topic", "partitions": 2})
    post(broker, "/topics/fuzz-topic/records", {"records": [{"value": {"n": n}} for n in range(20)]})
    post(broker, "/api/v1/queues", {"name": "fuzz-queue"})
    post(broker, "/queues/fuzz-queue/messages", {"value": "now"})
    post(broker, "/queues/fuzz-queue/messages", {"value": "later", "delay": "1h"})
    post(broker, "/api/v1/groups/fuzz-group/seek", {"topic": "fuzz-topic", "to": "start"})
    post(broker, "/api/v1/schedules", {"name": "fuzz-schedule", "cron": "0 0 1 1 *", "topic": "fuzz-topic"})


def fuzz(broker: BrokerProcess, examples: int, seed: int, phases: str = "examples,fuzzing") -> None:
    """Raises with what schemathesis says when it has found something."""
    furnish(broker)
    command = [
        str(Path(sys.executable).parent / "st"), "--config-file", str(CONFIG), "run", broker.url + "/openapi.json", "--checks", CHECKS,
        "--max-examples", str(examples), "--seed", str(seed), "--phases", phases, "--request-timeout", "75",
        *(word for path in ENDLESS for word in ("--exclude-path", path)), "--suppress-health-check", "all", "--continue-on-failure", "--no-color",
    ]  # fmt: skip
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "fuzz_hooks", "PYTHONPATH": os.pathsep.join(
        [str(HOOKS.parent), os.environ.get("PYTHONPATH", "")]
    )}  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=broker.data_dir)
    trouble = [line for line in broker.log().splitlines() if "Traceback" in line or " ERROR " in line]
    if found.returncode or trouble:
        raise AssertionError(f"{found.stdout[-20_000:]}\n{found.stderr[-2_000:]}\n{broker.log()[-6_000:]}")
    print(found.stdout[found.stdout.rfind("SUMMARY") :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=200, help="for each operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", default="examples,coverage,fuzzing")
    options = parser.parse_args()
    with BrokerProcess(environment=ENVIRONMENT) as broker:
        fuzz(broker, options.examples, options.seed, options.phases)


if __name__ == "__main__":
    main()
