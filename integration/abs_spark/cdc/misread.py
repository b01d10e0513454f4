"""A value that cannot be read as what it should be."""

from __future__ import annotations


class MisreadError(Exception):
    """A value cannot be read; what catches it names the record and the column.

    Args:
        why: what is wrong, after the name of the column.
        remedy: what to do.
    """

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy
