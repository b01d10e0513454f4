"""The Kafka broker's jars, resolved by the Ivy that PySpark ships and kept in the cache folder.

Fetched and cached jars are checked by SHA-256 (``kafka-<version>.sha256``, for ``sha256sum -c``)
before Java loads them.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path

from abs_core.errors import CorruptionError
from abs_services.native.ivy import resolve
from abs_services.paths import cache_folder

KAFKA = "4.1.1"
SCALA = "2.13"
_DEPENDENCIES = (
    ("org.apache.kafka", f"kafka_{SCALA}", KAFKA),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)

SUMS = Path(__file__).with_name(f"kafka-{KAFKA}.sha256")

log = logging.getLogger(__name__)


def broker_jars(java: Path, sums: Path = SUMS) -> Path:
    """The folder with the broker's jars; fetched at the first call (30 s), then cached.

    Concurrent callers wait. Cached jars that differ from the table are fetched again.

    Args:
        sums: the table of their SHA-256.

    Raises:
        ConfigError: PySpark is not installed.
        UnavailableError: the jars cannot be fetched.
        CorruptionError: fetched jars differ from the table.
    """
    folder = cache_folder() / f"kafka-{KAFKA}"
    lines = [line.split() for line in sums.read_text().splitlines() if line.strip()]
    table = {name: digest for digest, name in lines}
    if folder.is_dir() and not differing(folder, table):
        return folder
    with (cache_folder() / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wrong = differing(folder, table) if folder.is_dir() else ["nothing is cached"]
        if not wrong:
            return folder
        with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
            jars = _resolve(java, Path(scratch))
            if foreign := differing(jars, table):
                raise CorruptionError(
                    f"The fetched jars of the Kafka broker {KAFKA} are not the ones that this release "
                    f"expects: {'; '.join(foreign[:3])}.",
                    remedy="check where Ivy fetched them from (a mirror, a proxy); none of them was "
                    "kept.",
                )
            if folder.is_dir():
                log.warning("%s is replaced: %s", folder, "; ".join(wrong[:3]))
                folder.rename(Path(scratch) / "replaced")
            jars.rename(folder)
    return folder


def differing(folder: Path, table: Mapping[str, str]) -> list[str]:
    """Jars that are missing, changed, or not in the table."""
    jars = {path.name: path for path in folder.iterdir()}
    return [
        *(f"{name} is missing" for name in sorted(table.keys() - jars.keys())),
        *(f"{name} is not of this release" for name in sorted(jars.keys() - table.keys())),
        *(
            f"{name} has another content"
            for name in sorted(table.keys() & jars.keys())
            if _sha256(jars[name]) != table[name]
        ),
    ]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _resolve(java: Path, scratch: Path) -> Path:
    return resolve(java, scratch, f"the Kafka broker {KAFKA}", _DEPENDENCIES)
