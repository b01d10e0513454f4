"""The broker's classes, read and checked once for all: an archive that Java maps at its start.

A broker is up after half the time, and for half the CPU. Nothing needs it: where it is not there, or is
another Java's, Java reads the jars. It is made only where somebody asks for it, as our tests do, who
start many brokers.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from abs_core.errors import AbsError
from abs_services.native.class_archive import make_once
from abs_services.native.kafka_jars import KAFKA, find_java
from abs_services.paths import cache_folder

log = logging.getLogger(__name__)


def class_archive(java: Path) -> Path:
    """Where the archive for this Java lies, or would: beside the jars."""
    real = java.resolve()
    known_by = f"{real} {real.stat().st_mtime_ns}"
    return (
        cache_folder() / f"kafka-{KAFKA}-{hashlib.sha256(known_by.encode()).hexdigest()[:12]}.jsa"
    )


def archive_flags(java: Path) -> Sequence[str]:
    """What makes Java use the archive; nothing where there is none."""
    archive = class_archive(java)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.is_file() else []


def make_class_archive(dump: Callable[[Path], None]) -> None:
    """Make the archive where it is not there; who asks at the same time waits for the one that does.

    That it cannot be made is logged, and no error.

    Args:
        dump: runs a broker that leaves the archive in the file that is given, and ends it.
    """
    try:
        make_once(class_archive(find_java()), "kafka-classes.lock", dump)
    except (AbsError, OSError) as error:
        log.warning("Kafka brokers start without an archive of their classes: %s", error)
