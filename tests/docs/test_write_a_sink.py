"""The SQLite sink of docs/how-to/write-a-sink.md keeps the contract; `abs` finds its entry point."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abs_testing import SCHEMA
from abs_testing.engine import Run
from tests.kit.forked_command import ForkedCommand

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "write-a-sink.md"
PACKAGE = ROOT / "docs" / "examples" / "abs-sqlite"
ROWS = [(1, "a"), (2, "b"), (3, "c")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where databases lie: in memory where there is such a folder. Nothing here cuts the power."""
    memory = Path("/dev/shm")
    at = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="abs-sqlite-", dir=at) as place:
        yield Path(place)


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The package's own tests, importable here and in processes that are started."""
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    monkeypatch.syspath_prepend(str(PACKAGE))
    yield importlib.import_module("test_abs_sqlite")
    for name in ("test_abs_sqlite", "abs_sqlite"):
        sys.modules.pop(name)


PROOFS = (
    "test_the_sink_keeps_every_rule",
    "test_a_crash_at_any_point_loses_and_doubles_nothing",
    "test_the_register_is_one_cell_for_each_job",
)


@pytest.mark.parametrize("proof", PROOFS)
def test_the_packages_own_test_passes(proof: str, proofs: ModuleType, folder: Path) -> None:
    getattr(proofs, proof)(folder)


def test_every_test_of_the_package_is_run_here(proofs: ModuleType) -> None:
    assert sorted(name for name in vars(proofs) if name.startswith("test_")) == sorted(PROOFS)


def test_what_the_page_shows_is_in_the_package() -> None:
    files = "\n".join(path.read_text() for path in sorted(PACKAGE.iterdir()) if path.is_file())
    shown = re.findall(
        r"^```(?:python|toml)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(shown) > 3
    assert [text for text in shown if text not in files] == []


def test_a_constraint_stops_an_epoch_before_it_is_decided(proofs: ModuleType, folder: Path) -> None:
    from abs_core.errors import RefusedError

    with proofs.open_table(folder) as harness:
        sink = harness.new_sink()
        with proofs.transaction(sink._options.path) as db:
            db.execute("CREATE UNIQUE INDEX one ON sales (id)")
        run = Run(sink, "shop")
        run.epoch(0, ROWS)
        with pytest.raises(RefusedError, match="UNIQUE"):
            run.epoch(1, [(1, "again")])
        assert (run.state().open, run.state().frontier) == ((), 0)
        assert sorted(harness.read()) == ROWS


class Abs:
    """The command, in processes that have the package installed: code and metadata on their path."""

    def __init__(self, forked: ForkedCommand, folder: Path) -> None:
        self._forked = forked
        self._folder = folder

    def __call__(self, *arguments: str, fails: int = 0) -> str:
        code, said = self._forked(self._folder, *arguments)
        assert code == fails, said
        return said


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommand]:
    site = tmp_path_factory.mktemp("site-packages")
    install(PACKAGE, site)
    with ForkedCommand(site) as command:
        yield command


@pytest.fixture(scope="module")
def fourth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommand]:
    """The command of a repository whose fourth system is SQLite: a folder beside the other three."""
    ours = tmp_path_factory.mktemp("sinks") / "abs_sinks"
    shutil.copytree(
        ROOT / "sinks" / "abs_sinks", ours, ignore=shutil.ignore_patterns("__pycache__")
    )
    (ours / "sqlite").mkdir()
    (ours / "sqlite" / "__init__.py").touch()
    shutil.copy(PACKAGE / "abs_sqlite.py", ours / "sqlite" / "door.py")
    with ForkedCommand(ours.parent) as command:
        yield command


@pytest.fixture(params=["command", "fourth"])
def any_command(request: pytest.FixtureRequest, folder: Path) -> Abs:
    """The sink in a package of its own, and in a folder of this one."""
    return Abs(request.getfixturevalue(request.param), folder)


def install(package: Path, site: Path) -> None:
    """What an installer writes: the module, and the metadata from pyproject.toml."""
    project: dict[str, Any] = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    named = f"Name: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\n{named}")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    for module in project_modules(package):
        shutil.copy(module, site)


def project_modules(package: Path) -> list[Path]:
    return [file for file in package.glob("*.py") if not file.name.startswith("test_")]


