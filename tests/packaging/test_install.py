"""The wheel in an empty environment, as ``pip install`` puts it there: imports, command, types."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from abs_core.release import RELEASE
from tests.packaging.venvs import PROJECT, ROOT, wheel

pytestmark = pytest.mark.long


def packages(folder: Path) -> list[str]:
    """Those of the distribution that is built from the folder."""
    hatch = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    return [Path(path).name for path in hatch["targets"]["wheel"]["packages"]]


def project(folder: Path) -> dict[str, Any]:
    described: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return described


def needs(described: dict[str, Any]) -> list[str]:
    """What a distribution asks for, with all of its extras."""
    extras = described.get("optional-dependencies", {}).values()
    return [*described["dependencies"], *(one for extra in extras for one in extra)]


OTHERS = {
    "abs-sinks-cli": ROOT / "integration",
    "abs-sinks-embedded": ROOT / "engine",
    "abs-sinks-kit": ROOT / "kit",
    "abs-sinks-testing": ROOT / "tools",
}
"""Distributions that executors do not need, and the folder that each is built from."""
PACKAGES = packages(ROOT)

CODE = """\
import abs_spark
from abs_core.errors import AbsError

table = abs_spark.sink("abs-postgres", {"url": "postgresql://h/d", "dbtable": "t"}, name="table")
release: str = abs_spark.__version__
what: str = AbsError("It failed.").what
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(tmp_path_factory.mktemp("built"), sdist=True)


@pytest.fixture(scope="module")
def empty(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel and what its base needs, only."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    lend(folder, *PROJECT["dependencies"])
    done = pip(folder, "install", "--quiet", "--no-deps", "--no-index", str(built))
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def lend(venv: Path, *requirements: str) -> None:
    """Link what they ask for from this environment, with what that needs: pip would fetch it anew."""
    (site,) = venv.glob("lib/python*/site-packages")
    wanted = [Requirement(text) for text in requirements]
    while wanted:
        one = wanted.pop()
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        lent = distribution(one.name)
        wanted += [Requirement(text) for text in lent.requires or ()]
        for file in lent.files or ():
            whole = (Path(str(lent.locate_file(file.parts[0]))) / "__init__.py").exists()
            link = site / (file.parts[0] if whole else file)
            if ".." not in file.parts and not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(str(lent.locate_file(link.relative_to(site)))))


def pip(venv: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "pip", "--python", str(venv), *words)


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """In an environment that leads to no other packages, as a user's."""
    environment = {n: t for n, t in os.environ.items() if not n.startswith(("PYTHON", "PYSPARK"))}
    return subprocess.run(
        [str(word) for word in command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd="/",
    )


def test_the_sdist_holds_what_builds_and_tests_the_project(built: Path) -> None:
    (sdist,) = built.parent.glob("*.tar.gz")
    assert sdist.name == f"abs_sinks-{RELEASE}.tar.gz"
    assert built.name == f"abs_sinks-{RELEASE}-py3-none-any.whl"
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "tests/conftest.py"}
    assert wanted <= names
    assert not [name for name in names if name.startswith((".venv", ".git/", ".ci"))]


@pytest.mark.parametrize("name", ["abs-sinks", *OTHERS])
def test_every_package_of_a_wheel_says_that_it_is_typed(
    built: Path, tmp_path: Path, name: str
) -> None:
    folder = OTHERS.get(name, ROOT)
    with zipfile.ZipFile(built if folder == ROOT else wheel(tmp_path, folder)) as archive:
        names = set(archive.namelist())
    wanted = set(packages(folder))
    assert {package for package in wanted if f"{package}/py.typed" not in names} == set()
    assert {file.partition("/")[0] for file in names if ".dist-info" not in file} == wanted


def test_executors_get_neither_command_nor_audit_nor_engine_nor_kit_nor_servers() -> None:
    assert {name: packages(folder) for name, folder in OTHERS.items()} == {
        "abs-sinks-cli": ["abs_audit", "abs_cli"],
        "abs-sinks-embedded": ["abs_embedded"],
        "abs-sinks-kit": ["abs_testing"],
        "abs-sinks-testing": ["abs_chaos", "abs_demo", "abs_services"],
    }
    assert not {package for folder in OTHERS.values() for package in packages(folder)} & {*PACKAGES}


def test_the_tests_import_the_checkout_and_no_copy_of_it() -> None:
    """An installation that can be edited copies what a wheel is told to include from elsewhere."""
    for folder in (ROOT, *OTHERS.values()):
        for name in packages(folder):
            spec = importlib.util.find_spec(name)
            assert spec is not None, name
            assert Path(str(spec.origin)).is_relative_to(ROOT), spec.origin
            assert ".venv" not in Path(str(spec.origin)).relative_to(ROOT).parts, spec.origin


@pytest.mark.parametrize("name", OTHERS)
def test_the_others_ask_for_the_same_release(name: str) -> None:
    described = project(OTHERS[name])
    assert described["name"] == name
    ours = [one for one in needs(described) if one.startswith("abs-sinks")]
    assert ours
    assert all(one.endswith(f"=={RELEASE}") for one in ours)


