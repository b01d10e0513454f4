"""What a disk may hold after the power was cut, by the record of what was done: see ``disk``.

What POSIX promises, and no more: a file's bytes are there after fsync of the file, a name after fsync
of its folder. Of what was not synced each write may be there, or not, or any part of it, or its
length without its bytes; each change of names may be there or not. Two things are taken for sure, as
all file systems of Linux in use do them: a rename takes the old name only if it gives the new one,
and what was synced stays whole.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from tests.kit.power_loss.disk import ROOT, Event, Made, Named, Resized, Said, Wrote, write_at

PIECE = 32
"""Bytes that are written together, or not: fewer than any disk does it with."""
SECTOR = 512
"""What disks do write together; PostgreSQL counts on it for one file of its own, ``pg_control``."""
BEGIN = "begin "

Image = dict[str, bytes | None]
"""Content of each file by its path, and None of each folder."""


class Fate(Enum):
    """What becomes of a write that was not synced."""

    KEPT = auto()
    LOST = auto()
    ZEROS = auto()
    """The file is as long as it was; bytes that made it longer are not there."""
    TORN = auto()
    """Some pieces of it."""


@dataclass(frozen=True)
class Cut:
    """Which of what was not synced is kept.

    Args:
        names: whether changes of names are kept; None: each as ``rng`` says.
        writes: the same of bytes.
        piece: how many bytes are written together, or not.
    """

    names: bool | None = None
    writes: Fate | None = None
    piece: int = PIECE
    rng: random.Random = field(default_factory=random.Random)

    def keeps(self) -> bool:
        """Whether the next change of names is kept."""
        return self.rng.random() < 0.5 if self.names is None else self.names

    def fate(self) -> Fate:
        """Of the next write."""
        return self.rng.choice(list(Fate)) if self.writes is None else self.writes


def cuts(seed: int, count: int, piece: int = PIECE) -> Iterator[Cut]:
    """The plain ones, and so many at random."""
    for names in (True, False):
        for writes in (Fate.KEPT, Fate.LOST, Fate.ZEROS):
            yield Cut(names, writes, piece)
    for number in range(count):
        yield Cut(piece=piece, rng=random.Random(f"{seed} {number}"))


@dataclass(slots=True)
class _File:
    synced: bytes = b""
    pending: list[Wrote | Resized] = field(default_factory=list)

    def content(self, cut: Cut) -> bytes:
        content = bytearray(self.synced)
        for change in self.pending:
            if isinstance(change, Resized):
                if cut.fate() is not Fate.LOST:
                    del content[change.size :]
                    content.extend(bytes(change.size - len(content)))
                continue
            _apply(content, change, cut)
        return bytes(content)


def _apply(content: bytearray, change: Wrote, cut: Cut) -> None:
    fate, end = cut.fate(), change.offset + len(change.data)
    if fate is Fate.KEPT:
        write_at(content, change.offset, change.data)
    if fate is Fate.ZEROS and end > len(content):
        content.extend(bytes(end - len(content)))
    if fate is Fate.TORN:
        for at in range(-change.offset % cut.piece - cut.piece, len(change.data), cut.piece):
            begin, piece = max(at, 0), change.data[max(at, 0) : at + cut.piece]
            if cut.rng.random() < 0.5:
                write_at(content, change.offset + begin, piece)


@dataclass(slots=True)
class _Folder:
    synced: dict[str, int] = field(default_factory=dict)
    pending: list[Named] = field(default_factory=list)


def _set(names: dict[str, int], change: Named) -> None:
    if change.node is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.node


class Platter:
    """What is on the disk for sure, and what is on its way, at one moment of the record.

    Args:
        names_files: fsync of a file makes its name durable, too, as in ext4, XFS and btrfs.
            PostgreSQL's checkpoints count on it.
    """

    def __init__(self, *, names_files: bool = False) -> None:
        self._names_files = names_files
        self._files: dict[int, _File] = {}
        self._folders: dict[int, _Folder] = {}
        self.said: list[str] = []

    def take(self, event: Event) -> None:
        """The next event of the record."""
        if isinstance(event, Made):
            if event.is_folder:
                self._folders[event.node] = _Folder()
            else:
                self._files[event.node] = _File()
        elif isinstance(event, Wrote | Resized):
            self._files[event.node].pending.append(event)
        elif isinstance(event, Named):
            self._folders[event.folder].pending.append(event)
        elif isinstance(event, Said):
            self.said.append(event.text)
        elif event.node in self._files:
            file = self._files[event.node]
            file.synced = file.content(Cut(writes=Fate.KEPT))
            file.pending.clear()
            if self._names_files:
                self._give_its_name(event.node)
        else:
            self._sync_folder(self._folders[event.node])

    def _sync_folder(self, folder: _Folder) -> None:
        for change in folder.pending:
            _set(folder.synced, change)
            if change.node is None:
                self._give_the_other_name(change)
        folder.pending.clear()

    def _give_the_other_name(self, taken: Named) -> None:
        """Of a rename into another folder, whose old name is gone for sure."""
        for folder in self._folders.values():
            for change in [c for c in folder.pending if c.change == taken.change and c.node]:
                if change.folder != taken.folder:
                    _set(folder.synced, change)
                    folder.pending.remove(change)

    def _give_its_name(self, node: int) -> None:
        """And those of the folders above it, with all that became of these names before."""
        for number, folder in self._folders.items():
            names = {change.name for change in folder.pending if change.node == node}
            changes = {change.change for change in folder.pending if change.name in names}
            for each in self._folders.values() if changes else ():
                for change in [c for c in each.pending if c.change in changes]:
                    _set(each.synced, change)
                    each.pending.remove(change)
            if changes:
                self._give_its_name(number)

    def image(self, cut: Cut, folder: str) -> Image | None:
        """What a folder at the disk's root holds if the power is cut now; None: it is not there."""
        pending = {c.change for folder in self._folders.values() for c in folder.pending}
        kept = {change for change in sorted(pending) if cut.keeps()}
        node = self._names(ROOT, kept).get(folder)
        if node is None:
            return None
        image: Image = {}
        self._collect(node, "", kept, cut, image)
        return image

    def _names(self, folder: int, kept: set[int]) -> dict[str, int]:
        names = dict(self._folders[folder].synced)
        for change in self._folders[folder].pending:
            if change.change in kept:
                _set(names, change)
        return names

    def _collect(self, node: int, path: str, kept: set[int], cut: Cut, image: Image) -> None:
        for name, child in sorted(self._names(node, kept).items()):
            below = f"{path}/{name}" if path else name
            if child in self._files:
                image[below] = self._files[child].content(cut)
            else:
                image[below] = None
                self._collect(child, below, kept, cut, image)


