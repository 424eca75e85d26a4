"""URLs of coordinators."""

from __future__ import annotations

from pathlib import Path

import pytest
from off_loop import in_a_thread

from headrace.coordinator.etcd import EtcdCoordinator
from headrace.coordinator.memory import MemoryCoordinator
from headrace.coordinator.opening import etcd_settings, open_coordinator, sqlite_path
from headrace.coordinator.sqlite import SqliteCoordinator


class FixedClock:
    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory:", MemoryCoordinator),
        ("sqlite://{tmp}/a%20b.db", SqliteCoordinator),
        ("etcd://127.0.0.1:9", EtcdCoordinator),
    ],
)
async def test_each_scheme_opens_its_adapter(url: str, kind: type, tmp_path: Path) -> None:
    one = await open_coordinator(url.format(tmp=tmp_path), clock=FixedClock(), run_blocking=in_a_thread)
    assert isinstance(one, kind)
    await one.close()
    if kind is SqliteCoordinator:
        assert (tmp_path / "a b.db").exists()


def test_etcd_endpoints_and_namespace() -> None:
    settings = etcd_settings("etcd://h1:2380,h2,[::1]:2381/prod/eu/?deadline_ms=500")
    assert [(one.host, one.port, one.tls) for one in settings.endpoints] == [
        ("h1", 2380, None),
        ("h2", 2379, None),
        ("::1", 2381, None),
    ]
    assert settings.endpoints[2].authority == "[::1]:2381"
    assert settings.namespace == "/prod/eu/" and settings.deadline_s == 0.5
    assert etcd_settings("etcd://h").namespace == "/headrace/"
    assert etcd_settings("etcds://h").endpoints[0].tls is not None


def test_x25_passwords_come_from_private_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    secret.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        etcd_settings(f"etcd://h?user=u&password_file={secret}")
    secret.chmod(0o600)
    settings = etcd_settings(f"etcd://h?user=u&password_file={secret}")
    assert settings.credentials is not None and settings.credentials.password == "hunter2"
    assert "hunter2" not in repr(settings)
    assert etcd_settings("etcd://h?user=u", password="p").credentials is not None
    for bad in ("etcd://u:p@h", "etcd://u@h"):
        with pytest.raises(ValueError, match="do not belong"):
            etcd_settings(bad)


def test_x26_a_password_in_clear_text_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    etcd_settings("etcd://127.0.0.1,localhost?user=u", password="p")
    etcd_settings("etcds://far.example?user=u", password="p")
    assert not caplog.records
    etcd_settings("etcd://127.0.0.1,far.example?user=u", password="hunter2")
    assert "clear text" in caplog.text and "hunter2" not in caplog.text


@pytest.mark.parametrize(
    "url", ["etcd://", "etcd://h:x", "etcd://h?ca=/x", "etcd://h?user=u", "etcd://h?typo=1", "etcd://h:1,,h2"]
)
def test_bad_etcd_urls_say_why(url: str) -> None:
    with pytest.raises(ValueError):
        etcd_settings(url)


@pytest.mark.parametrize(
    "url", ["sqlite:", "sqlite:///", "sqlite://host/x.db", "sqlite:x.db", "sqlite:///x?y=1"]
)
def test_bad_sqlite_urls_say_why(url: str) -> None:
    with pytest.raises(ValueError):
        sqlite_path(url)


async def test_an_unknown_scheme_says_which_there_are() -> None:
    with pytest.raises(ValueError, match="memory:, sqlite"):
        await open_coordinator("zookeeper://h", clock=FixedClock(), run_blocking=in_a_thread)
