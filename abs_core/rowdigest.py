"""A digest of an epoch's rows that does not depend on their order or partitioning.

It distinguishes a replay from another batch with the same epoch number, and names the columns that
differ. ``abs_sinks.rowhash`` hashes the rows; this module only adds the hashes. The digest detects
mistakes, not forgery.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from abs_core.strictjson import fields, parse, text

_KIND = "rows1:"
_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class RowDigest:
    """Sums of hashes modulo 2^64.

    Args:
        total: of whole rows; differs even if values only moved between rows.
        columns: of each column's values, ascending by name; empty where not kept.
    """

    total: int
    columns: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: RowDigest) -> RowDigest:
        """The digest of the union of both row sets."""
        sums = dict(self.columns)
        for name, part in other.columns:
            sums[name] = (sums.get(name, 0) + part) % _MODULUS
        return RowDigest((self.total + other.total) % _MODULUS, tuple(sorted(sums.items())))

    @property
    def brief(self) -> RowDigest:
        """The digest without columns: it detects a difference but does not locate it."""
        return RowDigest(self.total)

    def prefixed(self, prefix: str) -> RowDigest:
        """The digest with prefixed column names, to distinguish the sinks of an epoch."""
        return RowDigest(
            self.total, tuple((f"{prefix}{name}", part) for name, part in self.columns)
        )

    def to_text(self) -> str:
        """The fingerprint that a register stores."""
        value: dict[str, object] = {"total": f"{self.total:016x}"}
        if self.columns:
            value["columns"] = {name: f"{part:016x}" for name, part in self.columns}
        return _KIND + json.dumps(value, separators=(",", ":"), sort_keys=True)

    def differs_from(self, recorded: RowDigest) -> str | None:
        """The difference from the recorded digest, as the end of a sentence; None for equal rows."""
        mine, theirs = dict(self.columns), dict(recorded.columns)
        if not mine or not theirs:
            return None if self.total == recorded.total else "its rows have other values"
        if new := _named(mine.keys() - theirs.keys()):
            return f"it now also has {new}"
        if gone := _named(theirs.keys() - mine.keys()):
            return f"it no longer has {gone}"
        if changed := _named(name for name, part in mine.items() if part != theirs[name]):
            return f"the values of {changed} differ"
        if self.total != recorded.total:
            return "its columns hold the same values, in other rows than before"
        return None


def is_row_digest(fingerprint: str | None) -> bool:
    """Whether it is a row digest that this release can compare."""
    return fingerprint is not None and fingerprint.startswith(_KIND)


def read_row_digest(fingerprint: str) -> RowDigest:
    """Inverse of ``RowDigest.to_text``.

    Raises:
        ValueError: the text is not a row digest.
    """
    value = fields(parse(fingerprint.removeprefix(_KIND)))
    columns = {name: int(text(part), 16) for name, part in fields(value.get("columns", {})).items()}
    digest = RowDigest(int(text(value["total"]), 16), tuple(sorted(columns.items())))
    if digest.to_text() != fingerprint:
        raise ValueError(f"not a digest of rows: {fingerprint[:50]!r}")
    return digest


def shortened(fingerprint: str | None) -> str | None:
    """A row digest without its columns, any other fingerprint as it is.

    A register keeps the columns of the newest epoch only, to bound its size.
    """
    if fingerprint is None or not is_row_digest(fingerprint):
        return fingerprint
    return read_row_digest(fingerprint).brief.to_text()


def _named(names: Iterable[str]) -> str:
    listed = sorted(names)
    if not listed:
        return ""
    shown = ", ".join(f'"{name}"' for name in listed[:10])
    more = f" and {len(listed) - 10} more" if len(listed) > 10 else ""
    return f"column{'s' if len(listed) > 1 else ''} {shown}{more}"
