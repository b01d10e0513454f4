"""A class archive of the broker that Java maps at its start (CDS).

It halves the broker's start time and CPU, and is optional: without it, or with another Java's, Java
reads the jars.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from abs_core.errors import AbsError
from abs_services.java import find_java
from abs_services.native import NativeKafka
from abs_services.native.kafka_jars import KAFKA
from abs_services.native.lifecycle import Command
from abs_services.paths import cache_folder
from tests.kit.class_archive import make_once

log = logging.getLogger(__name__)

_JVM = "ABS_KAFKA_JVM"
"""Options of every broker's Java, of this process and of those that it starts."""


def class_archive(java: Path) -> Path:
    """The archive's path for this Java, beside the jars."""
    real = java.resolve()
    known_by = f"{real} {real.stat().st_mtime_ns}"
    return (
        cache_folder() / f"kafka-{KAFKA}-{hashlib.sha256(known_by.encode()).hexdigest()[:12]}.jsa"
    )


def archive_flags(java: Path) -> Sequence[str]:
    """Java's flags to use the archive; empty if there is none."""
    archive = class_archive(java)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.is_file() else []


def make_class_archive(dump: Callable[[Path], None]) -> None:
    """Make the archive if absent, see ``make_once``; a failure is logged, and no error.

    ``dump`` runs a broker that writes the archive to a file, and ends it.
    """
    try:
        make_once(class_archive(find_java()), "kafka-classes.lock", dump)
    except (AbsError, OSError) as error:
        log.warning("Kafka brokers start without an archive of their classes: %s", error)


class _Dumping(NativeKafka):
    """A broker that writes the archive when it stops."""

    def __init__(self, archive: Path) -> None:
        super().__init__()
        self._archive = archive

    def _set_up(self) -> Command:
        command = super()._set_up()
        java, *others = command.argv
        return replace(command, argv=[java, f"-XX:ArchiveClassesAtExit={self._archive}", *others])


def archive_classes() -> None:
    """Let brokers start from a class archive from now on; 10 s the first time."""

    def dump(archive: Path) -> None:
        with _Dumping(archive) as broker:
            broker.stop()

    make_class_archive(dump)
    known = os.environ.get(_JVM, "").split()
    more = [flag for flag in archive_flags(find_java()) if flag not in known]
    os.environ[_JVM] = " ".join([*known, *more])
