"""F45: an aeroplane, a sandbox, `--network none`: a machine whose only network is loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.failure import Exit

pytestmark = pytest.mark.client

HEADRACE = f"{sys.executable} -m headrace"
ALONE = f"""
set -e
ip link set lo up
{HEADRACE} serve --ephemeral --json > serve.out &
trap 'kill %1; wait' EXIT
until [ -s serve.out ]; do kill -0 %1; sleep 0.1; done
{HEADRACE} topic create hello --timeout 60s
{HEADRACE} topic produce hello first second --timeout 60s
{HEADRACE} topic consume hello --timeout 60s
{HEADRACE} group list --timeout 60s
{sys.executable} -c 'from headrace import Client
with Client() as client: print(client.publish("hello", "third").result())'
"""


def namespaces() -> list[str]:
    """The command that takes the network away, where this machine lets us."""
    for command in (["unshare", "-n"], ["unshare", "-rn"]):
        if shutil.which("unshare") and shutil.which("ip"):
            tried = subprocess.run([*command, "ip", "link", "set", "lo", "up"], capture_output=True)
            if tried.returncode == 0:
                return command
    pytest.skip("this machine gives no network namespaces")


def test_f45_everything_works_with_loopback_alone(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "XDG_"))}
    ended = subprocess.run(
        [*namespaces(), "bash", "-c", ALONE],
        cwd=tmp_path,
        env={**kept, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-3:-1] == ["first", "second"], ended.stdout + ended.stderr
    assert "Receipt(partition=0, offset=2)" in ended.stdout


@pytest.mark.parametrize("command", [["topic", "list"], ["topic", "consume", "hello"], ["group", "list"]])
def test_f45_ctrl_c_ends_a_command_that_nobody_answers(command: list[str]) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *command, "-b", address, "--timeout", "10m"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        silent.settimeout(60)
        looks = [silent.accept() for _ in range(2)]  # whether somebody listens, and then the client
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=60)
        for connection, _ in looks:
            connection.close()
    assert process.returncode == Exit.INTERRUPTED
    assert "internal error" not in complaints and "Traceback" not in complaints
