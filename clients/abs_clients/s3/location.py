"""A bucket and a prefix, parsed from ``s3://bucket/prefix``, and names that readers skip."""

from __future__ import annotations

import re
from dataclasses import dataclass

from abs_core.errors import OptionError

MAX_KEY = 1024
"""Longest key in bytes (Amazon S3 user guide, "Naming Amazon S3 objects")."""

OURS = "_abs"
"""The folder of register, manifests and segments: readers skip names that begin with ``_``."""

_URL = re.compile(
    r"s3[an]?://(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9])(?:/(?P<prefix>.*))?"
)


@dataclass(frozen=True, slots=True)
class Location:
    """A folder in a bucket. Prints as the URL that parses to it.

    ``prefix`` has no slashes at its ends; it is empty for the bucket itself.
    """

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Location:
        """Parse ``s3://bucket/prefix``; Hadoop's ``s3a:`` and ``s3n:`` mean the same.

        Raises OptionError for another URL, or a folder that readers skip.
        """
        match = _URL.fullmatch(url.strip())
        if match is None:
            raise OptionError(f"{url!r} is not a place in S3.", remedy="write s3://bucket/prefix.")
        parts = [part for part in (match["prefix"] or "").split("/") if part]
        for part in parts:
            if part in (".", "..") or any(ord(char) < 32 for char in part):
                raise OptionError(
                    f"{url!r} contains a folder name that some clients cannot use: {part!r}.",
                    remedy="take another name for it.",
                )
            if part == OURS:
                raise OptionError(
                    f"{url!r} lies in the sink's own folder {OURS}/.", remedy="take another folder."
                )
        return cls(match["bucket"], "/".join(parts))

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def folder(self) -> str:
        """The prefix of all keys in it; ends in a slash, or is empty."""
        return f"{self.prefix}/" if self.prefix else ""

    def key(self, *names: str) -> str:
        """The key of these names in it."""
        return self.folder + "/".join(names)

    def within(self, *names: str) -> Location:
        """A folder in it."""
        return Location(self.bucket, self.key(*names))
