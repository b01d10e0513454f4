"""The register in S3: one object per job, changed by ``If-Match`` and made by ``If-None-Match: *``.

The version is the object's ETag; a random number in each write makes it unique. Conditional requests
are sent once: after a lost reply the outcome is unknown, and callers read the object. Amazon S3 and
the servers that pass preflight check the condition and write atomically (Amazon S3 user guide,
"Conditional writes").
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from abs_clients.s3.objects import MAX_CELL_BYTES, Objects
from abs_core.births import rules as births
from abs_core.codec import reading_register, state_from_json, state_to_text
from abs_core.contracts import Conflict, Inventory, Stored, Version, in_time
from abs_core.errors import ContentionError, ProtocolError
from abs_core.model import JobState
from abs_core.registers import check_finished
from abs_core.strictjson import fields, of, parse, text, version
from abs_sinks.s3.layout import job_of, job_text
from abs_sinks.s3.options import S3Options

FORMAT = 1
FOLDER = "register"
_FIRST = "job="
"""Prefix of register objects' names: a job may be called ``..``."""


@dataclass(frozen=True, slots=True)
class RegisterObject:
    """The content of a register object.

    Args:
        manifests: under ``idempotent``, those that name all committed files.
        nonce: of this write.
        changed: when the server took it; not written.
    """

    state: JobState
    manifests: tuple[str, ...] = ()
    nonce: str = ""
    changed: float | None = field(default=None, compare=False)

    def to_bytes(self) -> bytes:
        value = {
            "format": FORMAT,
            "nonce": self.nonce,
            "manifests": self.manifests,
            "state": json.loads(state_to_text(self.state)),
        }
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str, job: str | None = None) -> RegisterObject:
        """The inverse of ``to_bytes``.

        Raises:
            CorruptionError: it cannot be read, a newer release wrote it, or it is another job's.
        """
        with reading_register(where, job):
            values = fields(parse(data))
            version(values["format"], FORMAT, name="format")
            manifests = tuple(text(name) for name in of(list, values["manifests"]))
            state, nonce = values["state"], text(values["nonce"])
        return cls(state_from_json(state, where, job), manifests, nonce)


Seen = dict[str, JobState]
"""The state that this process has loaded or stored last, by job; sweeps use it."""


class S3Register(Inventory):
    """A ``RegisterStore`` in the folder ``register`` of the state location.

    Args:
        seen: updated by each load and each change.
    """

    option = "statepath"

    def __init__(self, options: S3Options, seen: Seen | None = None) -> None:
        self._options = options
        self._objects = Objects(options.bucket)
        self._seen: Seen = {} if seen is None else seen
        # A change of the state must keep the cell's manifests.
        self._manifests: dict[Version, tuple[str, ...]] = {}

    def load(self, job: str) -> Stored | None:
        stored = self.cell(job)
        if stored is None:
            return None
        self._seen[job] = stored[0].state
        return Stored(stored[0].state, stored[1], stored[0].changed)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        manifests: tuple[str, ...] | None = ()
        if expected is not None:
            manifests = self._manifests_at(job, expected)
        # The cell has changed since that version was read: the condition would fail.
        if manifests is None:
            return Conflict()
        return self.swap(job, expected, state, manifests, deadline)

    def cell(self, job: str) -> tuple[RegisterObject, Version] | None:
        """The job's cell and its version, if any."""
        body = self._objects.get(self.key(job), MAX_CELL_BYTES)
        if body is None:
            return None
        content = RegisterObject.from_bytes(body.data, self.place(job), job)
        cell = replace(content, changed=body.changed.timestamp() if body.changed else None)
        self._manifests = {body.etag: cell.manifests}
        return cell, body.etag

    def present(self, job: str) -> RegisterObject | None:
        """The job's cell, at least as new as what was seen; None if none was seen, and none is there.

        Raises:
            RegisterLostError: it is gone, another one, or older than what was seen.
        """
        # Before the read: another thread may store a newer one meanwhile.
        seen = self._seen.get(job)
        stored = self.cell(job)
        cell = None if stored is None else stored[0]
        if seen is not None:
            why = births.went_back(None if cell is None else cell.state, seen)
            if why is not None:
                raise births.lost_error(job, why, self.place(job))
        return cell

    def swap(
        self,
        job: str,
        expected: Version | None,
        state: JobState,
        manifests: Sequence[str],
        deadline: float | None = None,
    ) -> Version | Conflict:
        """Compare-and-set state and manifests together; ``deadline`` as ``compare_and_set``."""
        cell = RegisterObject(state, tuple(manifests), secrets.token_hex(8))
        key, content = self.key(job), cell.to_bytes()
        in_time(job, deadline)  # reading the manifests may have taken long
        etag = self._objects.put_if(key, content, expected)
        if etag is None:
            return Conflict()
        self._manifests = {etag: cell.manifests}
        self._seen[job] = state
        return etag

    def jobs(self) -> Sequence[Stored]:
        """Every job in this state location, sorted by name."""
        stored = (self.load(job) for job in self.names())
        return [register for register in stored if register is not None]

    def others_on(self, target: str, job: str) -> Sequence[str]:
        """See ``Inventory``. It reads one of a batch job's tokens."""
        mine = job.partition("@")[0]
        others = {name.partition("@")[0]: name for name in self.names()}
        others.pop(mine, None)
        registers = ((name, self.load(key)) for name, key in sorted(others.items()))
        return [name for name, stored in registers if stored and stored.state.target == target]

    def retire(self, job: str) -> bool:
        """See ``Inventory``. Refused if the cell names committed files.

        Stop the job first: a live run would create the register again.
        """
        stored = self.cell(job)
        if stored is None:
            return False
        cell, version = stored
        check_finished(cell.state)
        self._check_movable(job, cell)
        # Not every server has conditional deletes: it is read twice, and the job must be stopped.
        again = self.cell(job)
        if again is None or again[1] != version:
            raise ContentionError(
                "The job's register has changed in the meantime: the job is running.",
                job=job,
                remedy="stop the job, then retire it.",
            )
        self._objects.delete([self.key(job)])
        return True

    def check_movable(self, job: str) -> None:
        """Raise ``ProtocolError`` if the cell names manifests, which the folder's readers need."""
        stored = self.cell(job)
        if stored is not None:
            self._check_movable(job, stored[0])

    def _check_movable(self, job: str, cell: RegisterObject) -> None:
        if cell.manifests:
            raise ProtocolError(
                "The job's register names the files that readers use (protocol idempotent).",
                job=job,
                remedy="copy what the job wrote to another place first, by a batch read; then delete "
                "the folder with its register.",
            )

    def _manifests_at(self, job: str, version: Version) -> tuple[str, ...] | None:
        if version not in self._manifests:
            stored = self.cell(job)
            if stored is None or stored[1] != version:
                return None
        return self._manifests[version]

    def names(self) -> Iterator[str]:
        """The key of every job in this state location."""
        first = self._options.state.key(FOLDER, _FIRST)
        for listed in self._objects.list(first):
            yield job_of(listed.key.removeprefix(first))

    def key(self, job: str) -> str:
        return self._options.state.key(FOLDER, f"{_FIRST}{job_text(job)}")

    def place(self, job: str) -> str:
        """Where the job's object is, for messages."""
        return f"s3://{self._options.state.bucket}/{self.key(job)}"
