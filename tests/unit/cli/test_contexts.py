"""Contexts: named ways to a broker, which of them counts, and what a server may write down about itself."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from headrace.cli.contexts import Context, Contexts
from headrace.cli.local_context import keep_local
from headrace.cli.profile import Profile, load_profile
from headrace.node.settings import Settings

Run = Callable[..., Result]


@pytest.fixture
def home(run: Run, tmp_path: Path) -> Path:
    """Of nobody's in particular, and empty."""
    return tmp_path / "home" / "headrace" / "contexts"


def profile(**flags: str) -> Profile:
    return load_profile(flags)


def test_the_first_one_is_used_at_once_and_moves_every_command(run: Run, home: Path) -> None:
    assert profile().bootstrap == "localhost:9092"
    added = run("context", "add", "prod", "-b", "k1:9092,k2:9092", "--json")
    assert added.exit_code == 0, added.output
    assert json.loads(added.stdout)["in_use"] is True
    assert profile().bootstrap == "k1:9092,k2:9092"
    assert profile().url == ""  # the broker is asked
    run("context", "add", "test", "-b", "t:1", "--url", "http://t:2")
    assert profile().bootstrap == "k1:9092,k2:9092"
    assert profile(context="test").url == "http://t:2"


def test_use_and_back(run: Run, home: Path) -> None:
    run("context", "add", "one", "-b", "one:1")
    run("context", "add", "two", "-b", "two:2", "--use")
    assert profile().bootstrap == "two:2"
    assert run("context", "use", "-").exit_code == 0
    assert profile().bootstrap == "one:1"
    assert run("context", "use", "-").exit_code == 0
    assert profile().bootstrap == "two:2"
    listed = json.loads(run("context", "list", "--json").stdout)["items"]
    assert [(row["name"], row["in_use"]) for row in listed] == [("one", False), ("two", True)]


def test_who_is_stronger(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """flag > --context > variable > HEADRACE_CONTEXT > project > in use > user > default"""
    (tmp_path / "home" / "headrace").mkdir(parents=True)
    (tmp_path / "home" / "headrace" / "config.toml").write_text(
        '[client]\nbootstrap = "user:1"\nuser = "u"\n'
    )
    assert profile().bootstrap == "user:1"
    run("context", "add", "used", "-b", "used:1")
    run("context", "add", "other", "-b", "other:1")
    assert (profile().bootstrap, profile().user) == ("used:1", "")  # all of it is the context's
    Path("headrace.toml").write_text('[client]\nbootstrap = "project:1"\n')
    assert profile().bootstrap == "project:1"
    monkeypatch.setenv("HEADRACE_CONTEXT", "other")
    assert profile().bootstrap == "other:1"
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "variable:1")
    assert profile().bootstrap == "variable:1"
    assert profile(context="used").bootstrap == "used:1"
    assert profile(context="used", bootstrap="flag:1").bootstrap == "flag:1"


def test_whoever_names_the_kafka_address_alone_means_the_broker_that_is_there(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert profile().url == "http://localhost:9324"
    assert profile(bootstrap="x:1").url == ""
    assert profile(bootstrap="x:1", url="http://y:2").url == "http://y:2"
    monkeypatch.setenv("HEADRACE_URL", "http://z:3")
    assert profile().url == "http://z:3"
    assert profile(bootstrap="x:1").url == ""
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "z:2")
    assert profile().url == "http://z:3"
    monkeypatch.delenv("HEADRACE_URL")
    assert profile().url == ""


def test_what_is_kept_is_nobody_elses_to_read(run: Run, home: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    added = run("context", "add", "prod", "-b", "k:1", "--user", "alice", "--password-file", str(secret))
    assert added.exit_code == 0, added.output
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()} == {0o600}
    assert not any("s3cret" in path.read_text() for path in home.iterdir())  # named, not copied
    assert profile().password == "s3cret"
    typed = Contexts().keep_secret("prod", "password", "typed")
    assert stat.S_IMODE(typed.stat().st_mode) == 0o600
    run("context", "rm", "prod")
    assert not typed.exists() and secret.exists()


def test_a29_a_context_that_others_can_change_is_not_believed(run: Run, home: Path) -> None:
    run("context", "add", "prod", "-b", "k:1")
    (home / "prod.toml").chmod(0o644)
    done = run("topic", "list")
    assert done.exit_code == 5 and f"chmod 600 {home / 'prod.toml'}" in done.stderr


