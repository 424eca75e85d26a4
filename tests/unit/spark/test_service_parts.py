"""The small parts of pipelines as a service: what is secret, what is shown, what is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.core.pipelines import Hold, Submitted, decode, encode, shown_state
from headrace.spark.pipelines.definition import DefinitionError, parse
from headrace.spark.pipelines.loading import load, settled
from headrace.spark.service.child import KEPT_DIRECTORIES, ChildProcess, directory_of
from headrace.spark.service.leash import CONTEXT_FILE, PROGRESS_FILE, steady_s
from headrace.spark.service.metrics import exposition
from headrace.spark.service.orders import stored

MIRROR = 'kind="mirror"\nname="m"\ntopics=["a"]\ntarget_bootstrap="other:9092"\n'


def submitted(**changes: object) -> Submitted:
    base: dict[str, object] = {
        "name": "p", "kind": "mirror", "life": "a", "version": 1, "toml": "", "definition": {}
    }  # fmt: skip
    return Submitted(**{**base, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ('[spark.settings]\n"spark.hadoop.fs.s3a.access.key" = "x"\n', "access.key"),
        ('[spark.settings]\n"spark.authenticate.secret" = "x"\n', "secret"),
        ('[spark.settings]\n"spark.x.token" = "x"\n', "token"),
        ('[spark.settings]\n"spark.jdbc.url" = "jdbc:postgresql://me:pw@host/db"\n', "spark.jdbc.url"),
    ],
)
def test_f70_a_secret_is_not_kept(more: str, where: str) -> None:
    with pytest.raises(DefinitionError, match=where):
        stored(parse(MIRROR + more))


def test_f70_files_of_secrets_are_named_and_absolute(tmp_path: Path) -> None:
    text = (
        MIRROR + '[login]\nuser="etl"\npassword_file="pw"\ntls_ca="ca.pem"\n[target_login]\ntoken_file="t"\n'
    )
    text += '[spark.settings]\n"spark.hadoop.fs.s3a.aws.credentials.provider" = "com.example.Provider"\n'
    found = settled(parse(text), tmp_path)
    table = stored(found)
    assert table["login"]["password_file"] == f"{tmp_path}/pw"
    assert table["target_login"]["token_file"] == f"{tmp_path}/t"
    assert found.options == {
        "bootstrap": "localhost:9092", "user": "etl", "passwordFile": f"{tmp_path}/pw", "tls.ca": f"{tmp_path}/ca.pem",
    }  # fmt: skip
    access = found.access()
    assert (access.tls, access.sasl_user, access.password_file) == (True, "etl", f"{tmp_path}/pw")
    # As a run gets it: the same pipeline.
    file = tmp_path / "definition.json"
    file.write_text(json.dumps(table))
    assert load(file) == found


def test_t4_a_schema_in_a_file_is_taken_along(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type": "object"}')
    text = 'kind="table"\nname="t"\ntopic="t"\nwarehouse="w"\njson_schema="s.json"\n'
    assert stored(settled(parse(text), tmp_path))["json_schema"] == '{"type": "object"}'


def test_x27_what_is_not_ours_is_passed_over() -> None:
    assert decode(b"\xff", Hold) is None and decode(b"[]", Hold) is None and decode(None, Hold) is None
    newer = json.loads(encode(Hold(holder="a", beat=3)))
    assert decode(json.dumps({**newer, "colour": "red"}).encode(), Hold) == Hold(holder="a", beat=3)


@pytest.mark.parametrize(
    ("hold", "wanted", "state"),
    [
        (None, True, "submitted"),
        (None, False, "stopped"),
        (Hold(holder="s", at_ms=99_000, state="running"), True, "running"),
        (Hold(holder="s", at_ms=1_000, state="running"), True, "lost"),
        (Hold(holder="s", at_ms=1_000, state="running"), False, "stopped"),
        (Hold(state="finished", task=("a", 1, 0)), True, "finished"),
        (Hold(state="finished", task=("a", 0, 0)), True, "submitted"),
        (Hold(state="waiting", task=("a", 1, 0)), False, "stopped"),
    ],
)
def test_t14_the_state_that_people_see(hold: Hold | None, wanted: bool, state: str) -> None:
    assert shown_state(submitted(wanted=wanted), hold, 100_000) == state


def test_t18_metrics_are_readable() -> None:
    hold = Hold(
        holder="s", state="running", at_ms=99_000, restarts=2,
        progress={"lag": 7, "records": 100, "newest_ms": 90_000, "topics": ["a"], "rate": "odd"},
    )  # fmt: skip
    text = exposition([(submitted(), hold), (submitted(name="q"), None)], 100_000)
    samples = {
        (sample.name, sample.labels["pipeline"], sample.labels.get("state")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert (
        samples["mq_pipeline_state", "p", "running"] == 1 and samples["mq_pipeline_state", "p", "lost"] == 0
    )
    assert samples["mq_pipeline_state", "q", "submitted"] == 1
    assert samples["mq_pipeline_lag_records", "p", None] == 7
    assert samples["mq_pipeline_freshness_seconds", "p", None] == 10
    assert samples["mq_pipeline_beat_age_seconds", "p", None] == 1
    assert samples["mq_pipeline_failed_runs", "p", None] == 2
    assert ("mq_pipeline_run_records_per_second", "p", None) not in samples


def test_directories_of_runs_are_bounded_and_stay_where_they_belong(tmp_path: Path) -> None:
    assert directory_of(tmp_path, "..").parent == tmp_path
    for number in range(1, KEPT_DIRECTORIES + 4):
        child = ChildProcess(
            tmp_path,
            submitted(),
            number,
            state_kept=False,
            until=0.0,
            fence=1,
            command=[sys.executable, "-c", ""],
        )
        while child.ended() is None:
            pass
    kept = sorted(int(entry.name) for entry in directory_of(tmp_path, "p").iterdir())
    assert len(kept) == KEPT_DIRECTORIES and KEPT_DIRECTORIES + 3 in kept


LEASHED = (
    "import sys, time\nfrom pathlib import Path\nfrom headrace.spark.service.leash import Leash\n"
    "with Leash(Path(sys.argv[1])) as leash:\n    leash.entry['state'] = 'running'\n"
    "    print('ready', flush=True)\n    time.sleep(1000)\n"
)


@pytest.mark.parametrize("how", ["time", "end of file"])
def test_f65_a_run_ends_by_itself(tmp_path: Path, how: str) -> None:
    """When the lease is over, or its supervisor is gone; -9 to its whole group."""
    until = steady_s() + (0 if how == "time" else 1000)
    (tmp_path / CONTEXT_FILE).write_text(
        json.dumps({"life": "a", "state_kept": False, "until": steady_s() + 1000, "fence": 1})
    )
    with subprocess.Popen(
        [sys.executable, "-c", LEASHED, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        while not (tmp_path / PROGRESS_FILE).exists():
            assert process.poll() is None
        assert json.loads((tmp_path / PROGRESS_FILE).read_text()) == {"state": "running"}
        os.write(process.stdin.fileno(), f"{until}\n".encode())
        if how == "end of file":
            process.stdin.close()
        assert process.wait(120) == -9
