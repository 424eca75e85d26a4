"""F30, A8: a setting that protects one door says so, at the start and in `doctor`, while another door to the same data is open."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli.failure import Exit
from headrace.testing.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parent))
from test_rest import ask

pytestmark = pytest.mark.client


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    path = tmp_path / "credentials"
    path.write_text("[default]\naws_access_key_id = AKID\naws_secret_access_key = s3cret-s3cret\n")
    path.chmod(0o600)
    return path


def headrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_f30_a_credentials_file_that_others_can_read_is_refused(
    credentials: Path, tmp_path: Path, mode: int
) -> None:
    credentials.chmod(mode)
    ports = ("--kafka-port", "0", "--http-port", "0", "--data-dir", str(tmp_path / "data"))
    done = headrace("serve", *ports, "--sqs-credentials", str(credentials))
    assert done.returncode == Exit.USAGE, done
    assert f"mode {mode:04o}" in done.stderr and f"chmod 600 {credentials}" in done.stderr
    assert "Traceback" not in done.stderr and "s3cret" not in done.stderr


@pytest.mark.parametrize("text", ["", "aws_secret_access_key = s3cret", "[default]\naws_access_key_id = A\n"])
def test_f30_a_file_without_keys_is_refused_in_words(credentials: Path, tmp_path: Path, text: str) -> None:
    credentials.write_text(text)
    ports = ("--kafka-port", "0", "--http-port", "0", "--data-dir", str(tmp_path / "data"))
    done = headrace("serve", *ports, "--sqs-credentials", str(credentials))
    assert done.returncode == Exit.USAGE, done
    assert str(credentials) in done.stderr and "--sqs-credentials" in done.stderr
    assert "Traceback" not in done.stderr and "s3cret" not in done.stderr


def test_f30_the_start_and_doctor_name_the_doors_that_are_open(
    fresh_broker: Callable[..., BrokerProcess], credentials: Path, broker: BrokerProcess
) -> None:
    signed = fresh_broker(arguments=("--sqs-credentials", str(credentials)))
    deadline = time.monotonic() + 60  # it is said behind the line that tells of the ports
    while "guards SQS alone" not in signed.log() and time.monotonic() < deadline:
        time.sleep(0.05)
    warnings = [line for line in signed.log().splitlines() if line.startswith("warning:")]
    assert len(warnings) == 1 and "guards SQS alone" in warnings[0]
    assert (
        "REST" in warnings[0]
        and f":{signed.kafka_port}" in warnings[0]
        and f":{signed.http_port}" in warnings[0]
    )
    target = {"x_amz_target": "AmazonSQS.ListQueues"}
    assert ask(signed, "POST", "/", {}, **target).status == 403, "the door with a lock"
    assert ask(signed, "GET", "/api/v1/queues").status == 200, "the one without, which the warning is about"

    def doors(process: BrokerProcess) -> str:
        shown = headrace(
            "doctor", "-b", process.bootstrap, "--url", process.url, "--data-dir", str(process.data_dir)
        )
        return next(line for line in shown.stdout.splitlines() if " doors " in line)

    assert doors(signed).startswith("warn") and "SQS wants signed requests" in doors(signed)
    assert doors(broker).startswith("ok")


def test_f30_the_banner_does_not_say_that_any_key_will_do(credentials: Path, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "headrace", "serve", "--kafka-port", "0", "--http-port", "0",
        "--data-dir", str(tmp_path / "data"), "--sqs-credentials", str(credentials),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        process.terminate()
    assert "any access key" not in "".join(lines)
    assert "SQS signed with a key of yours; REST without any" in lines[2]
