"""The Kafka sink: a ``Sink`` for one topic, or for the topics that a column names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.cluster_facts import cluster_id
from abs_clients.kafka.setting_table import TWO_PHASE
from abs_clients.kafka.settings import PREFIX
from abs_core.contracts import Committer, RegisterStore, Sink, Task, Writer
from abs_core.errors import OptionError
from abs_core.model import Finding, Guarantee, JobState
from abs_core.patience.slow_writes import SlowWriteReporter
from abs_core.routing import ByProtocol
from abs_sinks.deadletters.writer import dead_letters_of
from abs_sinks.kafka.give_up_attempts import left_behind
from abs_sinks.kafka.idempotent import IdempotentCommitter, IdempotentWriter
from abs_sinks.kafka.options import KafkaOptions, identity
from abs_sinks.kafka.preflight import preflight
from abs_sinks.kafka.preflight_state import preflight_state
from abs_sinks.kafka.producer_pools import ProducerPools
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.side_topic import data_topic
from abs_sinks.kafka.twophase import TwoPhaseCommitter, TwoPhaseWriter
from abs_sinks.kafka.wal import WalCoCommitter, WalCommitter, WalWriter, store_of
from abs_sinks.kafka.writer import RecordWriter

_READ_COMMITTED = (
    "set isolation.level=read_committed (librdkafka's default; the Java client's default is "
    "read_uncommitted, which shows records of epochs that never commit)"
)

_GUARANTEES = {
    "2pc": Guarantee(
        protocol="2pc",
        write="append",
        visibility="per task: when the epoch is committed, its transactions become visible one after "
        "another, within milliseconds",
        reader=_READ_COMMITTED,
        limits=(
            (
                "Between pre-commit and commit a transaction is open: readers with read_committed wait "
                "at its first record. An open transaction of a killed process is ended by the next "
                "epoch's task on its machine, the job's next start, or kafka.transaction.timeout.ms."
            ),
            (
                "The broker aborts a transaction that is older than kafka.transaction.timeout.ms. If "
                "the job is down for longer between decision and commit, the records of that epoch "
                "are lost; the job then stops and names them."
            ),
            (
                "Within a partition, records of one task keep their order; records of different tasks "
                "do not."
            ),
        ),
    ),
    "wal": Guarantee(
        protocol="wal",
        write="append",
        visibility="whole epoch: all its records, in all partitions and topics, are one transaction",
        reader=_READ_COMMITTED,
        limits=("The driver sends all records of an epoch, in one transaction.",),
    ),
    "idempotent": Guarantee(
        protocol="idempotent",
        write="append",
        visibility="per task, before the epoch is decided: only readers that read the side topic "
        "(the source abs-kafka with winners=true) see each record once",
        reader="use the source abs-kafka with winners=true, which drops losing attempts",
        limits=(
            "Compacted topics are refused: a losing attempt could hold the newest value of a key.",
        ),
    ),
}


_OF_CHANGES = (
    "The records of a key are in one partition, and within an epoch in the order of sequenceby; those "
    "of a later epoch come after them, whatever their positions."
)

_WITHOUT_TIMEOUT = (
    "Between pre-commit and commit a transaction is open, and no timeout ends it "
    f"({PREFIX}{TWO_PHASE}=true): readers with read_committed wait at its first record until the job "
    "goes on. Of a killed process it is ended when the epoch is finished, or by the job's next start."
)


def guarantee(options: KafkaOptions) -> Guarantee:
    """The guarantee that follows from the options."""
    promise = replace(_GUARANTEES[options.protocol], notes=(options.choice.text,))
    if options.kafka.two_phase:
        promise = replace(promise, limits=(_WITHOUT_TIMEOUT, *promise.limits[2:]))
    if options.write == "changes":
        promise = replace(promise, write="changes", limits=(*promise.limits, _OF_CHANGES))
    if options.deadletter is not None:
        dead = dead_letters_of("topic", options)
        if options.protocol == "idempotent":
            dead += " Read that topic with winners=true, too."
        promise = replace(promise, notes=(*promise.notes, dead))
    return promise


class KafkaSink(Sink):
    """Writes batches of one schema as records, exactly once.

    It connects at its first use. Keep it over epochs: its producers stay initialised.

    Args:
        co_commit: whether the register is in this cluster (``register``); False for an epoch over
            several sinks.

    Raises:
        OptionError: the protocol needs the register in this cluster, or one topic for all records; or
            the given ``producer`` cannot send them.
    """

    def __init__(self, options: KafkaOptions, schema: pa.Schema, *, co_commit: bool = True) -> None:
        if options.protocol == "idempotent":
            data_topic(options)
            if not co_commit:
                raise OptionError(
                    "protocol=idempotent needs the register in the topic's own cluster: the winners "
                    "of an epoch are written in the transaction that decides it.",
                    remedy="set protocol=2pc or protocol=wal.",
                )
        options.choice  # noqa: B018 - it raises before anything is written
        self._options = options
        self._schema = schema
        self._co_commit = co_commit
        self._if_missing: Callable[[], None] = lambda: None
        self._key = object()  # unique to this sink: a copy has its own pools

    @property
    def target_id(self) -> str:
        """``kafka:<cluster id>/<topic>``; see ``options.identity``."""
        return identity(self._options)

    def writer(self, task: Task) -> Writer:
        made = self.raw_writer(task)
        if self._options.protocol == "wal":
            return made
        return SlowWriteReporter(made, self._options.patience, task)

    def raw_writer(self, task: Task) -> RecordWriter:
        """See ``deadletters.replay.BuryingSink``."""
        match self._options.protocol:
            case "2pc":
                pool = self._pools().of(self._options, task)
                return TwoPhaseWriter(self._options, self._schema, task, pool)
            case "wal":
                store, ledger = store_of(self._options), not self._co_commit
                return WalWriter(self._options, self._schema, task, store, ledger=ledger)
            case _:
                return IdempotentWriter(self._options, self._schema, task)

    def committer(self) -> ByProtocol:
        """One that co-commits for ``wal`` and ``idempotent`` if the register is in this cluster."""
        committers: dict[str, Committer] = {
            "2pc": TwoPhaseCommitter(self._options, lambda: self._pools().all())
        }
        match self._options.protocol:
            case "wal":
                kind = WalCoCommitter if self._co_commit else WalCommitter
                committers["wal"] = kind(self._options, store_of(self._options))
            case "idempotent":
                committers["idempotent"] = IdempotentCommitter(self._options)
        return ByProtocol(committers, self._options.protocol)

    def register(self) -> RegisterStore:
        return KafkaRegister(self._options)

    def if_missing(self, check: Callable[[], None]) -> None:
        self._if_missing = check

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        return [
            *preflight(self._options, self._schema, self._if_missing),
            *preflight_state(self._options, job, own_register=self._co_commit),
        ]

    def guarantee(self) -> Guarantee:
        return guarantee(self._options)

    def fence(self, state: JobState) -> None:
        """Give up attempts of earlier ``idempotent`` runs if this run has another protocol.

        There is nothing else to fence: a zombie's open transaction blocks no successor, and is swept.
        """
        if self._options.protocol != "idempotent" and self._co_commit and state.generation > 1:
            self._options.patience.retry(lambda: left_behind(self._options, state))

    def reach(self) -> None:
        """See ``Sink``; under ``wal`` also the store of segments."""
        cluster_id(self._options.kafka)
        if self._options.protocol == "wal":
            store_of(self._options).reach()

    def close(self) -> None:
        cluster(self._options.kafka).drop(self._key)

    def _pools(self) -> ProducerPools:
        """The pools of this process; a fork gets none of its parent's."""
        return cluster(self._options.kafka).kept(self._key, ProducerPools)
