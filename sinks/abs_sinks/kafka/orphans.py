"""Aborts the open transactions of processes of this machine that have died.

Spark kills the worker of a failed task and retries it in another. The killed worker's transaction
would block ``read_committed`` readers for ``transaction.timeout.ms``. The driver must not abort it: a
live worker reuses its ids. So each process lists its ids in a file, locked (``flock``) until it ends:
a process that gets the lock knows that the owner is dead.

A dead process's transactions are aborted once the last epoch that it wrote is finished: then no
decision can name them (I4). On other machines, or if no task of the job follows on this one, the
transaction's timeout or the next run ends them.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from abs_clients.kafka.producer_ids import init_producer_id
from abs_clients.ownfolder import check_own, own_folder
from abs_core.contracts import Task
from abs_core.durable import of_a_dead_process
from abs_core.errors import AbsError
from abs_core.model import HandleName
from abs_core.strictjson import fields, parse, whole
from abs_sinks.kafka.open_transaction import id_name, with_open
from abs_sinks.kafka.options import KafkaOptions

MAX_IDS = 1_000
"""Most ids that are read from one process's file; a process has two or three."""

KEPT_SECONDS = 7 * 86_400
"""Age at which a file is deleted: by then brokers have forgotten its ids (their default, 7 days)."""

TIDIED, TIDY_SECONDS = ".tidied", 3600
"""File whose modification time is that of the last clean-up; seconds until the next."""

log = logging.getLogger(__name__)


def claims_folder() -> Path:
    """The folder of this user's claim files; raises OSError where it cannot be used."""
    return own_folder("kafka")


@dataclass(slots=True)
class Claim:
    """This process's file for one job and generation, locked until the process ends.

    If the folder cannot be used it does nothing, and timeouts and the next run abort.

    Args:
        folder: for tests; None: ``claims_folder``.
    """

    register: str
    job: str
    generation: int
    incarnation: str
    folder: Path | None = None
    _epoch: int = -1
    _made: int = 0
    _file: int | None = None

    def extend(self, epoch: int, made: int) -> bool:
        """Write the epoch and the number of ids made, before a transaction begins.

        Returns:
            whether the epoch is new.
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
            # Truncate first: a failed write must not leave the older epoch, which may be finished.
            # An empty or cut file is ignored.
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, content, 0)
        except OSError as error:
            log.debug("the claims of transactions cannot be written: %s", error)
        return begun

    def _open(self) -> int:
        folder = self._folder()
        _tidy(folder)
        path = folder / f"{_prefix(self.register, self.job)}{self.generation}-{self.incarnation}"
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Another process may hold the lock for a moment, until it sees that the file is empty.
            fcntl.flock(opened, fcntl.LOCK_EX)
        except OSError:
            os.close(opened)
            raise
        return opened

    def _folder(self) -> Path:
        if self.folder is None:
            return claims_folder()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_own(self.folder)
        return self.folder

    def release(self) -> None:
        """Unlock the file, as the process's end does: others may abort its transactions."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def orphaned(self, task: Task) -> Iterator[list[HandleName]]:
        """The ids of each dead process of this job whose transactions no decision can name any more.

        Its file is locked until the caller asks for the next; then it is deleted.

        Args:
            task: of this generation.
        """
        for path in self._others():
            with of_a_dead_process(path) as file:
                if file is None:
                    continue
                generation, incarnation = _parsed(path)
                claimed = _claimed(file.read(4096))
                if generation == self.generation and claimed is not None:
                    epoch, made = claimed
                    if task.frontier is None or epoch > task.frontier:
                        continue
                    yield [
                        id_name(self.register, self.job, generation, number, incarnation)
                        for number in range(made)
                    ]
                elif generation >= self.generation:
                    continue  # not to be read, or a newer run's: the timeout ends it
                path.unlink(missing_ok=True)  # of an older run: the sweep at the start of this one

    def _others(self) -> list[Path]:
        try:
            there = sorted(self._folder().glob(f"{_prefix(self.register, self.job)}*-*"))
        except OSError as error:
            log.debug("the claims of transactions cannot be looked at: %s", error)
            return []
        return [path for path in there if _parsed(path)[1] != self.incarnation]


def end_orphans(options: KafkaOptions, claim: Claim, task: Task) -> None:
    """Abort the transactions of this machine's dead processes.

    It raises nothing: the timeout or the next run ends the rest.
    """
    try:
        for ids in claim.orphaned(task):
            for name in with_open(options.kafka, ids):
                init_producer_id(options.kafka, str(name))
                log.info("transaction %s of a process that has died is aborted", name)
    except (AbsError, OSError) as error:
        log.warning(
            "transactions that dead processes of job %s left open are not aborted: %s",
            task.job,
            error,
        )


def _claimed(content: bytes) -> tuple[int, int] | None:
    """Epoch and number of ids of a claim; None: cut short by the process's end, it says nothing."""
    with suppress(ValueError):
        claim = fields(parse(content))
        return whole(claim["epoch"]), min(whole(claim["made"]), MAX_IDS)
    return None


def _tidy(folder: Path) -> None:
    """Delete old files of dead processes, of any job."""
    # Not in each process: thousands of files take it longer to look at than a small epoch.
    tidied = folder / TIDIED
    with suppress(FileNotFoundError):
        if abs(time.time() - tidied.stat().st_mtime) < TIDY_SECONDS:
            return
    tidied.touch()
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process deletes them, too
            if time.time() - path.stat().st_mtime > KEPT_SECONDS:
                with of_a_dead_process(path) as file:
                    if file is not None:
                        path.unlink(missing_ok=True)


def _prefix(register: str, job: str) -> str:
    """The prefix of a job's files on this machine since its boot."""
    # Other machines that share the folder have other names: a lock may be known to its machine only.
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        started = platform.node()
    return blake2b(f"{register}/{job}/{started}".encode(), digest_size=8).hexdigest() + "-"


def _parsed(path: Path) -> tuple[int, str]:
    """The generation and incarnation of a file."""
    _, generation, incarnation = path.name.split("-")
    return int(generation), incarnation
