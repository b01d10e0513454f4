"""The birth certificate of a job: a value, its text, and who keeps it. The rules are in ``births``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol

from abs_core.contracts import ByOption, Inventory, RegisterStore
from abs_core.errors import CorruptionError
from abs_core.strictjson import HIGHEST, NEWER, fields, parse, text, version, whole

VERSION = 1
_KIND = "abs birth certificate"


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a job's register held when a run was about to decide for the first time.

    Args:
        job: the register key.
        register: the register's id.
        place: where the register lies, for people; no secret (I9).
        generation: of the run.
        frontier: as it was then.
        deciding: the epoch that was about to be decided.
    """

    job: str
    register: str
    place: str
    generation: int
    frontier: int | None
    deciding: int


@dataclass(frozen=True, slots=True)
class Origin:
    """What the engine's checkpoint tells of a job.

    Args:
        certificate: None where there is none.
        readable: whether the checkpoint could be looked at; if not, ``certificate`` says nothing.
    """

    certificate: Certificate | None = None
    readable: bool = True


UNREADABLE = Origin(readable=False)


class CertificateStore(Protocol):
    """Where a job's certificate is kept: beside what the engine recovers from."""

    def read(self) -> Origin:
        """What is there now.

        Raises:
            CorruptionError: what is there is no certificate.
            UnavailableError: it could be read before, and cannot be now.
        """
        ...

    def write(self, certificate: Certificate) -> None:
        """Replace it, atomically and durably.

        Raises:
            TargetError: it may or may not be replaced.
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
    """Where the job's register lies, as far as the store tells."""
    return store.place(job) if isinstance(store, Inventory) else type(store).__name__


def shown_place_of(store: RegisterStore, job: str) -> str:
    """The same for people who look for it, with the option that says where it lies."""
    place = place_of(store, job)
    return f"{place} (option {store.option})" if isinstance(store, ByOption) else place


def to_text(certificate: Certificate) -> str:
    """One line of JSON; equal certificates give equal text."""
    value = {
        "kind": _KIND,
        "version": VERSION,
        "job": certificate.job,
        "register": certificate.register,
        "place": certificate.place,
        "generation": certificate.generation,
        "frontier": certificate.frontier,
        "deciding": certificate.deciding,
    }
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def from_text(content: str | bytes, where: str) -> Certificate:
    """The certificate that the text holds.

    Args:
        where: names the file, for the error.

    Raises:
        CorruptionError: it is none, or of a version that this release does not know.
    """
    try:
        found = fields(parse(content))
        if found["kind"] != _KIND:
            raise ValueError("it is no birth certificate")
        version(found["version"], VERSION)
        frontier = found["frontier"]
        return Certificate(
            job=text(found["job"]),
            register=text(found["register"]),
            place=text(found["place"]),
            generation=whole(found["generation"], 0, HIGHEST),
            frontier=None if frontier is None else whole(frontier, 0, HIGHEST),
            deciding=whole(found["deciding"], 0, HIGHEST),
        )
    except ValueError as error:
        raise CorruptionError(
            f"The birth certificate at {where} cannot be read: {error}.",
            remedy="restore the checkpoint that it is part of; or, once `abs register show` has shown "
            f"you that the job's register is there and complete, delete this one file; or {NEWER}.",
        ) from error