def images(
    record: Sequence[Event],
    folder: str,
    count: int,
    seed: int,
    *,
    moments: Container[int] | None = None,
    piece: int = PIECE,
    names_files: bool = False,
) -> Iterator[tuple[int, list[str], Image]]:
    """All that a folder may hold when the power is cut behind each event; each once.

    Args:
        folder: at the disk's root. Its part of the record is what follows ``begin FOLDER``, which was
            said, up to the next ``begin``.
        count: random cuts at each event, besides the plain ones.
        moments: numbers of the events behind which the power is cut; None: each.
        piece: see ``Cut``.
        names_files: see ``Platter``.

    Returns:
        the number of the event, what was said until then, and the image.
    """
    platter = Platter(names_files=names_files)
    seen: set[int] = set()
    looks = False
    for number, event in enumerate(record):
        platter.take(event)
        if isinstance(event, Said) and event.text.startswith(BEGIN):
            looks = event.text == f"{BEGIN}{folder}"
            platter.said.clear()
        if not looks or (moments is not None and number not in moments):
            continue
        for cut in cuts(seed, count, piece):
            image = platter.image(cut, folder)
            # What was said counts: one image may be right before a promise, and wrong after it.
            key = hash((len(platter.said), *sorted((image or {}).items(), key=_path)))
            if image is not None and key not in seen:
                seen.add(key)
                yield number, list(platter.said), image


def _path(item: tuple[str, bytes | None]) -> str:
    return item[0]


def put(image: Image, folder: Path) -> Path:
    """Write an image into an empty folder, as a disk that is mounted again."""
    folder.mkdir(parents=True)
    for path, content in image.items():
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)
    return folder
