"""Names that readers of a folder skip, in a bucket or on a disk."""

from __future__ import annotations

FOLDER_MARKERS = ("/", "_$folder$")
"""How a key ends that stands for a folder: consoles, EMR, Glue and old Hadoop clients make such."""


def is_hidden(name: str) -> bool:
    """Whether Spark skips files and folders of this name."""
    return (
        (name.startswith("_") and "=" not in name)
        or name.startswith(".")
        or (name.endswith("._COPYING_"))
    )
