"""The wheel in an empty environment, as ``pip install`` puts it there: imports, command, types."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from abs_core.release import RELEASE
from tests.packaging.venvs import PROJECT, ROOT, wheel

pytestmark = pytest.mark.long


def packages(folder: Path) -> list[str]:
    """Those of the distribution that is built from the folder."""
    hatch = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    return [Path(path).name for path in hatch["targets"]["wheel"]["packages"]]


TESTING = ROOT / "tools"
"""Servers, kills and the demo are built from it: executors need none of them."""
PACKAGES = packages(ROOT)
NEED_AN_EXTRA = {"abs_audit": "audit"}
"""The import of the others needs none."""

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


@pytest.mark.parametrize("folder", [ROOT, TESTING], ids=["abs-sinks", "abs-sinks-testing"])
def test_every_package_of_a_wheel_says_that_it_is_typed(
    built: Path, tmp_path: Path, folder: Path
) -> None:
    with zipfile.ZipFile(built if folder == ROOT else wheel(tmp_path, TESTING)) as archive:
        names = set(archive.namelist())
    wanted = set(packages(folder))
    assert {name for name in wanted if f"{name}/py.typed" not in names} == set()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == wanted


def test_servers_kills_and_demo_ask_for_the_same_release() -> None:
    assert packages(TESTING) == ["abs_chaos", "abs_demo", "abs_services"]
    assert not {*packages(TESTING)} & {*PACKAGES}
    project = tomllib.loads((TESTING / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["demo"]]
    ours = [one for one in needed if one.startswith("abs-sinks")]
    assert len(ours) == 2
    assert all(one.endswith(f"=={RELEASE}") for one in ours)


def test_what_they_need_is_installed_for_the_tests() -> None:
    """``dev`` lists it again, as both distributions are installed from this checkout."""
    project = tomllib.loads((TESTING / "pyproject.toml").read_text())["project"]
    needed = {*project["dependencies"], *project["optional-dependencies"]["demo"]}
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
    names = sorted({*PACKAGES} - {*NEED_AN_EXTRA})
    done = run(empty / "python", "-u", "-W", "error", "-c", IMPORTS, *names)
    assert (done.stderr, done.stdout.splitlines()) == ("", [f"{name} 0" for name in names])


def test_a_package_that_cannot_be_imported_is_told(empty: Path) -> None:
    done = run(empty / "python", "-u", "-W", "error", "-c", IMPORTS, "abs_audit", "abs_core")
    assert done.stdout.splitlines() == ["abs_audit 1", "abs_core 0"]
    assert "ModuleNotFoundError: The package abs_audit needs" in done.stderr


@pytest.mark.parametrize(("package", "extra"), NEED_AN_EXTRA.items())
def test_a_package_that_needs_an_extra_names_it(empty: Path, package: str, extra: str) -> None:
    done = run(empty / "python", "-c", f"import {package}")
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"ModuleNotFoundError: The package {package} needs the Python package")
    assert f"pip install 'abs-sinks[{extra}]'" in said


def test_the_release_is_the_same_wherever_it_is_asked_for(empty: Path) -> None:
    assert run(empty / "abs", "--version").stdout == f"abs-sinks {RELEASE}\n"
    ask = "import abs_spark; from importlib.metadata import version as v; "
    ask += "print(abs_spark.__version__, v('abs-sinks'))"
    assert run(empty / "python", "-c", ask).stdout == f"{RELEASE} {RELEASE}\n"


def test_the_command_runs_with_its_extra_alone_and_names_it_without(
    empty: Path,
) -> None:
    """The last test that uses the environment without extras, where all fits together."""
    assert pip(empty.parent, "check").returncode == 0
    without = run(empty / "abs", "doctor", "--help")
    assert (without.returncode, without.stdout) == (2, "")
    assert "pip install 'abs-sinks[cli]'" in without.stderr
    lend(empty.parent, *PROJECT["optional-dependencies"]["cli"])
    for words in (["doctor", "--help"], ["--help"]):
        done = run(empty / "abs", *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage: abs" in done.stdout
    servers = run(empty / "abs", "status")
    assert (servers.returncode, servers.stdout) == (2, "")
    assert "pip install 'abs-sinks[testing]'" in servers.stderr


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
