"""How the tests start Spark's JVMs: quick to begin, at the price of what makes long jobs fast.

A JVM that is up and has run a first small query has taken 12 s of CPU, most of it to read, check and
compile Spark's classes; with an archive of these classes it is 5.5 s. An archive knows its jars by
path and date, so both lie in a Spark home in the cache folder, which all checkouts share, and are
made where they are not there. Nothing needs them: where they cannot be made, the JVM reads the
package's jars.

This home has no ``pyspark.zip``: Spark's Python processes take PySpark from it where it is there, and
each of them compiles it anew (0.55 s of CPU to import ``pyspark.daemon``, 0.14 from the package). The
other releases' tests (``other_sparks``, ``tests/packaging``) have a whole home.
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

from abs_services.paths import cache_folder
from tests.kit.class_archive import make_once

log = logging.getLogger(__name__)

OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark's scripts give these options to each driver's JVM, whoever starts it."""
HOME = "SPARK_HOME"
"""Not for another release of Spark than this Python's."""

QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto "
    # Of an archive that is not used Java would say so between the lines of the tests' own output.
    "-Xlog:disable -Xlog:all=error:stderr"
)
DEADLINE_S = 300.0
UNUSED_S = 14 * 24 * 3600


def environment() -> dict[str, str]:
    """What starts a driver's JVM so: the options, the archive, if there is one, and the home."""
    archive = class_archive()
    if not archive.is_file():
        return {OPTIONS: QUICK}
    os.utime(home())  # it is in use
    return {OPTIONS: f"{QUICK} -XX:SharedArchiveFile={archive}", HOME: str(home())}


def home() -> Path:
    """Where Spark's jars and scripts lie for the tests, of this Python's PySpark."""
    jars = (_package() / "jars").iterdir()
    known_by = sorted(f"{jar.name} {jar.stat().st_size}" for jar in jars)
    return cache_folder() / f"spark-{hashlib.sha256(' '.join(known_by).encode()).hexdigest()[:12]}"


def class_archive() -> Path:
    """Where the archive of this Python's Spark and of this Java lies, or would."""
    java_home = os.environ.get("JAVA_HOME")
    java = Path(f"{java_home}/bin/java" if java_home else shutil.which("java") or "java").resolve()
    known_by = f"{java} {java.stat().st_mtime_ns}" if java.exists() else str(java)
    return home() / f"{hashlib.sha256(known_by.encode()).hexdigest()[:12]}.jsa"


def make_class_archive(dump: Callable[[Path], None]) -> None:
    """Make the archive where it is not there; who asks at the same time waits for the one that does.

    That it cannot be made is logged, and no error. What nobody has used for long is deleted.

    Args:
        dump: leaves the archive in the file that is given, if all goes well.
    """
    try:
        make_once(home(), "spark-classes.lock", _make_home)
        make_once(class_archive(), "classes.lock", dump)
    except OSError as error:
        log.warning("Spark starts without an archive of its classes: %s", error)


def _make_home(folder: Path) -> None:
    for old in cache_folder().glob("spark-*/"):
        if time.time() - old.stat().st_mtime > UNUSED_S:
            shutil.rmtree(old)
    for part in ("bin", "jars"):
        shutil.copytree(_package() / part, folder / part, copy_function=_link)


def _package() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # the cache is on another disk
        shutil.copy2(source, target)


def run_and_dump(archive: Path) -> None:
    """Run a first small query in a JVM that leaves its classes in this file as it ends."""
    from tests.spark.drivers import Session
    from tests.spark.jobs import warm_up

    given = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        OPTIONS: f"{QUICK} -XX:ArchiveClassesAtExit={archive}",
        HOME: str(home()),
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
