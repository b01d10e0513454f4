"""What the figures were measured on: a figure without its machine, versions and load says little."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import psutil
import psycopg

_PACKAGES = ("pyspark", "pyarrow", "psycopg", "pgpq")
_SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
)


def machine(*packages: str) -> dict[str, str]:
    """Machine, commit and versions of packages, in the order in which they are printed."""
    facts = {
        "cores": str(len(psutil.Process().cpu_affinity())),
        "cpu": _cpu_model(),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _java_version(),
        "commit": _commit(),
    }
    return facts | {name: version(name) for name in packages}


def environment(url: str) -> dict[str, str]:
    """The same with a PostgreSQL server's settings."""
    facts = machine(*_PACKAGES)
    with psycopg.connect(url) as connection:
        for name in _SETTINGS:
            row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
            facts[f"postgres {name}"] = str(row[0]) if row else "?"
    facts["fdatasync of 8 KiB"] = f"{_fdatasync_ms():.2f} ms"
    return facts


def load() -> str:
    """The load averages of 1, 5 and 15 minutes, as ``uptime`` shows them."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _java_version() -> str:
    java = shutil.which("java")
    if java is None:
        return "none"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    return said.partition('"')[2].partition('"')[0] or "?"


def _commit() -> str:
    """The commit that was measured, with ``+`` where the measured packages differ from it."""
    here = Path(__file__).parent
    parts = [
        "abs_core",
        "clients",
        "sinks",
        "sources",
        "kit",
        "integration",
        "engine",
        "tools",
        "benchmarks/*.py",
    ]
    head = _git(here, "rev-parse", "--short", "HEAD")
    changed = _git(here.parent, "status", "--porcelain", "--", *parts)
    return f"{head}{'+' if changed else ''}" if head else "none"


def _git(folder: Path, *arguments: str) -> str:
    if shutil.which("git") is None:
        return ""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _fdatasync_ms(times: int = 20) -> float:
    """Median of a write of one page and its sync, where temporary servers keep their data."""
    taken = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(times):
            began = time.perf_counter()
            os.pwrite(file.fileno(), bytes(8192), 0)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3
