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
