"""A handle of protocol 2pc: one open transaction, its transactional id, and the proof of its outcome.

**The ids.** A broker keeps an id for days after its last use (transactional.id.expiration.ms), so
they are not made per handle. An id belongs to one process, job and generation; its random part keeps
processes apart (I6). It is reused only after its last handle's epoch is finished or abandoned
(``Task.is_settled``).

**The proof of commit.** InitProducerId before every transaction raises the epoch, or gives a new
producer id, so the two name exactly one transaction. EndTxn up to version 4 changes neither. Hence:

- PrepareCommit or CompleteCommit for this producer id and epoch, or EndTxn(commit) answered without
  an error: committed. PrepareCommit is durable in the coordinator's log; the markers follow.
- PrepareAbort or CompleteAbort with this epoch or the next (a timeout or a fence raises it by one):
  aborted.
- Anything else, above all no such id: **unknown**. Absence is never counted as a commit (I7).

The proof lasts until the id is initialised again, which its worker does only after it has read in the
register that the epoch is finished (I2). A broker forgets an id that is unused for
transactional.id.expiration.ms (7 days by default): a job that was down for longer between commit and
finish gets "unknown", and a person decides. A late EndTxn for an older epoch is fenced.

EndTxn version 5 (KIP-890) raises the epoch with the commit: then the next epoch in PrepareCommit or
CompleteCommit is the proof. The committable records the version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

from abs_clients.kafka.settings import Settings
from abs_clients.kafka.transactions import PLAIN_END_TXN, Description, EndTxn, State, describe
from abs_core.errors import ProtocolError
from abs_core.model import HELD_AS, NO_EPOCH, Committable, HandleName, Outcome
from abs_core.strictjson import Fields, decimal

COMMITTING = (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
_ABORTING = (State.PREPARE_ABORT, State.COMPLETE_ABORT, State.PREPARE_EPOCH_FENCE)


def id_name(register: str, job: str, generation: int, number: int, incarnation: str) -> HandleName:
    """The name whose text is the transactional id.

    Args:
        number: of the id in its incarnation, from 0.
        incarnation: lower-case hex, random per process and generation.
    """
    return HandleName(register, job, generation, NO_EPOCH, number, incarnation)


def parse_id(text: str) -> HandleName | None:
    """Parse a transactional id; None if it is not one of this sink."""
    name = HandleName.parse(text)
    return name if name is not None and is_id(name) else None


def is_id(name: HandleName) -> bool:
    """Whether the name is of a transactional id, not of a handle."""
    return name.epoch == NO_EPOCH


def pattern_of(job: str | None) -> str:
    """A regular expression for the ids of a job, or of all; a match must still be parsed."""
    if job is None:
        return "abs1:.*"
    escaped = "".join(c if c.isalnum() or c in "_~%@-" else f"\\{c}" for c in job)
    return f"abs1:[0-9a-f]+:{escaped}:.*:{NO_EPOCH}:.*"


def with_open(settings: Settings, ids: Sequence[HandleName]) -> list[HandleName]:
    """Those under which a transaction is open, by their coordinators."""
    now = describe(settings, [str(name) for name in ids])
    seen = {name: now.get(str(name)) for name in ids}
    return [name for name, view in seen.items() if view is not None and view.state is State.ONGOING]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction, as a committable's ``extra`` records it, under the names of its fields.

    Args:
        held_as: its transactional id.
        end_txn: the version of EndTxn that ends it.
        start_ms: its start by the coordinator's clock.
        offsets: of its records, see ``places.Places``.
    """

    held_as: HandleName
    producer_id: int
    epoch: int
    end_txn: int
    timeout_ms: int
    start_ms: int
    offsets: str

    @property
    def ending(self) -> EndTxn:
        return EndTxn(str(self.held_as), self.producer_id, self.epoch, self.end_txn)

    @property
    def extra(self) -> tuple[tuple[str, str], ...]:
        texts = {field.name: str(getattr(self, field.name)) for field in fields(self)}
        return tuple(sorted({"protocol": "2pc", **texts}.items()))

    @classmethod
    def of(cls, committable: Committable) -> Self | None:
        """Read a committable; None if it is not of protocol 2pc.

        Raises:
            ProtocolError: it cannot be read.
        """
        extra = Fields(committable.extra)
        if HELD_AS not in extra:
            return None
        try:
            return cls(
                held_as=committable.held_as,
                producer_id=decimal(extra["producer_id"]),
                epoch=decimal(extra["epoch"]),
                end_txn=decimal(extra["end_txn"]),
                timeout_ms=decimal(extra["timeout_ms"]),
                start_ms=decimal(extra["start_ms"], -1),
                offsets=extra.get("offsets", ""),
            )
        except ValueError as error:
            raise ProtocolError(
                f"A committable of protocol 2pc cannot be read: {error}.",
                handle=str(committable.handle),
                remedy="it was written by another release; run that one until the epoch is finished.",
            ) from error


def outcome(prepared: OpenTransaction, now: Description | None) -> Outcome:
    """The transaction's outcome, by its coordinator's description; see the module's text."""
    if now is None or now.producer_id != prepared.producer_id:
        return Outcome.UNKNOWN
    later = now.epoch - prepared.epoch
    if later == 0 and now.state is State.ONGOING and now.start_ms == prepared.start_ms:
        return Outcome.PREPARED
    committed_at = 0 if prepared.end_txn <= PLAIN_END_TXN else 1
    if later == committed_at and now.state in COMMITTING:
        return Outcome.COMMITTED
    if later in (0, 1) and now.state in _ABORTING:
        return Outcome.ABORTED
    return Outcome.UNKNOWN


def is_ending(now: Description | None) -> bool:
    """Whether the coordinator is writing the markers of a commit or abort."""
    return now is not None and now.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT)
