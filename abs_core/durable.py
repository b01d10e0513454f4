"""What a file system keeps over a power cut: folders are flushed like files."""

from __future__ import annotations

import os
from pathlib import Path


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable (fsync(2): flushing a file does not flush its name).

    Raises:
        OSError: the folder is not there, or the disk fails.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_durably(folder: Path) -> None:
    """Make the folder where it is missing; every folder that is made is durable, too.

    Raises:
        OSError: a part of it is a file, may not be made, or the disk fails.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for made in reversed(missing):
        made.mkdir(exist_ok=True)
        flush_folder(made.parent)
