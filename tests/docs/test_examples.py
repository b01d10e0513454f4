"""Every example of the docs runs, and what it asserts holds; the page on the runtime names each."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from abs_services import S3Service
from tests import sample

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = DOCS / "examples"
WITH_SERVERS = {"state_in_postgresql.py", "snapshots_in_s3.py", "into_s3.py"}
EXAMPLES = sorted(path.name for path in FOLDER.glob("*.py"))


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """As a script, in this process: the imports of all of them would take longer than they do."""
    monkeypatch.setattr(sys, "argv", [str(FOLDER / name), *arguments])
    runpy.run_path(str(FOLDER / name), run_name="__main__")


@sample.cases(9)
@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*EXAMPLES} - WITH_SERVERS))
def test_an_example_runs(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(name, monkeypatch, str(tmp_path / "new"))  # nobody has made it
    assert capsys.readouterr().out


@pytest.mark.services
def test_the_example_of_state_in_postgresql_runs(
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("state_in_postgresql.py", monkeypatch, str(tmp_path), database)
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.services
@pytest.mark.parametrize("name", ["snapshots_in_s3.py", "into_s3.py"])
def test_an_example_with_s3_runs(
    name: str,
    store: S3Service,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = f"s3://{store.bucket}/{prefix}"
    run(name, monkeypatch, str(tmp_path), path, store.endpoint)
    assert capsys.readouterr().out


def test_the_page_on_the_runtime_names_every_example() -> None:
    page = (DOCS / "explanation" / "abs.md").read_text()
    assert [name for name in EXAMPLES if f"(../examples/{name})" not in page] == []
