"""``abs audit``: exit codes that mean something, one JSON document for programs, no password."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abs_cli.explain_error import kinds
from abs_cli.main import main
from abs_core.errors import AbsError, JobGoneError, NotYetError

EXPECTED = pa.table({"id": [1, 2, 3], "a, b": ["x", "y", None]})


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, str]:
    tables = {
        "expected": EXPECTED,
        "same": EXPECTED.take(pa.array([2, 0, 1])),
        "doubled": EXPECTED.take(pa.array([0, 1, 2, 2])),
        "other": pa.table({"id": ["1"], "a, b": ["x"]}),
    }
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    return {name: str(tmp_path / f"{name}.parquet") for name in tables}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def abs_audit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """The command, in this process: from arguments and environment to exit code and output."""

    def run(*arguments: str, **environment: str) -> Done:
        for name, value in {"COLUMNS": "200", **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.argv", ["abs", "audit", *arguments])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


def test_the_installed_command_audits(paths: dict[str, str]) -> None:
    command = Path(sys.executable).with_name("abs")
    sides = ("--expected", paths["expected"], "--actual", paths["doubled"])
    done = subprocess.run([command, "audit", *sides], capture_output=True, timeout=120, check=False)
    assert done.returncode == 1


def test_a_clean_target_ends_with_0(abs_audit: Callable[..., Done], paths: dict[str, str]) -> None:
    done = abs_audit("--expected", paths["expected"], "--actual", paths["same"], "--key", "id")
    assert done.returncode == 0, done.stderr
    assert "CLEAN" in done.stdout
    assert "NOT CLEAN" not in done.stdout


def test_a_target_that_is_not_clean_ends_with_1_and_says_why(
    abs_audit: Callable[..., Done], paths: dict[str, str]
) -> None:
    done = abs_audit("--expected", paths["expected"], "--actual", paths["doubled"], "--key", "id")
    assert done.returncode == 1
    assert "NOT CLEAN" in done.stdout
    assert "duplicate id='3'" in done.stdout


def test_json_is_one_document_with_the_same_verdict(
    abs_audit: Callable[..., Done], paths: dict[str, str]
) -> None:
    done = abs_audit(
        "--expected", paths["expected"], "--actual", paths["doubled"], "--key", "id", "--json"
    )
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["clean"] is False
    assert (found["duplicate"], found["missing"], found["actual"]["records"]) == (1, 0, 4)
    assert found["samples"]["duplicate"][0]["identity"] == {"id": "3"}


def test_a_key_with_a_comma_in_its_name_is_quoted(
    abs_audit: Callable[..., Done], paths: dict[str, str]
) -> None:
    sides = ("--expected", paths["expected"], "--actual", paths["same"])
    assert abs_audit(*sides, "--key", 'id, "a, b"').returncode == 0
    assert abs_audit(*sides, "--key", "a, b").returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--expected", "nothing.parquet"),
        ("--expected", "{expected}", "--table", "t"),
        ("--expected", "{expected}", "--key", "nix"),
        ("--expected", "{other}"),
        ("--expected", "{expected}", "--settle", "-1"),
        ("--expected", "{expected}", "--epochs"),
        ("--expected", "{expected}", "--no-such-option"),
        ("--expected", "postgresql://u:geheim@127.0.0.1:1/x"),
        ("--expected", "postgresql://u:ge heim%zz@127.0.0.1:1/x", "--expected-table", "t"),
        (),
    ],
)
def test_what_cannot_be_audited_as_asked_ends_with_2(
    arguments: tuple[str, ...], abs_audit: Callable[..., Done], paths: dict[str, str]
) -> None:
    given = [argument.format(**paths) for argument in arguments]
    done = abs_audit(*given, "--actual", paths["same"])
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr
    assert "geheim" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--actual", "postgresql://h:1/x"), "name it: --table for the target, --expected-table"),
        (("--actual", "{same}", "--table", "t"), "give a URL such as postgresql://"),
        (("--actual", "kafka://h:1/t", "--table", "t"), "leave it out; a table (--table"),
        (("--actual", "s3://bucket/x", "--table", "t"), "leave it out; a table (--table"),
    ],
)
def test_a_database_needs_a_table_and_nothing_else_has_one(
    arguments: tuple[str, ...],
    remedy: str,
    abs_audit: Callable[..., Done],
    paths: dict[str, str],
) -> None:
    given = [argument.format(**paths) for argument in arguments]
    done = abs_audit("--expected", paths["expected"], *given)
    assert done.returncode == 2
    assert remedy in done.stderr


def test_a_target_that_is_not_there_ends_with_3(
    abs_audit: Callable[..., Done], paths: dict[str, str]
) -> None:
    url = "postgresql://u:geheim@127.0.0.1:1/x"
    done = abs_audit("--expected", paths["expected"], "--actual", url, "--table", "t")
    assert done.returncode == 3
    assert "127.0.0.1" in done.stderr
    assert "geheim" not in done.stdout + done.stderr


def test_an_audit_that_could_not_run_never_ends_with_the_code_for_findings(
    abs_audit: Callable[..., Done], tmp_path: Path
) -> None:
    """Here because of a checkpoint that cannot tell the epochs: the query has two sources."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{}\n{}\n")
    sinks = tmp_path / "sinks.toml"
    sinks.write_text(
        f'job = "orders"\ncheckpointLocation = "{tmp_path}"\n'
        '[sinks.files]\nformat = "abs-s3"\noptions = { path = "s3://bucket/orders" }\n'
    )
    done = abs_audit("--sinks", str(sinks), "--epochs")
    assert "reads 2 sources" in done.stderr
    assert done.returncode == 2


