"""The birth certificate of a job: its value, its text format, and the interface of its store."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Protocol

from abs_core.contracts import Inventory, RegisterStore
from abs_core.strictjson import MAX_NUMBER, fields, parse, reading, text, version, whole

VERSION = 1
_KIND = "abs birth certificate"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Key fields of a job's register, taken before a run's first decision.

    Args:
        job: the register key.
        register: the register's id.
        place: the register's location for display, without secrets (I9).
        deciding: the epoch of that decision.
    """

    job: str
    register: str
    place: str
    generation: int
    frontier: int | None
    deciding: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The content of the engine's checkpoint about a job.

    Args:
        certificate: None if there is none.
        readable: whether the checkpoint could be read; if not, ``certificate`` has no meaning.
    """

    certificate: Certificate | None = None
    readable: bool = True


UNREADABLE = Origin(readable=False)


class CertificateStore(Protocol):
    """Stores a job's certificate, beside the state that the engine recovers from."""

    def read(self) -> Origin:
        """Read the present certificate.

        Raises:
            CorruptionError: the content is not a certificate.
            UnavailableError: it was readable before, and is not now.
        """
        ...

    def write(self, certificate: Certificate) -> None:
        """Replace it, atomically and durably.

        Raises:
            TargetError: the outcome is unknown.
        """
        ...


class MemoryCertificates:
    """A ``CertificateStore`` in this process's memory, for tests."""

    def __init__(self, certificate: Certificate | None = None) -> None:
        self.certificate = certificate

    def read(self) -> Origin:
        return Origin(self.certificate)

    def write(self, certificate: Certificate) -> None:
        self.certificate = certificate


def place_of(store: RegisterStore, job: str) -> str:
    """The location of the job's register for display; the store's type if it gives none."""
    return store.place(job) if isinstance(store, Inventory) else type(store).__name__


def to_text(certificate: Certificate) -> str:
    """One line of JSON; equal certificates give equal text."""
    value = {"kind": _KIND, "version": VERSION, **asdict(certificate)}
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def from_text(content: str | bytes, where: str) -> Certificate:
    """Inverse of ``to_text``.

    Args:
        where: names the file in errors.

    Raises:
        CorruptionError: it is not a certificate, or its version is unknown.
    """
    with reading(
        f"The birth certificate at {where}",
        "restore the checkpoint that contains it; or, if `abs register show` shows that the job's "
        "register exists and is complete, delete this one file",
    ):
        document = fields(parse(content))
        if document["kind"] != _KIND:
            raise ValueError("it is not a birth certificate")
        version(document["version"], VERSION)
        frontier = document["frontier"]
        return Certificate(
            job=text(document["job"]),
            register=text(document["register"]),
            place=text(document["place"]),
            generation=whole(document["generation"], 0, MAX_NUMBER),
            frontier=None if frontier is None else whole(frontier, 0, MAX_NUMBER),
            deciding=whole(document["deciding"], 0, MAX_NUMBER),
        )
