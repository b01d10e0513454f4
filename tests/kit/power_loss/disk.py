"""A file system in memory that keeps a record of each write, each name and each fsync: see ``images``.

``PowerDisk`` mounts it by FUSE, in a process of its own. A look at the name ``@TEXT`` puts TEXT into
the record: so a program says what it has promised by then. ``@kill PID N`` kills a process before its
next change after N more.
"""

from __future__ import annotations

import errno
import os
import pickle
import signal
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from abs_testing.case import within
from tests.kit.power_loss import fuse
from tests.kit.power_loss.fuse import Attributes, Call, Request

ROOT = 1
REPOSITORY = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Wrote:
    """Bytes were written; they may be lost until the file is synced."""

    node: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resized:
    """A file was cut, or made longer by zeros."""

    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Named:
    """A name in a folder is now this inode's, or nobody's (None).

    Args:
        change: the number of the change; a rename takes one name and gives another, in one change.
    """

    folder: int
    name: str
    node: int | None
    change: int


@dataclass(frozen=True, slots=True)
class Synced:
    """fsync of a file, or of a folder."""

    node: int


@dataclass(frozen=True, slots=True)
class Said:
    """What a program has said."""

    text: str


@dataclass(frozen=True, slots=True)
class Made:
    """A file or a folder, without a name yet."""

    node: int
    is_folder: bool


Event = Wrote | Resized | Named | Synced | Said | Made


@dataclass(slots=True)
class Node:
    """A file or a folder, as processes see it."""

    number: int
    mode: int
    uid: int
    gid: int
    content: bytearray = field(default_factory=bytearray)
    entries: dict[str, int] = field(default_factory=dict)
    links: int = 1
    changed: float = field(default_factory=time.time)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def attributes(self) -> Attributes:
        links = 2 if self.is_folder else self.links
        size = len(self.content)
        return Attributes(self.number, size, self.mode, links, self.uid, self.gid, self.changed)


class Tree:
    """Answers the kernel, and keeps the record."""

    def __init__(self) -> None:
        self.nodes = {ROOT: Node(ROOT, stat.S_IFDIR | 0o755, os.getuid(), os.getgid())}
        self.record: list[Event] = [Made(ROOT, is_folder=True)]
        self._changes = 0
        self._doomed: dict[int, int] = {}
        """Of a process that is to be killed: how many changes it may make before."""

    def answer(self, request: Request) -> bytes:
        """See ``fuse.serve``."""
        name = Call(request.call).name.lower() if request.call in {*Call} else ""
        method = getattr(self, f"_{name}", None)
        if method is None:
            raise OSError(errno.ENOSYS, "not there")
        if request.call in CHANGES:
            self._doom(request.pid)
        found: bytes = method(request, self.nodes[request.node] if request.node else None)
        return found

    def _doom(self, pid: int) -> None:
        left = self._doomed.get(pid)
        if left == 0:
            os.kill(pid, signal.SIGKILL)
            raise OSError(errno.EIO, "killed")  # it dies before it hears that
        if left is not None:
            self._doomed[pid] = left - 1

    def _lookup(self, request: Request, folder: Node) -> bytes:
        [name] = request.names()
        if name.startswith("@"):
            words = name[1:].split(" ")
            if words[0] == "kill":
                self._doomed[int(words[1])] = int(words[2])
            else:
                self.record.append(Said(name[1:]))
        return self._child(folder, name).attributes().entry()

    def _getattr(self, request: Request, node: Node) -> bytes:
        return node.attributes().answer()

    def _setattr(self, request: Request, node: Node) -> bytes:
        valid, _, _, size = request.unpack("IIQQ")
        mode, _, uid, gid = struct_at(request.body, 68, 4)
        if valid & 1:
            node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        if valid & 2:
            node.uid = uid
        if valid & 4:
            node.gid = gid
        if valid & 8:
            _resize(node.content, size)
            self.record.append(Resized(node.number, size))
        node.changed = time.time()
        return node.attributes().answer()

    def _mkdir(self, request: Request, folder: Node) -> bytes:
        mode, _ = request.unpack("II")
        [name] = request.names(8)
        return self._make(request, folder, name, stat.S_IFDIR | mode).attributes().entry()

    def _create(self, request: Request, folder: Node) -> bytes:
        _, mode, _, _ = request.unpack("4I")
        [name] = request.names(16)
        made = self._make(request, folder, name, mode)
        return made.attributes().entry() + fuse.OPENED

    def _unlink(self, request: Request, folder: Node) -> bytes:
        [name] = request.names()
        self._child(folder, name).links -= 1
        self._name(folder, name, None)
        return b""

    def _rmdir(self, request: Request, folder: Node) -> bytes:
        [name] = request.names()
        if self._child(folder, name).entries:
            raise OSError(errno.ENOTEMPTY, name)
        self._name(folder, name, None)
        return b""

    def _rename(self, request: Request, folder: Node) -> bytes:
        [target] = request.unpack("Q")
        return self._move(folder, self.nodes[target], *request.names(8))

    def _rename2(self, request: Request, folder: Node) -> bytes:
        target, flags = request.unpack("QI")
        old, new = request.names(16)
        if flags > 1:
            raise OSError(errno.EINVAL, "only RENAME_NOREPLACE")
        if flags and new in self.nodes[target].entries:
            raise OSError(errno.EEXIST, new)
        return self._move(folder, self.nodes[target], old, new)

    def _move(self, folder: Node, target: Node, old: str, new: str) -> bytes:
        moved = self._child(folder, old)
        if replaced := target.entries.get(new):
            if replaced == moved.number:
                return b""
            self.nodes[replaced].links -= 1
        self._name(target, new, moved.number)
        self._name(folder, old, None, same_change=True)
        return b""

    def _link(self, request: Request, folder: Node) -> bytes:
        [old] = request.unpack("Q")
        [name] = request.names(8)
        if name in folder.entries:
            raise OSError(errno.EEXIST, name)
        self.nodes[old].links += 1
        self._name(folder, name, old)
        return self.nodes[old].attributes().entry()

    def _open(self, request: Request, node: Node) -> bytes:
        return fuse.OPENED

    _opendir = _open

    def _read(self, request: Request, node: Node) -> bytes:
        _, offset, size = request.unpack("QQI")
        return bytes(node.content[offset : offset + size])

    def _write(self, request: Request, node: Node) -> bytes:
        _, offset, size = request.unpack("QQI")
        data = request.body[40 : 40 + size]
        write_at(node.content, offset, data)
        node.changed = time.time()
        self.record.append(Wrote(node.number, offset, data))
        return fuse.WRITTEN.pack(size, 0)

    def _readdir(self, request: Request, folder: Node) -> bytes:
        _, offset, size = request.unpack("QQI")
        kinds = {name: self.nodes[number].mode >> 12 for name, number in folder.entries.items()}
        entries = [(number, kinds[name], name) for name, number in folder.entries.items()]
        return fuse.folder_entries(entries, offset, size)

    def _fsync(self, request: Request, node: Node) -> bytes:
        self.record.append(Synced(node.number))
        return b""

    _fsyncdir = _fsync

    def _statfs(self, request: Request, node: Node) -> bytes:
        return fuse.STATISTICS

    def _nothing(self, request: Request, node: Node) -> bytes:
        return b""

    _flush = _release = _releasedir = _destroy = _forget = _batch_forget = _interrupt = _nothing

    def _child(self, folder: Node, name: str) -> Node:
        if name not in folder.entries:
            raise OSError(errno.ENOENT, name)
        return self.nodes[folder.entries[name]]

    def _make(self, request: Request, folder: Node, name: str, mode: int) -> Node:
        if name in folder.entries:
            raise OSError(errno.EEXIST, name)
        made = Node(len(self.nodes) + 1, mode, request.uid, request.gid)
        self.nodes[made.number] = made
        self.record.append(Made(made.number, made.is_folder))
        self._name(folder, name, made.number)
        return made

    def _name(
        self, folder: Node, name: str, node: int | None, *, same_change: bool = False
    ) -> None:
        if node is None:
            del folder.entries[name]
        else:
            folder.entries[name] = node
        folder.changed = time.time()
        self._changes += not same_change
        self.record.append(Named(folder.number, name, node, self._changes))


