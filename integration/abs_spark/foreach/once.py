"""``abs_spark.once``: a guard around a write of the user's own, in ``foreachBatch`` or for one batch.

The epoch is decided before it is written: the decision is its begin, see ``abs_core.ownwrite``. A
driver that dies after it leaves it open. The next one asks ``applied``, and writes what is not there
under the same version.
"""

from __future__ import annotations

import logging
import pickle
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import pyarrow as pa

from abs_core import consent
from abs_core.coordinator.certifier import EPOCH
from abs_core.errors import OptionError, ProtocolError, ReplayMismatchError
from abs_core.model import job_key
from abs_core.ownwrite import ONCE, Applied, OwnEpoch, OwnWrite, Promise
from abs_core.ownwrite import Write as OwnFunction
from abs_core.patience import DEFAULT_SECONDS
from abs_core.protocol import RunIdentity
from abs_core.rowdigest import RowDigest
from abs_sinks.options import CommonOptions
from abs_sinks.register_at import open_register
from abs_spark import run as runs
from abs_spark.checkpoint.spark_files import is_stateless
from abs_spark.foreach.guarded import BatchFunction, check_pandas
from abs_spark.foreach.own_sink import OwnFormat, OwnOptions, OwnSink
from abs_spark.foreach.query import Running
from abs_spark.foreach.run import EpochRun
from abs_spark.foreach.tasks import REPORT, REPORT_TYPE
from abs_spark.hooks import install_hooks
from abs_spark.names import RunName
from abs_spark.open_sinks import OpenSinks
from abs_spark.process.logs import show_logs
from abs_spark.schema import input_schema
from abs_spark.share import SinkShare
from abs_spark.sink_spec import SinkSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("abs_spark.recovery")


@dataclass(eq=False, repr=False, kw_only=True)
class Once(BatchFunction):
    """Guards the write of each micro-batch; see ``abs_spark.once``."""

    sinks: tuple[OwnOptions]
    job: str
    checkpoint: str
    adopt: str | None
    run: EpochRun | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"abs_spark.once({self.options!r}, job={self.job!r})"

    @property
    def options(self) -> OwnOptions:
        """Of its only sink."""
        return self.sinks[0]

    def _write_batch(self, df: DataFrame, query: Running, batch_id: int) -> None:
        run = self._attach(query, lambda: _opened(self.options))
        own = _own(run.targets)
        epoch = OwnEpoch.of(run.begin(batch_id), batch_id)
        if run.is_partly_written(batch_id):
            _check_left_out(run.identity, batch_id)
        report = epoch.report(run.fingerprint(batch_id), lambda: _counted(df))
        epoch.offer_to(own, df, run.identity)
        run.commit(batch_id, report.shares, report.fingerprint)
        if not own.wrote:
            _tell_not_written(epoch, self.options.promise)
            if not is_stateless(self.checkpoint):
                # Its operators store their state while the plan runs, and Spark 4.1 and later fail a
                # batch if they did not.
                df.write.format("noop").mode("overwrite").save()


@dataclass(frozen=True, repr=False, kw_only=True)
class OnceBatch:
    """Guards the write of one batch, which ``epoch`` names; see ``abs_spark.once``."""

    options: OwnOptions
    job: str
    epoch: str

    def __repr__(self) -> str:
        return f"abs_spark.once({self.options!r}, job={self.job!r}, epoch={self.epoch!r})"

    def __call__(self, df: DataFrame) -> None:
        """Write the batch, unless the target has it. Its rows are read twice, to recognise it.

        Raises:
            ReplayMismatchError: another batch was written under this name.
            AbsError: it is safe to write the batch again.
        """
        show_logs()
        key = job_key(self.job, self.epoch)
        target = _spec(self.options)
        name = RunName(key, f"batch:{key}", secrets.token_hex(16))
        run = runs.attach(target, name)
        epoch = OwnEpoch.of(run.begin(EPOCH, runs.begun(target, key)), EPOCH)
        run.start.show()
        try:
            report = epoch.report(None, lambda: _counted(df))
        except ReplayMismatchError as error:
            raise runs.another_batch(key, error.why) from error
        own = _own(run.start.targets)
        epoch.offer_to(own, df, run.identity)
        run.coordinator.commit(report)
        if not own.wrote:
            _tell_not_written(epoch, self.options.promise)


def _check_left_out(who: RunIdentity, epoch: int) -> None:
    """Refuse a batch of which an earlier run wrote one call and refused another, but by consent.

    A corrected function passes other rows than the first call had, and rows are not counted.

    Raises:
        ProtocolError: names the consent.
    """
    token = consent.to_pass_over(epoch, who, epoch)
    if who.adopt == token:
        return
    raise ProtocolError(
        f"Batch {epoch} is in the target with the rows of one call. A second call of this job for the "
        "batch failed, and its rows are not there.",
        job=who.job,
        epoch=epoch,
        remedy="pass all rows of a batch in one call, or give the second call a job of its own. Write "
        f"what is missing of batch {epoch} yourself, and set adopt={token} for one start.",
    )


