"""A batch write's birth certificate, stored in the parent record of its job."""

from __future__ import annotations

import secrets

from abs_core.births.parent import note, noted, now, parent_key, token_of
from abs_core.certificate import Certificate, Origin, place_of
from abs_core.contracts import RegisterStore
from abs_core.coordinator.cell import Cell
from abs_core.errors import ProtocolError, TargetError
from abs_core.model import NotedToken
from abs_core.patience import Patience

EPOCH = 0
"""The number of a batch write's only epoch."""


class ParentCertificates:
    """A ``CertificateStore`` for one token, in the register's own system.

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
        self._cell = Cell(store, parent_key(job), patience)

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