@pytest.fixture
def shop(proofs: ModuleType, folder: Path) -> Path:
    """A database as a job left it: one epoch committed, and what a stopped run prepared too late."""
    path = folder / "shop.db"
    harness = proofs.SqliteHarness(path)
    run = Run(harness.new_sink(), "shop")
    run.epoch(0, ROWS[:2])
    late = run.attempt(1).write(*ROWS[2:])
    Run(harness.new_sink(), "shop").begin(1)
    late.pre_commit()
    return path


def test_abs_looks_after_the_jobs_of_the_sink(any_command: Abs, shop: Path) -> None:
    command = any_command
    url = f"sqlite://{shop}"
    (listed,) = json.loads(command("register", "list", "--url", url, "--json"))
    assert listed["job"] == "shop"
    (doubt,) = json.loads(command("in-doubt", "list", "--url", url, "--json", fails=1))
    assert "sales" in doubt["detail"]
    pq.write_table(pa.Table.from_batches([batch(ROWS[:2])]), shop.parent / "expected.parquet")
    against = "--expected", "expected.parquet", "--actual", url, "--table", "sales"
    assert "unfinished" in command("audit", *against, fails=1)
    command("in-doubt", "abort", "shop", "--url", url)
    assert json.loads(command("in-doubt", "list", "--url", url, "--json")) == []
    report = json.loads(command("audit", *against, "--json"))
    assert report["clean"]


def test_doctor_knows_the_sink_by_its_name(any_command: Abs, shop: Path) -> None:
    command = any_command
    given = "--format", "abs-sqlite", "-o", f"path={shop}", "-o"
    assert "each task's rows at once" in command("doctor", *given, "dbtable=sales")
    assert "There is no table other" in command("doctor", *given, "dbtable=other", fails=1)
    wrong = command("doctor", "--format", "abs-nothing", "-o", "path=x", fails=2)
    assert "abs-sqlite" in wrong, "formats that are installed are named"


def test_every_command_on_a_job_works(any_command: Abs, shop: Path, proofs: ModuleType) -> None:
    at = "--url", f"sqlite://{shop}"
    assert "shop" in any_command("register", "show", "shop", *at)
    any_command("in-doubt", "commit", "shop", *at)
    any_command("register", "rename", "shop", "store", *at)
    assert json.loads(any_command("in-doubt", "list", *at, "--json")) == [], "the late one is swept"
    other = shop.parent / "other.db"
    proofs.SqliteHarness(other)
    any_command("register", "move", "store", *at, "--to", f"sqlite://{other}")
    (moved,) = json.loads(any_command("register", "list", "--url", f"sqlite://{other}", "--json"))
    assert (moved["job"], moved["frontier"]) == ("store", 0)
    any_command("job", "reset", "store", "--yes", "--url", f"sqlite://{other}")
    assert json.loads(any_command("register", "list", "--url", f"sqlite://{other}", "--json")) == []
    any_command("register", "retire", "store", "--yes", *at)
    assert json.loads(any_command("register", "list", *at, "--json")) == []


def test_every_command_takes_the_sink_in_a_file(any_command: Abs, shop: Path) -> None:
    pq.write_table(pa.Table.from_batches([batch(ROWS[:2])]), shop.parent / "expected.parquet")
    text = (PACKAGE / "job.toml").read_text().replace("/data/shop.db", str(shop))
    file = shop.parent / "job.toml"
    file.write_text(f'job = "shop"\n{text}'.replace("/data/sales/*.json", "expected.parquet"))
    of = "--sinks", str(file)
    assert "each task's rows at once" in any_command("doctor", *of)
    any_command("in-doubt", "abort", "shop", *of)
    assert json.loads(any_command("in-doubt", "list", *of, "--json")) == []
    assert "CLEAN" in any_command("audit", *of)
    assert "shop" in any_command("register", "list", *of)


def test_a_package_that_cannot_be_imported_stops_only_who_asks_for_it(
    shop: Path, tmp_path: Path
) -> None:
    install(PACKAGE, tmp_path)
    (tmp_path / "abs_sqlite.py").write_text("import nothing_of_that_name\n")
    done = subprocess.run(
        [sys.executable, "-m", "abs_cli", "register", "list", "--url", f"sqlite://{shop}"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert "nothing_of_that_name" in done.stderr
    assert "abs-sqlite" in done.stderr
    assert "not a known system" not in done.stderr


def batch(rows: list[tuple[int, str]]) -> pa.RecordBatch:
    ids, values = zip(*rows, strict=True)
    return pa.record_batch([pa.array(ids), pa.array(values)], schema=SCHEMA)
