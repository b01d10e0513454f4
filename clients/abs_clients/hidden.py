"""Files and folders that readers skip."""

from __future__ import annotations


def is_hidden(name: str) -> bool:
    """Whether Spark skips files and folders of this name."""
    return (
        (name.startswith("_") and "=" not in name)
        or name.startswith(".")
        or (name.endswith("._COPYING_"))
    )
