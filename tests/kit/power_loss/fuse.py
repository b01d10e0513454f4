"""FUSE, as the kernel speaks it over ``/dev/fuse``: requests in, answers out. It needs no library.

The layout of messages is that of ``include/uapi/linux/fuse.h``, protocol 7.31. Nothing is cached by the
kernel, so each call of a process comes here, in order.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

DEVICE = Path("/dev/fuse")
MAX_WRITE = 1 << 17
_BIG_WRITES = 1 << 5
_MINOR = 31
_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<6Q10I")
_MNT_DETACH = 2


class Call(IntEnum):
    """What the kernel asks; others are answered by ENOSYS, which it knows how to live with."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    RENAME2 = 45


_SILENT = {Call.FORGET, Call.BATCH_FORGET, Call.INTERRUPT}


@dataclass(frozen=True, slots=True)
class Request:
    """One call.

    Args:
        node: the inode that it is about.
        pid: who asks; a thread's id.
        body: its arguments.
    """

    call: int
    node: int
    uid: int
    gid: int
    pid: int
    body: bytes

    def unpack(self, layout: str) -> tuple[int, ...]:
        """The numbers at the beginning of the body."""
        return struct.unpack_from(f"<{layout}", self.body)

    def names(self, after: int = 0) -> list[str]:
        """The names in the body, which end with a zero."""
        return [os.fsdecode(name) for name in self.body[after:].split(b"\0")[:-1]]


@dataclass(frozen=True, slots=True)
class Attributes:
    """Of an inode.

    Args:
        changed: in seconds since the epoch.
    """

    node: int
    size: int
    mode: int
    links: int
    uid: int
    gid: int
    changed: float

    def pack(self) -> bytes:
        seconds, nanos = int(self.changed), int(self.changed % 1 * 1e9)
        times = (seconds, seconds, seconds, nanos, nanos, nanos)
        owner = (self.mode, self.links, self.uid, self.gid, 0, 4096, 0)
        return _ATTR.pack(self.node, self.size, -(-self.size // 512), *times, *owner)

    def entry(self) -> bytes:
        """As the answer to a lookup: valid for no time."""
        return struct.pack("<4Q2I", self.node, 0, 0, 0, 0, 0) + self.pack()

    def answer(self) -> bytes:
        """As the answer to GETATTR."""
        return struct.pack("<Q2I", 0, 0, 0) + self.pack()


OPENED = struct.pack("<Q2I", 0, 0, 0)
WRITTEN = struct.Struct("<2I")
STATISTICS = struct.pack(
    "<5Q10I", *(1 << 28, 1 << 28, 1 << 28, 1 << 20, 1 << 20), *(4096, 255, 4096), *[0] * 7
)


def folder_entries(entries: list[tuple[int, int, str]], after: int, room: int) -> bytes:
    """From a number on, as far as there is room.

    Args:
        entries: inode, kind (as in ``st_mode >> 12``) and name of each.
    """
    packed = b""
    for number, (node, kind, name) in enumerate(entries[after:], start=after + 1):
        raw = os.fsencode(name)
        entry = struct.pack("<QQII", node, number, len(raw), kind) + raw
        entry += bytes(-len(entry) % 8)
        if len(packed) + len(entry) > room:
            break
        packed += entry
    return packed


def mount(folder: Path) -> int:
    """Mount a file system; returns the descriptor for ``serve``.

    Raises:
        OSError: there is no FUSE, or this user may not mount.
    """
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    libc = ctypes.CDLL(None, use_errno=True)
    source, kind = b"power-loss", b"fuse.power-loss"
    if libc.mount(source, os.fsencode(folder), kind, 0, options.encode()) != 0:
        number = ctypes.get_errno()
        os.close(device)
        raise OSError(number, f"FUSE cannot be mounted: {os.strerror(number)}")
    return device


def unmount(folder: Path) -> None:
    """Take the file system away, also from those who use it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(folder), _MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), f"{folder} cannot be unmounted")


def serve(device: int, answer: Callable[[Request], bytes]) -> None:
    """Answer all requests until the file system is unmounted; an ``OSError`` is an answer, too."""
    while True:
        try:
            message = os.read(device, MAX_WRITE + (1 << 13))
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                continue
            raise
        _, call, unique, node, uid, gid, pid, _ = _IN.unpack_from(message)
        request = Request(call, node, uid, gid, pid, message[_IN.size :])
        number, body = 0, b""
        try:
            body = _hello() if call == Call.INIT else answer(request)
        except OSError as error:
            number = -(error.errno or errno.EIO)
        if call not in _SILENT:
            _send(device, _OUT.pack(_OUT.size + len(body), number, unique) + body)


def _hello() -> bytes:
    # Version, read-ahead, flags, requests at once, MAX_WRITE, granularity of times.
    return struct.pack(
        "<4I2H2I2H8I", 7, _MINOR, 0, _BIG_WRITES, 16, 12, MAX_WRITE, 1, 0, 0, *[0] * 8
    )


def _send(device: int, message: bytes) -> None:
    try:
        os.write(device, message)
    except OSError as error:
        if error.errno != errno.ENOENT:  # who asked was killed, and waits no more
            raise
