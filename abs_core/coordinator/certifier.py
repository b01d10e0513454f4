"""Reads and writes birth certificates for a coordinator, by the rules in ``abs_core.births``."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from abs_core.births import rules as births
from abs_core.births.parent import note, noted, now, parent_key, token_of
from abs_core.certificate import Certificate, CertificateStore, Origin, place_of
from abs_core.contracts import Inventory, RegisterStore
from abs_core.coordinator.cell import RegisterCell
from abs_core.errors import ProtocolError, TargetError
from abs_core.events import NotCertified, Observer
from abs_core.model import JobState, NotedToken
from abs_core.patience import Patience
from abs_core.protocol import RunIdentity


@dataclass(slots=True)
class Certifier:
    """The certifier of one run in one process; see ``Coordinator`` for the arguments."""

    _who: RunIdentity
    _cell: RegisterCell
    _store: RegisterStore
    _certificates: CertificateStore | None
    _is_empty: Callable[[], bool]
    _patience: Patience
    _observe: Observer
    _certified: bool = False
    _told: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether there is a place for certificates."""
        return self._certificates is not None

    def look_around(self, epoch: int) -> None:
        """Check, before a register is minted, that the job's checkpoint was not deleted.

        Raises:
            IdentityError: it was, and the target is not empty.
        """
        store, who = self._store, self._who
        if who.checkpoint is None or not isinstance(store, Inventory):
            return

        def others() -> list[JobState]:
            jobs = [store.load(name) for name in store.others_on(who.target, who.job)]
            return [stored.state for stored in jobs if stored is not None]

        refused = births.begun_elsewhere(self._patience.retry(others), who, epoch)
        if refused is not None and not self._target_is_empty():
            raise refused.error

    def _target_is_empty(self) -> bool:
        try:
            return self._patience.retry(self._is_empty)
        except TargetError as error:
            if error.retryable:
                raise
            return False  # a role may be allowed to write to a table but not to read it

    def certify(self, mine: Callable[[], JobState], epoch: int, *, gaps_allowed: bool) -> None:
        """Check the certificate before this process's first decision, and write a new one.

        If it cannot be written, a warning is logged once, unless rows could then be written twice.

        Args:
            mine: reads the register, and raises ``FencedError`` if another run holds the generation.

        Raises:
            ProtocolError: the register does not match the certificate.
            RegisterLostError: the register may be lost, and nothing can rule this out.
            CorruptionError: the content is not a certificate.
            TargetError: it cannot be written, and the gap rule could not detect a register that went
                back.
        """
        if self._certificates is None or self._certified:
            return
        who, place = self._who, self._cell.shown_place
        origin = self._patience.retry(self._certificates.read)
        # The register is read after the certificate: a newer run writes its own there, and beside that
        # an older read would look like a register that went back.
        state = mine()
        error = births.still_there(state, who, origin, epoch, place)
        if error is not None:
            raise error
        failed = self._write(self._certificates, state, epoch)
        if failed is not None:
            if gaps_allowed and origin.readable:
                raise _unsafe(failed, state.job, epoch, "Nothing of this epoch is committed")
            refused = births.uncertified(state, who, origin, epoch, place, failed.what)
            if refused is not None:
                raise refused.error from failed
            self._warn(failed)
        # If it could not even be read, it is tried only once.
        self._certified = failed is None or not origin.readable

    def note(self, state: JobState, epoch: int) -> None:
        """Record an epoch in the certificate, for jobs that may leave out epochs.

        Raises:
            TargetError: it cannot be written. The next start recognises the epoch.
        """
        if self._certificates is None:
            return
        failed = self._write(self._certificates, state, epoch)
        if failed is None:
            return
        if self._patience.retry(self._certificates.read).readable:
            raise _unsafe(failed, state.job, epoch, "The epoch is committed")
        self._warn(failed)

    def _write(
        self, certificates: CertificateStore, state: JobState, epoch: int
    ) -> TargetError | None:
        """Write the certificate; return the error if that failed."""
        certificate = births.certify(state, self._cell.place, epoch)
        try:
            self._patience.retry(lambda: certificates.write(certificate))
        except TargetError as error:
            return error
        return None

    def _warn(self, failed: TargetError) -> None:
        if not self._told:
            self._observe(NotCertified(self._who.job, str(failed)))
        self._told = True


def _unsafe(failed: TargetError, job: str, epoch: int, done: str) -> TargetError:
    return type(failed)(
        f"The birth certificate cannot be written. {failed.what} {done}; but where epochs may be left "
        "out nothing else tells of a register that goes back, so the run ends here.",
        job=job,
        epoch=epoch,
        remedy="let the driver's Python write into the checkpoint, then restart the query.",
    )


EPOCH = 0
"""The number of a batch write's only epoch."""


class ParentCertificates:
    """A batch write's ``CertificateStore``: the parent record of its job, in the register's own system.

    Args:
        store: holds the token's register and the parent record.
        job: the token's register key.
        target: of the write.
        patience: with the store.
    """

    def __init__(self, store: RegisterStore, job: str, target: str, patience: Patience) -> None:
        token = token_of(job)
        assert token is not None, f"{job} is no batch write's"
        self._token = token
        self._store = store
        self._job = job
        self._target = target
        self._cell = RegisterCell(store, parent_key(job), patience)

    def read(self) -> Origin:
        """Read the token's entry.

        Raises:
            TargetError: the register's system does not answer.
        """
        entry = noted(self._cell.load(), self._token)
        if entry is None:
            return Origin()
        place = place_of(self._store, self._job)
        return Origin(Certificate(self._job, entry.register, place, entry.generation, None, EPOCH))

    def write(self, certificate: Certificate) -> None:
        """Record the token.

        Raises:
            ProtocolError: it may not be recorded. Then the batch must not be decided, as the loss of
                its register would not be detected.
        """
        entry = NotedToken(self._token, certificate.register, certificate.generation, now())
        register = secrets.token_hex(8)
        try:
            self._cell.change(lambda state: note(state, self._job, entry, self._target, register))
        except TargetError as error:
            raise ProtocolError(
                f"The batch could not be recorded in its job's parent record: {error}",
                job=self._job,
                remedy="run the batch again: nothing of it is committed.",
            ) from error
