"""Protocol idempotent: manifests, which name the committed files.

    <state>/manifests/job=<job>/<level>-<first>-<last>-<generation>-<random>

Each epoch puts one, under a unique name, if absent. The compare-and-set that finishes the epoch lists
it in the job's register, so readers see whole epochs only. Sixteen manifests of one level are folded
into one of the next: list and reads of a commit grow with the logarithm of the epochs, on average.
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
from abs_core.strictjson import fields, of, parse, reading, text, version, whole
from abs_sinks.s3.layout import job_text
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.register import RegisterObject

FORMAT = 1
FOLDER = "manifests"
FOLD = 16
MAX_MANIFEST_BYTES = 1 << 31
"""Largest manifest in bytes: about ten million files."""
_NAME = re.compile(r"([0-9]{1,9})-([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,18})-([0-9a-f]{16})")


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A data file that readers may see.

    Args:
        crc: CRC-64/NVME of its content, 16 hex digits; empty if not recorded.
    """

    key: str
    size: int
    crc: str


@dataclass(frozen=True, slots=True)
class ManifestName:
    """The name of a manifest: its epochs, its writer's generation, its level."""

    level: int
    first: int
    last: int
    generation: int
    nonce: str

    def __str__(self) -> str:
        return f"{self.level}-{self.first}-{self.last}-{self.generation}-{self.nonce}"

    @classmethod
    def parse(cls, text: str) -> ManifestName | None:
        """Parse a manifest's name; None if the name is not a manifest's."""
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        level, first, last, generation = (int(match[number]) for number in range(1, 5))
        name = cls(level, first, last, generation, match[5])
        return name if str(name) == text else None

    def is_over(self, state: JobState) -> bool:
        """Whether the register can never list it any more: of a lower generation or finished epoch."""
        if self.generation != state.generation:
            return self.generation < state.generation
        return state.frontier is not None and self.last <= state.frontier


def manifest_to_bytes(files: Sequence[CommittedFile]) -> bytes:
    """The content of a manifest."""
    value = {"format": FORMAT, "files": [[f.key, f.size, f.crc] for f in files]}
    return json.dumps(value, separators=(",", ":")).encode()


def manifest_from_bytes(content: bytes, where: str) -> list[CommittedFile]:
    """Parse a manifest.

    Args:
        where: its key, for the error.

    Raises:
        CorruptionError: it cannot be read, or a newer release wrote it.
    """
    with reading(f"The manifest {where}", "restore an older version of the object"):
        manifest = fields(parse(content))
        version(manifest["format"], FORMAT, name="format")
        files = (of(list, one) for one in of(list, manifest["files"]))
        return [CommittedFile(text(key), whole(size), text(crc)) for key, size, crc in files]


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
        """Put the epoch's manifest and fold; returns the names that the register must list.

        Args:
            first: the lowest epoch of a file, if files of earlier undecided epochs are included.
        """
        if not files:
            return tuple(listed)
        name = self._put(0, epoch if first is None else first, epoch, state.generation, files)
        names = [*(_parsed(text) for text in listed), name]
        while len(last := _of_last_level(names)) >= FOLD:
            together = [file for one in last for file in self.read(str(one))]
            first, final = min(n.first for n in last), max(n.last for n in last)
            folded = self._put(last[0].level + 1, first, final, state.generation, together)
            # The old ones are not deleted here: readers go by the register, which lists them until
            # it is changed.
            names = [*names[: -len(last)], folded]
        return tuple(str(one) for one in names)

    def read(self, name: str) -> list[CommittedFile]:
        """The files that a manifest names.

        Raises:
            UnavailableError: it was folded meanwhile, and the register lists others.
            CorruptionError: it cannot be read.
        """
        body = self._objects.get(f"{self._folder}{name}", MAX_MANIFEST_BYTES)
        if body is None:
            raise UnavailableError(f"The manifest {self._folder}{name} no longer exists.")
        return manifest_from_bytes(body.data, f"{self._folder}{name}")

    def names_of(self, listed: Sequence[str], epoch: int) -> set[str]:
        """The committed keys in all manifests that include this epoch."""
        about = [n for n in map(_parsed, listed) if n.first <= epoch <= n.last]
        return {file.key for name in about for file in self.read(str(name))}

    def forget(self, names: Sequence[str], cell: RegisterObject) -> None:
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
        """The names of all manifests, listed or not."""
        objects = self._objects.list(self._folder)
        return [listed.key.removeprefix(self._folder) for listed in objects]

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
            f"The register lists an invalid manifest: {listed[:200]!a}.",
            remedy="do not delete the register: restore an older version of the object.",
        )
    return name


def _of_last_level(names: Sequence[ManifestName]) -> list[ManifestName]:
    """The run of manifests at the end with the last one's level, in order."""
    level = names[-1].level
    return list(takewhile(lambda name: name.level == level, reversed(names)))[::-1]