def test_remove(run: Run, home: Path) -> None:
    run("context", "add", "gone", "-b", "g:1")
    removed = run("context", "rm", "gone", "--json")
    assert json.loads(removed.stdout)["items"] == [{"name": "gone", "status": "removed"}]
    assert profile().bootstrap == "localhost:9092"
    assert run("context", "show").exit_code == 3
    assert run("context", "use", "-").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("use", "prd"), 3, 'did you mean "prod"?'),
        (("show", "prd"), 3, 'did you mean "prod"?'),
        (("rm", "nobody"), 3, 'no context called "nobody"'),
        (("add", "prod", "-b", "k:1"), 6, "--replace"),
        (("add", "../x", "-b", "k:1"), 2, "can't be the name"),
        (("add", "new", "-b", "k:port"), 2, "localhost:9092"),
        (("add", "new", "-b", "k:1", "--url", "k:9324"), 2, "not an HTTP address"),
    ],
)
def test_refusals_have_words(
    run: Run, home: Path, arguments: tuple[str, ...], exit_code: int, words: str
) -> None:
    run("context", "add", "prod", "-b", "k:1")
    done = run("context", *arguments)
    assert done.exit_code == exit_code, done.output
    assert words in done.stderr
    assert Contexts().names() == ["prod"]


def test_a_context_that_is_not_there_is_told_by_every_command(run: Run, home: Path) -> None:
    for arguments in (("topic", "list", "--context", "nobody"), ("--context", "nobody", "queue", "list")):
        done = run(*arguments)
        assert done.exit_code == 3
        assert 'there is no context called "nobody"' in done.stderr


def test_a_file_that_somebody_broke(run: Run, home: Path) -> None:
    run("context", "add", "prod", "-b", "k:1")
    (home / "prod.toml").write_text("not toml")
    done = run("topic", "list")
    assert done.exit_code == 2 and "prod.toml" in done.stderr


def test_the_origin_of_a_value_names_its_context(run: Run, home: Path) -> None:
    run("context", "add", "prod", "-b", "k:1")
    rows = json.loads(run("config", "show", "--json").stdout)["items"]
    origins = {row["name"]: row["origin"] for row in rows}
    assert origins["client.bootstrap"] == "context prod"
    assert origins["client.url"] == "learned from k:1"


def test_the_list_fits_eighty_columns(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(
        "context",
        "add",
        "a-rather-long-name",
        "-b",
        ",".join(f"broker-{n}.example.com:9092" for n in range(5)),
    )
    run("context", "add", "b", "-b", "k:1", "--url", "https://" + "x" * 90)
    from headrace.cli.output import Format, Output

    monkeypatch.setattr("headrace.cli.invocation.Invocation.output", Output(Format.TABLE, width=80))
    assert max(map(len, run("context", "list").stdout.splitlines())) <= 80


# -- what a server keeps ---------------------------------------------------------------------------------------------


def test_a_server_keeps_local_only_where_nobody_has_arranged_anything(run: Run, home: Path) -> None:
    assert keep_local(Settings(), "localhost:19092", "http://localhost:19324")
    assert profile().bootstrap == "localhost:19092" and profile().url == "http://localhost:19324"
    assert keep_local(Settings(), "localhost:9092", "http://localhost:9324")  # it follows its server
    assert profile().bootstrap == "localhost:9092"


def test_a_server_leaves_other_contexts_alone(run: Run, home: Path) -> None:
    run("context", "add", "prod", "-b", "k:1")
    assert not keep_local(Settings(), "localhost:19092", "http://localhost:19324")
    assert Contexts().names() == ["prod"] and profile().bootstrap == "k:1"


def test_a_local_of_somebody_elses_is_not_touched(run: Run, home: Path) -> None:
    run("context", "add", "local", "-b", "mine:1")
    assert not keep_local(Settings(), "localhost:19092", "http://localhost:19324")
    assert profile().bootstrap == "mine:1"


def test_an_experiment_leaves_no_trace(run: Run, home: Path, tmp_path: Path) -> None:
    assert not keep_local(Settings(data_dir=str(tmp_path / "d")), "localhost:1", "http://localhost:2")
    assert not keep_local(Settings(ephemeral=True), "localhost:1", "http://localhost:2")
    assert not home.exists()


def test_an_address_in_a_file_or_a_variable_is_somebodys_arrangement(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "k:1")
    assert not keep_local(Settings(), "localhost:1", "http://localhost:2")
    assert not home.exists()


def test_a_home_that_cannot_be_written_does_not_stop_a_server(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Contexts, name: str, context: Context) -> None:
        raise PermissionError(13, "no", name)

    monkeypatch.setattr(Contexts, "keep", refuse)
    assert not keep_local(Settings(), "localhost:1", "http://localhost:2")