def test_an_extra_installs_each_of_the_others() -> None:
    extras = PROJECT["optional-dependencies"]
    named = {
        one for extra in ("cli", "audit", "embedded", "kit", "testing") for one in extras[extra]
    }
    assert named == {*OTHERS}


def test_what_they_need_is_installed_for_the_tests() -> None:
    """``dev`` lists it again, as all of them are installed from this checkout."""
    needed = {one for folder in OTHERS.values() for one in needs(project(folder))}
    assert {one for one in needed if not one.startswith("abs-sinks")} <= {
        *PROJECT["optional-dependencies"]["dev"]
    }


IMPORTS = """\
import os, sys
import pyarrow  # which the base needs: once, not in each of the processes
for package in sys.argv[1:]:
    if os.fork() == 0:
        __import__(package)
        sys.exit()
    print(package, os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_each_package_is_imported_without_extras_and_by_itself(empty: Path) -> None:
    names = sorted(PACKAGES)
    done = run(empty / "python", "-u", "-W", "error", "-c", IMPORTS, *names)
    assert (done.stderr, done.stdout.splitlines()) == ("", [f"{name} 0" for name in names])


def test_a_package_that_cannot_be_imported_is_told(empty: Path) -> None:
    done = run(empty / "python", "-u", "-W", "error", "-c", IMPORTS, "abs_audit", "abs_core")
    assert done.stdout.splitlines() == ["abs_audit 1", "abs_core 0"]
    assert "No module named 'abs_audit'" in done.stderr


def test_a_sinks_testing_part_names_the_extra_that_brings_the_kit(empty: Path) -> None:
    code = "from abs_clients.extras import missing\ntry:\n    import abs_testing\n"
    code += "except ImportError as error:\n    print(missing(error, 'This'))"
    assert "pip install 'abs-sinks[kit]'" in run(empty / "python", "-c", code).stdout


def test_the_release_is_the_same_wherever_it_is_asked_for(empty: Path) -> None:
    ask = "import abs_spark; from importlib.metadata import version as v; "
    ask += "print(abs_spark.__version__, v('abs-sinks'))"
    assert run(empty / "python", "-c", ask).stdout == f"{RELEASE} {RELEASE}\n"


def test_the_command_runs_with_its_own_distribution_and_names_those_that_lack(
    empty: Path, tmp_path: Path
) -> None:
    """The last test that uses the environment without the command."""
    assert pip(empty.parent, "check").returncode == 0
    assert not (empty / "abs").exists()
    cli = OTHERS["abs-sinks-cli"]
    built = wheel(tmp_path, cli)
    assert pip(empty.parent, "install", "--no-deps", "--no-index", str(built)).returncode == 0
    lend(empty.parent, *(one for one in needs(project(cli)) if not one.startswith("abs-sinks")))
    told = run(empty / "abs", "--version")
    assert (told.stdout, told.stderr) == (f"abs-sinks {RELEASE}\n", "")
    for words in (["doctor", "--help"], ["--help"]):
        done = run(empty / "abs", *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage: abs" in done.stdout
    for words in (["status"], ["chaos", "--kills", "3", "--", "job"], ["trace"]):
        absent = run(empty / "abs", *words)
        assert (absent.returncode, absent.stdout) == (2, "")
        assert "pip install 'abs-sinks[" in absent.stderr
    # A command of somebody else's that cannot be loaded hides no other one.
    (site,) = empty.parent.glob("lib/python*/site-packages")
    (site / "broken-1.dist-info").mkdir()
    (site / "broken-1.dist-info" / "METADATA").write_text("Name: broken\nVersion: 1\n")
    entry = "[abs_cli.commands]\nbroken = no_such_module:run\n"
    (site / "broken-1.dist-info" / "entry_points.txt").write_text(entry)
    assert run(empty / "abs", "doctor", "--help").returncode == 0
    broken = run(empty / "abs", "broken")
    assert broken.returncode == 2
    assert "`abs broken` (no_such_module:run) cannot be loaded" in broken.stderr


def check_types(empty: Path, folder: Path, **codes: str) -> list[str]:
    """The errors that mypy finds in a user's files."""
    files = [folder / f"{name}.py" for name in codes]
    for file, code in zip(files, codes.values(), strict=True):
        file.write_text(code)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    where = ["--config-file=", f"--cache-dir={folder.parent / 'mypy'}", "--python-executable"]
    return run(*mypy, *where, empty / "python", *files).stdout.splitlines()


def test_a_users_file_is_type_checked_against_the_wheel(empty: Path, tmp_path: Path) -> None:
    everything = "".join(f"import {package}\n" for package in PACKAGES)
    spoilt = CODE.replace('"abs-postgres"', "7")
    (wrong,) = check_types(empty, tmp_path, right=CODE + everything, wrong=spoilt)
    assert "wrong.py:" in wrong
    assert 'Argument 1 to "sink" has incompatible type "int"' in wrong
    # Without the mark its types are not read, and the check tells it.
    (marker,) = empty.parent.glob("lib/python*/site-packages/abs_core/py.typed")
    marker.unlink()
    try:
        assert any("py.typed" in line for line in check_types(empty, tmp_path, right=CODE))
    finally:
        marker.touch()
