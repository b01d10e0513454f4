"""Transactions that a process of this machine left open when it died: the next one aborts them.

Spark kills the worker of a task that fails before its sink does, and tries the task again in another.
What the first had open would hold readers with ``read_committed`` up for ``transaction.timeout.ms``,
while the query runs on. The driver must not end it: to take over an id ends whatever is open under it
by then, and a worker that lives uses its ids again. One that is dead does not. So each process keeps a
file that says which ids are its own, locked for as long as it lives (``flock``: the system lets go of
it, however a process ends); who gets the lock knows that they are nobody's any more.

Their transactions are aborted once all that the dead process was told to write is finished: then no
decision can name any of them (I4). On other machines, and where no task of the job follows on this
one, the transaction's timeout ends them, or the next run.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from abs_clients.kafka.producer_ids import init_producer_id
from abs_clients.kafka.transactions import State, describe
from abs_core.contracts import Task
from abs_core.errors import AbsError
from abs_core.model import HandleName
from abs_core.strictjson import fields, parse, whole
from abs_sinks.kafka.ids import id_name
from abs_sinks.kafka.options import KafkaOptions

MOST_IDS = 1_000
"""Of one process that are looked at; it has two or three."""

KEPT_SECONDS = 7 * 86_400
"""A dead process's file is of no use once brokers have forgotten its ids."""

log = logging.getLogger(__name__)


def claims_folder() -> Path:
    """Of this user, and for files that go with the machine."""
    return Path(tempfile.gettempdir()) / f"abs-sinks-{os.getuid()}" / "kafka"


@dataclass(frozen=True, slots=True)
class Left:
    """What a dead process has left.

    Args:
        epoch: the last that it was told to write.
        ids: all that it has ever used.
    """

    epoch: int
    ids: tuple[HandleName, ...]

    def is_over(self, task: Task) -> bool:
        """Whether no decision can name a transaction of theirs: the task is of their generation."""
        return task.frontier is not None and self.epoch <= task.frontier


@dataclass(slots=True)
class Claim:
    """This process's file for one job and generation; locked until the process ends.

    Where the folder cannot be used it does nothing: then timeouts and the next run do.
    """

    register: str
    job: str
    generation: int
    incarnation: str
    folder: Path = field(default_factory=claims_folder)
    _epoch: int = -1
    _made: int = 0
    _file: int | None = None

    def extend(self, epoch: int, made: int) -> bool:
        """Note, before a transaction begins, which ids there are and which epoch is being written.

        Args:
            made: how many ids this process has had.

        Returns:
            whether this is the first that is heard of the epoch.
        """
        begun = epoch > self._epoch
        noted = max(epoch, self._epoch), made
        if self._file is not None and noted == (self._epoch, self._made):
            return begun
        self._epoch, self._made = noted
        try:
            if self._file is None:
                self._file = self._open()
            content = json.dumps({"epoch": self._epoch, "made": made}).encode()
            # Before it is written, so that no failure leaves the note before: that an epoch is over
            # which is being written. A file that is empty, or cut short, says nothing.
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, content, 0)
        except OSError as error:
            log.debug("%s cannot be written: %s", self.folder, error)
        return begun

    def _open(self) -> int:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(self.folder):
            raise PermissionError(f"{self.folder} is somebody else's")
        self._tidy()
        path = (
            self.folder / f"{_prefix(self.register, self.job)}{self.generation}-{self.incarnation}"
        )
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Who looks at a file without an owner lets go of one that is empty at once.
            fcntl.flock(opened, fcntl.LOCK_EX)
        except OSError:
            os.close(opened)
            raise
        return opened

    def _tidy(self) -> None:
        """Delete what dead processes have left of jobs that run here no more."""
        for path in self.folder.iterdir():
            if _age(path) > KEPT_SECONDS:
                with _taken(path) as content:
                    if content is not None:
                        path.unlink(missing_ok=True)

    def release(self) -> None:
        """Let go of it, as if the process had ended: what it has open may then be aborted."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def orphaned(self, task: Task) -> Iterator[Left]:
        """What dead processes of the same job have left and no decision can name any more.

        While one is being looked at nobody else gets it; its file goes when the caller comes back
        for the next.
        """
        for path in self._others():
            with _taken(path) as content:
                if content is None:
                    continue
                generation, incarnation = _parsed(path)
                left = self._left(content, generation, incarnation)
                if left is not None and generation == self.generation:
                    if not left.is_over(task):
                        continue
                    yield left
                elif generation >= self.generation:
                    continue  # not to be read, or a newer run's: the timeout ends it
                path.unlink(missing_ok=True)  # of an older run: the sweep at the start of this one

    def _others(self) -> list[Path]:
        try:
            if not _is_ours(self.folder):
                return []
            there = sorted(self.folder.glob(f"{_prefix(self.register, self.job)}*-*"))
        except OSError as error:
            log.debug("%s cannot be looked at: %s", self.folder, error)
            return []
        return [path for path in there if _parsed(path)[1] != self.incarnation]

    def _left(self, content: bytes, generation: int, incarnation: str) -> Left | None:
        with suppress(ValueError):  # cut short by the process's end: it says nothing
            found = fields(parse(content))
            whose = self.register, self.job, generation
            made = min(whole(found["made"]), MOST_IDS)
            return Left(
                whole(found["epoch"]), tuple(id_name(*whose, n, incarnation) for n in range(made))
            )
        return None


def end_orphans(options: KafkaOptions, claim: Claim, task: Task) -> int:
    """Abort what dead processes of this machine have left; how many transactions that were.

    Nothing is raised: what is not aborted now ends by its timeout, or with the next run.
    """
    ended = 0
    try:
        for left in claim.orphaned(task):
            now = describe(options.kafka, [str(name) for name in left.ids])
            for name in left.ids:
                seen = now.get(str(name))
                if seen is not None and seen.state is State.ONGOING:
                    init_producer_id(options.kafka, str(name))
                    log.info("transaction %s of a process that has died is aborted", name)
                    ended += 1
    except (AbsError, OSError) as error:
        log.warning("what dead processes of job %s have left is not aborted: %s", task.job, error)
    return ended


@contextmanager
def _taken(path: Path) -> Iterator[bytes | None]:
    """The content of a file whose process is dead, locked; None where it is alive, or has gone."""
    try:
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = os.pread(opened, 4096, 0)
        except OSError:
            yield None
        else:
            yield content
    finally:
        os.close(opened)


def _is_ours(folder: Path) -> bool:
    """Whether nobody else may put files there."""
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def _prefix(register: str, job: str) -> str:
    """Of a job's files on this machine since it was started.

    Where the folder is shared with other machines their files have other names: whether a process
    there is alive is not told by a lock that may be known to its machine only.
    """
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        started = platform.node()
    return blake2b(f"{register}/{job}/{started}".encode(), digest_size=8).hexdigest() + "-"


def _parsed(path: Path) -> tuple[int, str]:
    """Generation and incarnation."""
    _, generation, incarnation = path.name.split("-")
    return int(generation), incarnation


def _age(path: Path) -> float:
    with suppress(OSError):
        return time.time() - path.stat().st_mtime
    return 0.0
