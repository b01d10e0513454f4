"""How the tests start Spark's JVMs: quick to begin, at the price of what makes long jobs fast.

A JVM that is up and has run a first small query has taken 12 s of CPU, most of it to read, check and
compile Spark's classes; with an archive of these classes it is 5.5 s. The archive lies in the cache
folder and is made where it is not there. Nothing needs it: where it cannot be made, or is of another
Spark or Java, the JVM reads the jars.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from abs_services.native.class_archive import make_once
from abs_services.paths import cache_folder

log = logging.getLogger(__name__)

ENVIRONMENT = "SPARK_SUBMIT_OPTS"
"""Spark's scripts give these options to each driver's JVM, whoever starts it."""

QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto "
    # Of an archive that is not used Java would say so between the lines of the tests' own output.
    "-Xlog:disable -Xlog:all=error:stderr"
)
DEADLINE_S = 300.0
UNUSED_S = 14 * 24 * 3600


def options() -> str:
    """Options for a JVM of Spark, and the archive, if there is one."""
    archive = class_archive()
    if not archive.is_file():
        return QUICK
    os.utime(archive)  # it is in use
    return f"{QUICK} -XX:SharedArchiveFile={archive}"


def class_archive() -> Path:
    """Where the archive of this Python's Spark and of this Java lies, or would."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    jars = Path(found.origin).parent / "jars"
    home = os.environ.get("JAVA_HOME")
    java = Path(f"{home}/bin/java" if home else shutil.which("java") or "java").resolve()
    known_by = [f"{path} {path.stat().st_mtime_ns}" for path in (jars, java) if path.exists()]
    name = hashlib.sha256(" ".join(known_by).encode()).hexdigest()[:12]
    return cache_folder() / f"spark-{name}.jsa"


def make_class_archive(dump: Callable[[Path], None]) -> None:
    """Make the archive where it is not there; who asks at the same time waits for the one that does.

    That it cannot be made is logged, and no error. What nobody has used for long is deleted.

    Args:
        dump: leaves the archive in the file that is given, if all goes well.
    """

    def make(archive: Path) -> None:
        for old in cache_folder().glob("spark-*.jsa"):
            if time.time() - old.stat().st_mtime > UNUSED_S:
                old.unlink()
        dump(archive)

    try:
        make_once(class_archive(), "spark-classes.lock", make)
    except OSError as error:
        log.warning("Spark starts without an archive of its classes: %s", error)


def run_and_dump(archive: Path) -> None:
    """Run a first small query in a JVM that leaves its classes in this file as it ends."""
    from tests.spark.drivers import Session
    from tests.spark.jobs import warm_up

    given = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        ENVIRONMENT: f"{QUICK} -XX:ArchiveClassesAtExit={archive}",
    }
    command = [sys.executable, warm_up.__file__, str(archive.parent / "scratch")]
    with Session(command, archive.parent, given, "warm_up.log") as session:
        give_up = time.monotonic() + DEADLINE_S
        # The JVM ends after its driver, and writes the archive meanwhile.
        while not session.has_ended or session.members():
            if time.monotonic() > give_up:
                raise TimeoutError(f"it takes more than {DEADLINE_S:.0f} s: {session.log[-2000:]}")
            time.sleep(0.1)
        if not archive.exists():
            raise FileNotFoundError(f"the JVM has left none: {session.log[-2000:]}")