def _tell_not_written(epoch: OwnEpoch, promise: Promise) -> None:
    """Log an epoch that is not known to be written, and is not tried again."""
    if promise is Promise.AT_MOST_ONCE and epoch.begin is not None:
        _log.warning(
            "job %s: epoch %d was begun before, and is not written again: it may be missing",
            epoch.state.job,
            epoch.number,
        )


def _counted(df: DataFrame) -> tuple[int, RowDigest]:
    """Number and digest of the rows, by a Spark job."""
    schema = input_schema(df.schema)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        share = SinkShare(schema, None, digests=True)
        for batch in batches:
            share.write(batch)
        yield pa.RecordBatch.from_pylist([{"report": pickle.dumps(share.share())}], schema=REPORT)

    reports = df.mapInArrow(count, REPORT_TYPE).collect()
    shares = [pickle.loads(row["report"]) for row in reports]  # noqa: S301 - as Spark reads tasks' messages
    digest = reduce(add, (share.digest for share in shares), RowDigest(0))
    return sum(share.rows for share in shares), digest


def _spec(options: OwnOptions) -> SinkSpec:
    return SinkSpec(OwnFormat(), options, pa.schema([]))


def _opened(options: OwnOptions) -> OpenSinks:
    return OpenSinks.only(_spec(options))


def _own(sinks: OpenSinks) -> OwnWrite:
    sink = sinks.one
    assert isinstance(sink, OwnSink)
    return sink.own


def once(
    write: OwnFunction,
    *,
    job: str,
    register: str,
    applied: Applied | None = None,
    checkpointLocation: str | None = None,  # noqa: N803 - the name of Spark's option
    epoch: str | None = None,
    promise: str | None = None,
    adopt: str | None = None,
    patience: float = DEFAULT_SECONDS,
) -> Callable[..., None]:
    """Guard a write of your own, so that its target has each epoch once.

    It gives each epoch a token that stays the same over restarts, fences an older driver, refuses a
    checkpoint or register that was deleted or restored, and writes an epoch again only if the target
    does not have it. It also installs the hooks of ``abs_spark``.

    Args:
        write: ``write(df, token)`` writes rows and token (``application``, ``version``) in one
            transaction, which changes nothing where the stored version is not lower.
        job: stable name of the job, and of the application in the target.
        register: where the job's state is: postgresql://, s3:// or kafka:// as the commands' ``--url``
            takes it, or a folder.
        applied: ``applied(application)`` returns the version that the target has, or None.
        checkpointLocation: the same as the query's own option; for ``foreachBatch``.
        epoch: names a batch write instead; then the function takes the DataFrame alone.
        promise: where ``applied`` cannot be given: ``at least once`` or ``at most once``.
        adopt: consent: the token that a refusal names.
        patience: seconds to wait for a register that does not answer.

    Raises:
        OptionError: the arguments do not fit each other; or the register's address is none.
        ConfigError: pandas is not installed.
    """
    install_hooks()
    check_pandas()
    if (checkpointLocation is None) == (epoch is None):
        raise OptionError(
            "abs_spark.once needs either checkpointLocation or epoch.",
            remedy="give checkpointLocation for foreachBatch, or epoch to name a batch write.",
        )
    common = CommonOptions(
        protocol=ONCE,
        job=job,
        epoch=epoch,
        adopt=adopt,
        checkpoint=checkpointLocation,
        patience=patience,
    )
    options = OwnOptions(write, applied, _promised(applied, promise), register, common)
    job_key(job, epoch)
    open_register(register)
    if epoch is not None:
        return OnceBatch(options=options, job=job, epoch=epoch)
    return Once(sinks=(options,), job=job, checkpoint=str(checkpointLocation), adopt=adopt)


def _promised(applied: Applied | None, promise: str | None) -> Promise:
    weaker = (Promise.AT_LEAST_ONCE, Promise.AT_MOST_ONCE)
    if applied is not None and promise in (None, Promise.EXACTLY_ONCE):
        return Promise.EXACTLY_ONCE
    if applied is None and promise in weaker:
        return Promise(promise)
    choices = " or ".join(repr(str(choice)) for choice in weaker)
    raise OptionError(
        f"promise={promise!r} does not fit {'no ' if applied is None else ''}applied: what is promised "
        "follows from whether the target can be asked what it has.",
        remedy=f"give applied and no promise; or no applied, and promise={choices}.",
    )
