"""What a coordinator does about the birth certificate: all I/O of it; the rules are in ``births``."""

from __future__ import annotations

from collections.abc import Callable

from abs_core import births
from abs_core.cell import Cell
from abs_core.certificate import CertificateStore
from abs_core.contracts import Inventory, RegisterStore
from abs_core.errors import TargetError
from abs_core.events import NotCertified, Observer
from abs_core.model import JobState
from abs_core.patience import Patience
from abs_core.protocol import Identity


class Certifier:
    """For one run of a job, in one process; see ``Coordinator`` for the arguments."""

    def __init__(
        self,
        who: Identity,
        cell: Cell,
        store: RegisterStore,
        certificates: CertificateStore | None,
        is_empty: Callable[[], bool],
        patience: Patience,
        observe: Observer,
    ) -> None:
        self._who = who
        self._cell = cell
        self._store = store
        self._certificates = certificates
        self._is_empty = is_empty
        self._patience = patience
        self._observe = observe
        self._certified = False
        self._told = False

    def look_around(self, epoch: int) -> None:
        """Before a register is minted: whether the job is one whose checkpoint was deleted.

        Raises:
            IdentityError: it is, and the target is not empty.
        """
        store, who = self._store, self._who
        if who.checkpoint is None or not isinstance(store, Inventory):
            return

        def others() -> list[JobState]:
            found = [store.load(name) for name in store.others_on(who.target, who.job)]
            return [stored.state for stored in found if stored is not None]

        refused = births.begun_elsewhere(self._patience.retry(others), who, epoch)
        if refused is not None and not self._target_is_empty():
            raise refused.error

    def _target_is_empty(self) -> bool:
        try:
            return self._patience.retry(self._is_empty)
        except TargetError as error:
            if error.retryable:
                raise
            return False  # a role may write to a table and not read it

    def certify(self, state: JobState, epoch: int) -> None:
        """Before this process's first decision: the certificate must be right, and is written anew.

        Raises:
            ProtocolError: the register is not the one that the certificate tells of.
            CorruptionError: what lies there is no certificate.
        """
        if self._certificates is None or self._certified:
            return
        origin = self._patience.retry(self._certificates.read)
        error = births.still_there(state, self._who, origin, epoch, self._cell.shown_place)
        if error is not None:
            raise error
        # Where it could not even be read it is tried once.
        self._certified = self.note(state, epoch) or not origin.readable

    def note(self, state: JobState, epoch: int) -> bool:
        """Write the certificate. Where that fails a warning says so once."""
        if self._certificates is None:
            return False
        certificates, certificate = (
            self._certificates,
            births.certify(state, self._cell.place, epoch),
        )
        try:
            self._patience.retry(lambda: certificates.write(certificate))
        except TargetError as error:
            if not self._told:
                self._observe(NotCertified(self._who.job, str(error)))
            self._told = True
            return False
        return True
