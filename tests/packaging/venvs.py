"""Virtual environments for tests, made once into the cache folder, and the wheel of this checkout."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from abs_services.paths import cache_folder

ROOT = Path(__file__).parents[2]

RUNTIME = ("numpy>=1.26", "pandas==2.3.3", "pyarrow>=15")
"""What a runtime of Spark brings."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_EXTRAS = PROJECT["optional-dependencies"]
POSTGRES = tuple(_EXTRAS["postgres"])
LIBRARIES = (
    *(name for name in PROJECT["dependencies"] if not name.startswith(("numpy", "pyarrow"))),
    *POSTGRES,
)
"""What a job needs that writes to PostgreSQL, beside what a runtime brings."""
CLIENTS = (*LIBRARIES, *_EXTRAS["kafka"], *_EXTRAS["s3"])
"""The same for all targets."""
NEWEST = "4.3.0"
"""The release of Spark that the tests themselves use."""


def connect(spark: str = NEWEST) -> tuple[str, ...]:
    """Spark with its Connect, and what a job needs that writes to PostgreSQL."""
    return (f"pyspark[connect]=={spark}", *RUNTIME, *LIBRARIES)


def python_with(*requirements: str, of: str = "", version: str = "") -> Path:
    """The Python of an environment that has these packages and what they need.

    The test is skipped where they cannot be fetched.

    Args:
        of: tells environments with the same packages apart.
        version: of Python, such as 3.12, where it is installed; else, this one's.
    """
    base, said = _python_of(version)
    name = hashlib.sha256(" ".join((said, of, *requirements)).encode()).hexdigest()[:12]
    folder = cache_folder() / "venvs" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([base, "-m", "venv", str(folder)], check=True)
            made = _pip(folder, *requirements)
            if made.returncode:
                pytest.skip(f"{', '.join(requirements)} cannot be had here: {made.stderr[-300:]}")
            (folder / ".ready").touch()
    return folder / "bin" / "python"


def _python_of(version: str) -> tuple[str, str]:
    """A Python of that version and what it says of itself; this one, where there is none."""
    if version:
        pyenv = (str(path) for path in Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        for name in (f"python{version}", *pyenv):
            if shutil.which(name) is not None:
                ask = [name, "-c", "import sys; print(sys.version)"]
                done = subprocess.run(ask, capture_output=True, text=True, check=False)
                if done.returncode == 0:
                    return name, done.stdout.strip()
    return sys.executable, sys.version


def wheel(folder: Path, of: Path = ROOT, *, sdist: bool = False) -> Path:
    """The wheel of this checkout, or of a folder of it, built into a folder.

    Args:
        sdist: build it from the sdist, which is beside it then.
    """
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(of)]
    subprocess.run([*build, *([] if sdist else ["--wheel"])], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def with_wheel(python: Path, wheel: Path) -> Path:
    """The same Python, with this wheel installed among its packages."""
    done = _pip(python.parents[1], "--no-deps", "--force-reinstall", str(wheel))
    assert done.returncode == 0, done.stderr
    return python


def installed(venv: Path, wheel: Path, folder: Path) -> dict[str, str]:
    """What a process's environment must have to see this wheel, and the venv's packages beside it."""
    target = folder / "site"
    done = _pip(venv.parents[1], "--no-deps", "--target", str(target), str(wheel))
    assert done.returncode == 0, done.stderr
    return {"PYTHONPATH": str(target)}


def _pip(venv: Path, *words: str) -> subprocess.CompletedProcess[str]:
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    return subprocess.run(
        [*pip, "--disable-pip-version-check", *words], capture_output=True, text=True, check=False
    )
