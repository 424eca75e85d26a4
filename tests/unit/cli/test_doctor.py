from __future__ import annotations

import fcntl
import json
import os
import socket
import sqlite3
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from headrace.cli import checks
from headrace.cli.failure import Exit
from headrace.cli.processes import command_line, listener, usage
from headrace.cli.profile import Profile
from headrace.node.settings import Settings

Run = Callable[..., Result]


def test_a_directory_that_does_not_exist_yet_is_fine(tmp_path: Path) -> None:
    assert checks.check_directory(tmp_path / "a" / "b").status == "ok"


def test_a_directory_others_can_enter_is_warned_of_s29(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    found = checks.check_directory(tmp_path)
    assert found.status == "warn" and found.hint == f"chmod 700 {tmp_path}"
    tmp_path.chmod(0o700)
    assert checks.check_directory(tmp_path).status == "ok"


def test_a_file_in_place_of_the_directory_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert checks.check_directory(tmp_path / "file").status == "fail"


def test_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk = namedtuple("Disk", "total used free")
    for free, status in ((10 << 30, "ok"), (500 << 20, "warn"), (1 << 20, "fail")):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: Disk(0, 0, free))
        assert checks.check_space(tmp_path / "not" / "there").status == status


def test_the_lock_tells_who_holds_the_directory(tmp_path: Path) -> None:
    assert "nobody" in checks.check_lock(tmp_path).detail
    with (tmp_path / "lock").open("w+") as holder:
        holder.write("4711")
        holder.flush()
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert "4711" in checks.check_lock(tmp_path).detail
    assert "nobody" in checks.check_lock(tmp_path).detail


def test_a_clock_that_went_back_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.check_clock(tmp_path).status == "ok"
    (tmp_path / "node").write_text("")
    os.utime(tmp_path / "node", (time.time() + 3600, time.time() + 3600))
    assert checks.check_clock(tmp_path).status == "warn"
    monkeypatch.setattr("time.time", lambda: 1000.0)
    assert checks.check_clock(tmp_path / "missing").status == "fail"


def test_a_port_of_somebody_else_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "command_line", lambda pid: "nginx")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        port = holder.getsockname()[1]
        assert checks.check_port("kafka port", port).status == "warn"
        monkeypatch.setattr(checks, "command_line", lambda pid: "python -m headrace serve")
        assert checks.check_port("kafka port", port).status == "ok"
    assert checks.check_port("kafka port", port).detail == f"{port} is free"


def test_no_broker_fails_with_what_to_do() -> None:
    profile = Profile(bootstrap="127.0.0.1:1", url="http://127.0.0.1:1", timeout_ms=500)
    assert checks.check_kafka(profile).status == "fail"
    assert "headrace serve" in checks.check_kafka(profile).hint
    assert checks.check_ready(profile).status == "fail"


def test_a_damaged_embedded_coordinator_is_found(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path))
    assert "first start" in checks.check_coordinator(settings, settings.directory()).detail
    path = tmp_path / "coordinator.db"
    database = sqlite3.connect(path)
    database.execute("create table t (x)")
    database.commit()
    database.close()
    assert checks.check_coordinator(settings, settings.directory()).status == "ok"
    path.write_bytes(b"not a database at all" * 100)
    assert checks.check_coordinator(settings, settings.directory()).status == "fail"


def test_a_wrong_coordinator_url_fails() -> None:
    assert checks.check_coordinator(Settings(coordinator="zookeeper://x"), Path("/")).status == "fail"


def test_doctor_ends_with_1_when_something_is_wrong(run: Run, tmp_path: Path) -> None:
    result = run(
        "doctor", "--json", "-b", "127.0.0.1:1", "--url", "http://127.0.0.1:1", "--data-dir", str(tmp_path), "--timeout", "500ms"
    )  # fmt: skip
    assert result.exit_code == Exit.FAILED
    found = {entry["name"]: entry for entry in json.loads(result.stdout)["items"]}
    assert found["broker"]["status"] == "fail" and found["broker"]["hint"]
    assert found["python"]["status"] == "ok"
    text = run("doctor", "-b", "127.0.0.1:1", "--url", "http://127.0.0.1:1", "--timeout", "500ms").stdout
    assert "FAIL  broker" in text and "hint:" in text


def test_proc_knows_us() -> None:
    assert "python" in (command_line(os.getpid()) or "")
    used = usage(os.getpid())
    assert used is not None and used.cpu_seconds > 0 and used.memory_bytes > 1 << 20
    assert usage(2**22 + 1) is None and command_line(2**22 + 1) is None
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        assert listener(holder.getsockname()[1]) == os.getpid()
