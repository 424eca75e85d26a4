"""A pipeline whose definition names no cluster runs where the commands of its context go, and as whom they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import Result

from headrace.cli.failure import Failure
from headrace.cli.invocation import Invocation
from headrace.cli.pipeline.run import spark_failure
from headrace.cli.pipelines import definition_of
from headrace.spark.pipelines.login import NOBODY, Login

ARCHIVE = 'kind = "archive"\nname = "a"\ntopics = ["t"]\npath = "x"\n'


def written(tmp_path: Path, more: str = "") -> Path:
    file = tmp_path / "a.toml"
    file.write_text(more + ARCHIVE)
    return file


def asked(**flags: str) -> Invocation:
    invocation = Invocation()
    invocation.flags.update(flags)
    return invocation


@pytest.fixture
def context(run: Any, tmp_path: Path) -> Path:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o600)
    added = cast(Result, run("context", "add", "prod", "-b", "k1:9092", "--user", "ann", "--password-file", str(secret)))  # fmt: skip
    assert added.exit_code == 0, added.output
    return secret


def test_the_contexts_cluster_and_login_are_meant(context: Path, tmp_path: Path) -> None:
    found = definition_of(written(tmp_path), asked())
    assert (found.bootstrap, found.login) == ("k1:9092", Login(user="ann", password_file=str(context)))


def test_a_definition_that_names_a_cluster_means_it(context: Path, tmp_path: Path) -> None:
    found = definition_of(written(tmp_path, 'bootstrap = "other:9092"\n'), asked())
    assert (found.bootstrap, found.login) == ("other:9092", NOBODY), "a password is not for another cluster"


def test_a_flag_wins(context: Path, tmp_path: Path) -> None:
    found = definition_of(written(tmp_path, 'bootstrap = "other:9092"\n'), asked(bootstrap="flag:9092"))
    assert (found.bootstrap, found.login) == ("flag:9092", NOBODY)


class Py4JJavaError(Exception):
    pass


Py4JJavaError.__module__ = "py4j.protocol"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("An error occurred while calling o5.x.\n: java.lang.Oops: no\n\tat a.b", "SPARK_FAILED", "java.lang.Oops: no"),
        ("[STREAM_FAILED] Query q ended", "SPARK_FAILED", "[STREAM_FAILED] Query q ended"),
        ("x\nCaused by: Python worker failed to connect back.", "SPARK_BUSY", "ten seconds"),
    ],
)  # fmt: skip
def test_what_spark_could_not_do_is_no_bug_of_ours(text: str, code: str, words: str) -> None:
    failure = spark_failure(Py4JJavaError(text))
    assert isinstance(failure, Failure) and failure.code == code and words in str(failure)
    assert spark_failure(ValueError(text)) is None