@pytest.mark.services
def test_a_postgres_target_is_audited_by_command(
    database: str, abs_audit: Callable[..., Done], paths: dict[str, str]
) -> None:
    with psycopg.connect(database, autocommit=True) as session:
        session.execute('create table t (id int, "a, b" text)')
        session.execute("insert into t values (1, 'x'), (2, 'y'), (3, null)")

        def run(**environment: str) -> tuple[int, Any]:
            done = abs_audit(
                *("--expected", paths["expected"], "--table", "public.t", "--key", "id", "--json"),
                **{"ABS_AUDIT_ACTUAL": database, **environment},
            )
            password = urlsplit(database).password
            assert password
            assert password not in done.stdout + done.stderr
            return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

        code, report = run()
        assert (code, report["clean"]) == (0, True)
        session.execute("update t set \"a, b\" = 'z' where id = 1")
        session.execute("begin; insert into t values (9); prepare transaction 'abs1:x'")
        code, report = run()
        assert code == 1
        assert report["corrupted"] == 1
        assert report["left_behind"]["prepared"][0]["on_table"] is True

        wrong = urlunsplit(
            urlsplit(database)._replace(netloc=urlsplit(database).netloc.replace(":", ":no", 1))
        )
        code, error = run(ABS_AUDIT_ACTUAL=wrong)
        assert code == 3
        assert "authentication" in error


WAITING = (NotYetError, JobGoneError)
"""Of `abs wait`, with exit codes of their own."""


@pytest.mark.parametrize(
    "kind", [kind for kind in kinds() if kind not in WAITING], ids=lambda kind: kind.__name__
)
def test_an_audit_that_could_not_run_tells_the_error_as_what_it_is(
    kind: type[AbsError],
    abs_audit: Callable[..., Done],
    paths: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = AbsError.__new__(kind)
    AbsError.__init__(error, "It is so.", remedy="do this.")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("abs_audit.audit", fail)
    done = abs_audit("--expected", paths["expected"], "--actual", paths["same"])
    assert f"It is so. [{kind.code}]" in done.stderr
    assert done.returncode in (2, 3)


def test_a_report_says_how_many_more_differences_there_are(
    abs_audit: Callable[..., Done], tmp_path: Path
) -> None:
    for name, rows in (("all", range(12)), ("none", range(0))):
        pq.write_table(pa.table({"id": pa.array(rows, pa.int64())}), tmp_path / f"{name}.parquet")
    sides = [f"{tmp_path}/all.parquet", f"{tmp_path}/none.parquet"]
    page = tmp_path / "report.html"
    arguments = ("--key", "id", "--report", str(page))
    for expected, actual, kind in ((*sides, "missing"), (*reversed(sides), "unexpected")):
        done = abs_audit("--expected", expected, "--actual", actual, *arguments)
        more = f"10 of 12 {kind} are shown; --samples 12 shows all"
        for text in (done.stdout, page.read_text()):
            assert more in text
            assert text.count("id=") == 10
        whole = abs_audit("--expected", expected, "--actual", actual, *arguments, "--samples", "12")
        assert "shows all" not in whole.stdout
        assert whole.stdout.count("id=") == 12
    assert "<h1>Not clean</h1>" in page.read_text()
    assert "white-space: pre-wrap" in page.read_text()