CHANGES = {
    *(Call.SETATTR, Call.MKDIR, Call.CREATE, Call.UNLINK, Call.RMDIR, Call.RENAME, Call.RENAME2),
    *(Call.LINK, Call.WRITE, Call.FSYNC, Call.FSYNCDIR),
}
"""Calls before which a process may be killed."""


def struct_at(body: bytes, offset: int, count: int) -> list[int]:
    """So many numbers of four bytes."""
    return [
        int.from_bytes(body[at : at + 4], "little") for at in range(offset, offset + 4 * count, 4)
    ]


def write_at(content: bytearray, offset: int, data: bytes) -> None:
    """Write as pwrite(2) does: a hole is zeros."""
    if len(content) < offset:
        _resize(content, offset)
    content[offset : offset + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


class PowerDisk:
    """A mounted disk whose power can be cut at each moment, afterwards. A context manager.

    Skips the test where FUSE cannot be mounted: then nothing was tried, and that is said.

    Args:
        folder: empty; for the mount point and the record.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "disk"
        self._record = folder / "record"

    def __enter__(self) -> Self:
        self.root.mkdir()
        command = [sys.executable, "-m", "tests.kit.power_loss", str(self.root), str(self._record)]
        self._process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
        within(30, lambda: self.root.is_mount() or self._process.poll() is not None)
        if self._process.poll() is not None:
            said = self._process.communicate()[1].strip().splitlines()[-1]
            pytest.skip(f"power loss was not tried: {said}")
        return self

    def __exit__(self, *_: object) -> None:
        fuse.unmount(self.root)
        try:
            self._process.communicate(timeout=5)
        except subprocess.TimeoutExpired:  # a file of it is still open
            self._process.terminate()
            self._process.communicate()

    def say(self, text: str) -> None:
        """Put a text into the record; at most 200 characters."""
        (self.root / f"@{text}").exists()

    def record(self) -> list[Event]:
        """All that happened; of a disk that is unmounted."""
        found: list[Event] = pickle.loads(self._record.read_bytes())
        return found
