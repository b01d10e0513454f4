"""What an epoch's rows were, in a few bytes: equal for equal rows, however they are partitioned.

It tells a replay from another batch that comes under the same name, and which columns differ. How
rows are hashed is the sinks' matter (``abs_sinks.rowhash``); sums are all that is known here. It finds
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
    """Sums of hashes modulo 2^64, which do not depend on the order of what is added.

    Args:
        total: of whole rows; differs where values have only changed places between rows.
        columns: of the values of each column, by name, ascending; empty where that is not kept.
    """

    total: int
    columns: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: RowDigest) -> RowDigest:
        """The digest of both sets of rows together."""
        sums = dict(self.columns)
        for name, part in other.columns:
            sums[name] = (sums.get(name, 0) + part) % _MODULUS
        return RowDigest((self.total + other.total) % _MODULUS, tuple(sorted(sums.items())))

    @property
    def brief(self) -> RowDigest:
        """The same without columns: it still tells rows apart, and not where they differ."""
        return RowDigest(self.total)

    def prefixed(self, prefix: str) -> RowDigest:
        """The same with other names of the columns: tells the sinks of an epoch apart."""
        if not prefix:
            return self
        return RowDigest(
            self.total, tuple((f"{prefix}{name}", part) for name, part in self.columns)
        )

    def to_text(self) -> str:
        """For a register's fingerprint."""
        value: dict[str, object] = {"total": f"{self.total:016x}"}
        if self.columns:
            value["columns"] = {name: f"{part:016x}" for name, part in self.columns}
        return _KIND + json.dumps(value, separators=(",", ":"), sort_keys=True)

    def differs_from(self, recorded: RowDigest) -> str | None:
        """What is other than it was recorded, as the end of a sentence; None for equal rows."""
        mine, theirs = dict(self.columns), dict(recorded.columns)
        if not mine or not theirs:
            return None if self.total == recorded.total else "its rows have other values"
        if new := _named(mine.keys() - theirs.keys()):
            return f"it has {new} now, and had not"
        if gone := _named(theirs.keys() - mine.keys()):
            return f"it had {gone}, and has not now"
        if changed := _named(name for name, part in mine.items() if part != theirs[name]):
            return f"the values of {changed} differ"
        if self.total != recorded.total:
            return "its columns hold the same values, in other rows than before"
        return None


def is_row_digest(fingerprint: str | None) -> bool:
    """Whether it is a digest of rows that this release can compare."""
    return fingerprint is not None and fingerprint.startswith(_KIND)


def read_row_digest(fingerprint: str) -> RowDigest:
    """What ``RowDigest.to_text`` wrote.

    Raises:
        ValueError: the text is none.
    """
    value = fields(parse(fingerprint.removeprefix(_KIND)))
    columns = {name: int(text(part), 16) for name, part in fields(value.get("columns", {})).items()}
    digest = RowDigest(int(text(value["total"]), 16), tuple(sorted(columns.items())))
    if digest.to_text() != fingerprint:
        raise ValueError(f"no digest of rows: {fingerprint[:50]!r}")
    return digest


def shortened(fingerprint: str | None) -> str | None:
    """A row digest without its columns, any other fingerprint as it is.

    A register keeps the columns of the newest epoch only: its size does not grow with the input's
    columns times the epochs that it remembers.
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
