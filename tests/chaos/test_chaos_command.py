"""``abs chaos`` judges jobs that use none of our sinks: each kind of mistake is told by its name."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from abs_cli.main import app
from abs_core.errors import ConfigError, OptionError, UnavailableError
from abs_services import KafkaService
from tests.kit.kafka import Variant, open_topic

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
ROWS = 20
NAMED = ("missing", "doubled", "changed", "unexpected", "left_behind")


@dataclass(frozen=True)
class Place:
    """A job's input and its empty table."""

    folder: Path
    url: str

    def fill(self, files: int) -> None:
        (self.folder / "input").mkdir()
        for number in range(files):
            rows = (
                json.dumps({"id": n, "name": f"n{n}"})
                for n in range(number * ROWS, number * ROWS + ROWS)
            )
            (self.folder / "input" / f"{number:03d}.json").write_text(
                "".join(f"{r}\n" for r in rows)
            )

    def chaos(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Exit code and result."""
        report = self.folder / "report.json"
        given = [*("--log", f"{self.folder / 'log'}"), *("--report", str(report)), *words]
        sides = [*("--expected", str(self.folder / "input")), *("--key", "id")]
        done = CliRunner().invoke(app, ["chaos", *sides, *given], catch_exceptions=False)
        return done.exit_code, json.loads(report.read_text()) if report.exists() else {}

    @property
    def target(self) -> list[str]:
        return ["--actual", self.url, "--table", "target", "--settle", "0"]

    @property
    def checkpoint(self) -> list[str]:
        return ["--checkpoint", str(self.folder / "checkpoint")]

    def plain(self, mode: str) -> list[str]:
        return [
            "--",
            sys.executable,
            "-m",
            "tests.chaos.jobs.plain",
            mode,
            self.url,
            str(self.folder),
        ]

    def spark(self, mode: str, address: str, topic: str = "") -> list[str]:
        module = ["--", sys.executable, "-m", "tests.chaos.jobs.with_spark"]
        return [*module, mode, address, topic, str(self.folder)]


@pytest.fixture
def place(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table target (id bigint, name text)")
    return Place(tmp_path, database)


@pytest.mark.parametrize(
    ("mode", "wrong"),
    [
        ("exact", None),
        ("doubling", "doubled"),
        ("losing", "missing"),
        ("changing", "changed"),
        ("leaving", "left_behind"),
    ],
)
def test_each_kind_of_mistake_is_told_by_its_name(
    place: Place, mode: str, wrong: str | None
) -> None:
    place.fill(30)
    # What is lost is what was noted before it was written.
    at = "between" if mode == "losing" else "committed"
    words = [*place.target, *place.checkpoint, "--seed", "7", "--kills", "2", "--at", at]
    code, found = place.chaos(*words, *place.plain(mode))
    assert code == (0 if wrong is None else 1), found
    assert [name for name in NAMED if found[name]] == ([] if wrong is None else [wrong])
    assert found["clean"] is (wrong is None)
    kills = found["kills"]
    assert at in [kill["found"] for kill in kills]
    assert found["recovery_p50_s"] <= found["recovery_p99_s"]
    if mode == "leaving":
        assert found["shortcomings"][0].startswith("left behind: 1 prepared transaction(s)")
    # Which kill did it: that in the epoch whose rows are wrong, which the checkpoint names.
    blamed = found["blamed"]
    assert bool(blamed) is (wrong in ("doubled", "missing"))
    for one in blamed:
        assert {kills[number - 1]["epoch"] for number in one["kills"]} == {one["epoch"]}
    assert sum(abs(one["actual"] - one["expected"]) for one in blamed) == (
        found["doubled"] + found["missing"]
    )
    if mode == "doubling":
        hit = sum(kill["found"] == "committed" for kill in kills)
        assert found["doubled"] % ROWS == 0
        assert found["doubled"] >= hit * ROWS


def test_a_job_that_notes_an_epoch_before_it_writes_it_is_found_to_lose_it(place: Place) -> None:
    """The kill must come between the two, a good while after the epoch has begun."""
    place.fill(8)
    words = [*place.target, *place.checkpoint, "--seed", "7", "--kills", "2", "--at", "writing"]
    code, found = place.chaos(*words, *place.plain("noting"))
    assert (code, [name for name in NAMED if found[name]]) == (1, ["missing"]), found


@pytest.mark.parametrize("mode", ["exact", "doubling"])
def test_all_targets_of_a_file_are_audited_after_the_kills(place: Place, mode: str) -> None:
    """A second sink that another one is compared with, and a third one without an audit."""
    place.fill(12)
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(
            "create table beside (id bigint, name text);"
            "create function also() returns trigger language plpgsql as "
            "'begin insert into beside values (new.id, new.name); return new; end';"
            "create trigger also after insert on target for each row execute function also()"
        )
    sinks = {
        "table": ("target", f"{place.folder / 'input'}"),
        "copy": ("beside", "sink:table"),
        "none": ("beside", None),
    }
    lines = []
    for name, (table, expected) in sinks.items():
        lines += [f"[sinks.{name}]", 'format = "abs-postgres"']
        lines += [f"options = {{ url = {json.dumps(place.url)}, dbtable = '{table}' }}"]
        lines += [f"audit = {{ expected = '{expected}', key = 'id' }}"] if expected else []
    file = place.folder / "job.toml"
    file.write_text("\n".join(lines))
    given = ["--seed", "7", "--kills", "1", "--at", "committed", "--settle", "0", "--json"]
    words = ["chaos", "--sinks", str(file), "--log", str(place.folder / "log"), *place.checkpoint]
    done = CliRunner().invoke(app, [*words, *given, *place.plain(mode)], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert (done.exit_code == 0) is found["clean"] is (mode == "exact"), found["shortcomings"]
    assert len(found["kills"]) == 1
    assert found["audit"]["not_audited"] == ["none"]
    assert found["audit"]["sinks"]["copy"]["clean"], "it has what the other one has"
    if mode == "doubling":
        [why] = found["shortcomings"]
        assert why.startswith("table: ")
        assert "duplicate" in why


def test_the_same_mistake_stays_unseen_without_a_kill_in_its_moment(place: Place) -> None:
    """So it is the kills that find it, and a run without them proves nothing."""
    place.fill(3)
    code, found = place.chaos(
        *place.target, *place.checkpoint, "--kills", "0", *place.plain("doubling")
    )
    assert (code, found["kills"], found["doubled"]) == (0, [], 0)


def test_a_job_that_ends_before_its_kills_is_not_called_exact(place: Place) -> None:
    place.fill(2)
    words = [*place.target, *place.checkpoint, "--kills", "9", "--seed", "1"]
    code, found = place.chaos(*words, *place.plain("exact"))
    assert code == 1
    assert found["missing"] == found["doubled"] == 0
    assert "of 9 kills" in found["shortcomings"][-1]


def test_kills_by_the_clock_need_no_checkpoint(place: Place) -> None:
    place.fill(200)
    words = [*place.target, "--every", "1.5s", "--kills", "2", "--seed", "7"]
    code, found = place.chaos(*words, *place.plain("exact"))
    assert code == 0, found
    assert [kill["found"] for kill in found["kills"]] == ["any", "any"]
    assert found["recovery_p50_s"] is None


def test_sides_that_do_not_fit_are_no_finding(place: Place) -> None:
    """Exit code 1 is for what the job has done."""
    place.fill(1)
    words = [*place.target, *place.checkpoint, "--kills", "0", "--columns", "nothing"]
    assert place.chaos(*words, *place.plain("exact")) == (2, {})


def test_a_job_that_fails_by_itself_is_started_again_and_not_for_ever(place: Place) -> None:
    place.fill(1)
    failing = ["--", sys.executable, "-c", "raise SystemExit('no such broker')"]
    with pytest.raises(UnavailableError, match=r"exit code 1, without a kill(.|\n)*no such broker"):
        place.chaos(*place.target, "--failures", "2", *failing)
    assert (place.folder / "log").read_text().count("no such broker") == 3


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["--at", "committed", "--", "true"], OptionError, "name it by --checkpoint"),
        (["--at", "noon", "--", "true"], OptionError, "no moment 'noon'"),
        (["--every", "soon", "--", "true"], OptionError, "such as 10s"),
        (["--kills", "-1", "--", "true"], OptionError, "0 or more"),
        (["--", "no-such-command"], ConfigError, "no command 'no-such-command'"),
        (
            ["--checkpoint", "x", "--at", "recovering", "--", "true"],
            OptionError,
            "choose from committed, writing, between",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_job_starts(
    place: Place, words: list[str], error: type[Exception], said: str
) -> None:
    place.fill(1)
    with pytest.raises(error, match=said):
        place.chaos(*place.target, *words)
    assert not (place.folder / "checkpoint").exists()


@pytest.mark.spark
@pytest.mark.campaign  # the sample has the example of the page: test_chaos_plugin.py
@pytest.mark.parametrize(("mode", "wrong"), [("exact", None), ("doubling", "doubled")])
def test_a_spark_job_into_a_table_is_judged(place: Place, mode: str, wrong: str | None) -> None:
    place.fill(16)
    words = [*place.target, *place.checkpoint, "--seed", "7", "--kills", "1", "--at", "committed"]
    code, found = place.chaos(*words, *place.spark(mode, place.url))
    assert [name for name in NAMED if found[name]] == ([] if wrong is None else [wrong]), found
    assert found["kills"][-1]["found"] == "committed"
    assert found["kills"][-1]["recovered_s"] > 0
    assert code == (0 if wrong is None else 1)


@pytest.mark.spark
@pytest.mark.campaign
def test_a_spark_job_that_takes_records_for_sent_loses_them(
    place: Place, kafka: KafkaService
) -> None:
    place.fill(16)
    kafka.start()
    with open_topic(kafka.bootstrap, Variant("2pc")) as topic:
        words = [*place.checkpoint, "--seed", "7", "--kills", "1", "--at", "between"]
        actual = [
            "--actual",
            f"kafka://{kafka.bootstrap}/{topic.topic}",
            "--schema",
            "id BIGINT",
            "--settle",
            "0",
        ]
        code, found = place.chaos(
            *words, *actual, *place.spark("losing", kafka.bootstrap, topic.topic)
        )
    assert code == 1
    assert [name for name in NAMED if found[name]] == ["missing"], found
