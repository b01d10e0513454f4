"""A producer that holds a transactional id, and one that holds none: both send column by column."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import Lane, cluster
from abs_clients.kafka.format.headers import Header
from abs_clients.kafka.format.recordbatch import Identity
from abs_clients.kafka.producer_ids import init_producer_id, new_producer_id
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import topic_facts
from abs_clients.kafka.transactions import EndTxn, Reply, end
from abs_core.errors import AbsError, UnavailableError
from abs_core.patience import Patience
from abs_sinks.kafka.columnar.sender import ColumnarSender

log = logging.getLogger(__name__)


class ColumnarTransactions:
    """``Transactions`` under an id that is initialised here; what was open under it is aborted.

    It holds no connection: the process's own carries the records of all. Producer id and epoch are
    the same in all of its transactions, as with librdkafka. So after a commit or an abort that was
    not answered at once it is of no use any more: that request may come late, and must then meet
    another epoch.

    Args:
        topic: that is written to, where it is known: it is looked at now, not while a task waits, and
            anew for each producer, since partitions may have been added.
        timeout_ms: after which the broker ends a transaction on its own; None: as the settings say.

    Raises:
        TargetError: the coordinator refuses, or does not answer in ``INIT_SECONDS``.
    """

    def __init__(
        self, settings: Settings, name: str, topic: str | None, timeout_ms: int | None = None
    ) -> None:
        patience = Patience(seconds=timeouts.INIT_SECONDS)
        made = patience.retry(lambda: init_producer_id(settings, name, timeout_ms))
        cluster(settings).client(Lane.DATA)
        if topic is not None:
            topic_facts(settings, [topic], again=True)
        self.who = Identity(name, *made)
        self._settings = settings
        self._senders: dict[str, ColumnarSender] = {}

    @property
    def may_end_late(self) -> bool:
        """See ``Transactions``: each request is sent once, and one without an answer is an error."""
        return False

    def begin(self) -> None:
        for sender in self._senders.values():
            sender.begin()

    def to(self, topic: str | None, patience: float) -> ColumnarSender:
        assert topic is not None, "who is chosen for one topic is given it"
        # One for each topic: sequence numbers go on over all transactions of this epoch.
        if topic not in self._senders:
            self._senders[topic] = ColumnarSender(self._settings, topic, self.who, patience)
        found = self._senders[topic]
        found.patience = patience
        return found

    def commit(self) -> None:
        reply = self._end(commit=True)
        if reply is not Reply.DONE:
            raise UnavailableError(
                f"The commit under {self.who.transactional_id} was not taken: {reply}.",
                remedy="nothing of the epoch is lost: what became of it is looked up.",
            )

    def abort(self) -> bool:
        for sender in self._senders.values():
            sender.abort()
        try:
            self._end(commit=False)
        except AbsError as error:  # whoever opens it next aborts what is open
            log.debug("aborting under %s: %s", self.who.transactional_id, error)
        return False  # a request of this epoch may still be under way

    def _end(self, *, commit: bool) -> Reply:
        who = self.who
        assert who.transactional_id is not None
        ending = EndTxn(who.transactional_id, who.producer_id, who.epoch)
        return end(self._settings, [ending], commit=commit)[who.transactional_id]


def outside_transactions(
    settings: Settings, topic: str, patience: float, more: Sequence[Header]
) -> ColumnarSender:
    """A sender with a producer id of its own, whose records are visible at once.

    Raises:
        TargetError: no broker gives a producer id in ``INIT_SECONDS``.
    """
    trying = Patience(seconds=timeouts.INIT_SECONDS)
    who = Identity(None, *trying.retry(lambda: new_producer_id(settings)))
    return ColumnarSender(settings, topic, who, patience, more)
