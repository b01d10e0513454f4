"""Protocol idempotent: manifests, which name the files that are committed; readers go by them.

    <state>/manifests/job=<job>/<level>-<first>-<last>-<generation>-<random>

Each epoch puts one, under a name of its own, if absent; the job's register lists those that count, and
is changed by the same compare-and-set that finishes the epoch. So a reader that begins at the
register sees whole epochs only. Sixteen manifests of one level are folded into one of the next: the
register lists few, and what a commit reads grows with the logarithm of the epochs, on average.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from abs_clients.s3.objects import Objects
from abs_core.errors import CorruptionError, UnavailableError
from abs_core.model import JobState
from abs_core.strictjson import NEWER, fields, of, parse, text, version, whole
from abs_sinks.s3.layout import job_text
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.register import Cell

FORMAT = 1
FOLDER = "manifests"
FOLD = 16
MANIFEST_MAX = 1 << 31
"""Bytes of a manifest: of some ten million files."""
_NAME = re.compile(r"([0-9]{1,9})-([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,18})-([0-9a-f]{16})")


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A data file that readers may see.

    Args:
        crc: CRC-64/NVME of its content, 16 hex digits; empty where only the object itself tells.
    """

    key: str
    size: int
    crc: str


@dataclass(frozen=True, slots=True)
class ManifestName:
    """Which epochs a manifest is about, who wrote it, how often it was folded."""

    level: int
    first: int
    last: int
    generation: int
    nonce: str

    def __str__(self) -> str:
        return f"{self.level}-{self.first}-{self.last}-{self.generation}-{self.nonce}"

    @classmethod
    def parse(cls, text: str) -> ManifestName | None:
        """The name that prints as exactly ``text``, or None."""
        found = _NAME.fullmatch(text)
        if found is None:
            return None
        level, first, last, generation = (int(found[number]) for number in range(1, 5))
        name = cls(level, first, last, generation, found[5])
        return name if str(name) == text else None

    def is_over(self, state: JobState) -> bool:
        """Whether no change of the register, present or future, can add it to the list.

        Stable, as ``protocol.sweepable``: of a lower generation, or of a finished epoch.
        """
        if self.generation != state.generation:
            return self.generation < state.generation
        return state.frontier is not None and self.last <= state.frontier


def manifest_to_bytes(files: Sequence[CommittedFile]) -> bytes:
    """The content of a manifest."""
    value = {"format": FORMAT, "files": [[f.key, f.size, f.crc] for f in files]}
    return json.dumps(value, separators=(",", ":")).encode()


def manifest_from_bytes(content: bytes, where: str) -> list[CommittedFile]:
    """The files that a manifest names.

    Args:
        where: its key, for the error.

    Raises:
        CorruptionError: it is something else, or of a version that this release does not know.
    """
    try:
        found = fields(parse(content))
        version(found["format"], FORMAT, name="format")
        return [_committed_file(one) for one in of(list, found["files"])]
    except ValueError as error:
        raise CorruptionError(
            f"The manifest {where} cannot be read: {error}.",
            remedy=f"restore an older version of the object; or {NEWER}.",
        ) from error


def _committed_file(value: object) -> CommittedFile:
    key, size, crc = of(list, value)
    return CommittedFile(text(key), whole(size), text(crc))


class Manifests:
    """The manifests of one job."""

    def __init__(self, options: S3Options, job: str) -> None:
        self._objects = Objects(options.bucket)
        self._folder = options.state.key(FOLDER, f"job={job_text(job)}", "")

    def add(
        self,
        listed: Sequence[str],
        state: JobState,
        epoch: int,
        files: Sequence[CommittedFile],
        first: int | None = None,
    ) -> tuple[str, ...]:
        """Put the epoch's manifest and fold; what the register is to list then.

        Nothing counts until the register lists it.

        Args:
            first: the lowest epoch that a file is of, where what earlier ones left undecided joins.
        """
        if not files:
            return tuple(listed)
        name = self._put(0, epoch if first is None else first, epoch, state.generation, files)
        names = [*(_parsed(text) for text in listed), name]
        while len(last := _of_last_level(names)) >= FOLD:
            together = [file for one in last for file in self.read(str(one))]
            first, final = min(n.first for n in last), max(n.last for n in last)
            folded = self._put(last[0].level + 1, first, final, state.generation, together)
            names = [*names[: -len(last)], folded]
        return tuple(str(one) for one in names)

    def read(self, name: str) -> list[CommittedFile]:
        """The files that it names.

        Raises:
            UnavailableError: it is gone: it was folded meanwhile, and the register lists others.
            CorruptionError: it is something else.
        """
        body = self._objects.get(f"{self._folder}{name}", MANIFEST_MAX)
        if body is None:
            raise UnavailableError(f"The manifest {self._folder}{name} is not there any more.")
        return manifest_from_bytes(body.data, f"{self._folder}{name}")

    def names_of(self, listed: Sequence[str], epoch: int) -> set[str]:
        """The keys that are committed, of all manifests that are about this epoch."""
        about = [n for n in map(_parsed, listed) if n.first <= epoch <= n.last]
        return {file.key for name in about for file in self.read(str(name))}

    def forget(self, names: Sequence[str], cell: Cell) -> None:
        """Delete those among ``names`` that ``cell``, read after them, does not list and never will."""
        listed = set(cell.manifests)
        over = [
            name
            for name in names
            if name not in listed
            and (parsed := ManifestName.parse(name)) is not None
            and parsed.is_over(cell.state)
        ]
        self._objects.delete([f"{self._folder}{name}" for name in over])

    def all(self) -> list[str]:
        """Every manifest that is there, listed or not."""
        found = self._objects.list(self._folder)
        return [listed.key.removeprefix(self._folder) for listed in found]

    def _put(
        self, level: int, first: int, last: int, generation: int, files: Sequence[CommittedFile]
    ) -> ManifestName:
        name = ManifestName(level, first, last, generation, secrets.token_hex(8))
        if self._objects.put_if(f"{self._folder}{name}", manifest_to_bytes(files), None) is None:
            raise UnavailableError(f"The name {name} of a manifest is taken.")  # a doubled request
        return name


def _parsed(listed: str) -> ManifestName:
    name = ManifestName.parse(listed)
    if name is None:
        raise CorruptionError(
            f"The register lists a manifest that is none: {listed[:200]!a}.",
            remedy="do not delete the register: restore an older version of the object.",
        )
    return name


def _of_last_level(names: Sequence[ManifestName]) -> list[ManifestName]:
    """The manifests at the end that have the level of the last one, in order."""
    level = names[-1].level
    return list(takewhile(lambda name: name.level == level, reversed(names)))[::-1]
