"""The function for ``foreachBatch``: one micro-batch is one epoch, the driver is its coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from abs_core.errors import OptionError, SchemaError
from abs_core.model import Drained, JobState, Recent, Share
from abs_core.protocol import Skip
from abs_core.rowdigest import is_row_digest
from abs_core.sinkmap import check_names
from abs_sinks.door import format_named
from abs_spark.checkpoint.spark_files import is_stateless
from abs_spark.end_watcher import end_watcher
from abs_spark.foreach.guarded import BatchFunction, check_pandas
from abs_spark.foreach.query import MODES, Running, output_mode
from abs_spark.foreach.row_size import batches_by_rows, may_count_rows
from abs_spark.foreach.run import EpochRun
from abs_spark.foreach.spec import EpochSink, letters_of
from abs_spark.foreach.tasks import (
    REPORT_TYPE,
    EpochTask,
    Obscured,
    Part,
    TaskSecrets,
    shares_of,
    writing,
)
from abs_spark.foreach.views import Pass, Passes
from abs_spark.hooks import install_hooks
from abs_spark.open_sinks import OpenSinks, check_beside, check_whole, replacing
from abs_spark.share import task_of
from abs_spark.sink_spec import SinkSpec, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(eq=False, repr=False, kw_only=True)
class Epoch(BatchFunction):
    """Writes each micro-batch to all sinks once, under one decision; see ``abs_spark.epoch``."""

    sinks: tuple[EpochSink, ...]
    job: str | None
    register: InitVar[str | None]
    checkpoint: str
    adopt: str | None
    mode: str | None
    run: EpochRun | None = field(default=None, init=False)
    _known: dict[int, SinkSpec] = field(default_factory=dict, init=False)
    _known_of: Running | None = field(default=None, init=False)
    _passes: Passes = field(default_factory=partial(Passes, ()), init=False)
    _row_bytes: dict[int, float] = field(default_factory=dict, init=False)
    """Bytes of the largest row so far, by the pass that counts rows."""

    def __post_init__(self, register: str | None) -> None:
        names = [sink.name for sink in self.sinks]
        check_names(names)
        letters_of(self.sinks)
        if self.mode not in (None, *MODES):
            raise OptionError(
                f"There is no outputMode {self.mode!r}.", remedy=f"give one of {', '.join(MODES)}."
            )
        if register is not None and register not in names:
            raise OptionError(
                f"register={register!r} is not a sink of this epoch.",
                remedy=f"name one of {', '.join(filter(None, names)) or 'its sinks'}.",
            )
        self._register = names[0] if register is None else register

    def _fresh(self) -> dict[str, Any]:
        return {
            **super()._fresh(),
            "_known": dict[int, SinkSpec](),
            "_known_of": None,
            "_passes": Passes(()),
            "_row_bytes": dict[int, float](),
        }

    def __repr__(self) -> str:
        sinks = ", ".join(f"{s.name or '-'}: {s.format}" for s in self.sinks)
        job = self.job or "<query id>"
        return f"abs_spark.epoch([{sinks}], job={job!r}, register={self._register!r})"

    def _end(self, run: EpochRun) -> None:
        run.end(tasks_may_run=True)  # tasks that still run are fenced before all is swept

    def _write_batch(self, df: DataFrame, query: Running, batch_id: int) -> None:
        query = replace(query, mode=output_mode(query.mode, self.mode, self.checkpoint))
        if query != self._known_of:
            # Another run may have other columns, and another output mode.
            self._known, self._known_of = {}, query
            self._passes, self._row_bytes = Passes(self.sinks), {}
        made = self._passes.of(df)
        run = self._run(query, self._targets(made, whole=query.mode == "complete"))
        self._write(run, made, batch_id, query.java)

    def _write(self, run: EpochRun, made: Sequence[Pass], epoch: int, java: Any) -> None:
        state, plan = run.begin(epoch)
        fingerprint = run.fingerprint(epoch)
        recorded = state.record(epoch)
        by_rows = recorded is not None and is_row_digest(recorded.fingerprint)
        partly = run.is_partly_written(epoch)
        if (
            isinstance(plan, Skip)
            and recorded is not None
            and not partly
            and self._may_skip(recorded, fingerprint)
        ):
            run.commit(epoch, [Drained(recorded.rows)], fingerprint)
            return
        # An epoch that is recorded by its rows is compared by rows, even if the offsets can be
        # read now.
        digests = (fingerprint is None or by_rows) and run.targets.by_rows
        shares: list[Share] = []
        for number, one in enumerate(made):
            work = self._work(run, one, state, epoch, drain=isinstance(plan, Skip), digests=digests)
            with batches_by_rows(one.rows.sparkSession, self._row_bytes.get(number, 0)):
                # Of several attempts of a task Spark collects one result: only its handles are
                # decided, the others' are swept.
                rows = one.rows.mapInArrow(writing(work), REPORT_TYPE).collect()
            made_shares, row_bytes = shares_of([row["report"] for row in rows])
            shares += made_shares
            if row_bytes and (number in self._row_bytes or may_count_rows(java, one.rows)):
                # Sizes vary: the next rows may be as large as any before.
                self._row_bytes[number] = max(row_bytes, self._row_bytes.get(number, 0))
        if isinstance(plan, Skip) and partly:
            # Equal input proves nothing here: a corrected function gives this call all rows.
            run.check_rows(state, epoch, sum(share.rows for share in shares))
        run.commit(epoch, shares, fingerprint)

    def _may_skip(self, recorded: Recent, fingerprint: str | None) -> bool:
        """Whether a finished epoch needs no Spark job, because its input proves that it is the same.

        A stateful plan must be executed: its operators store their state while it runs, and
        Spark 4.1 and later fail a batch if they did not.
        """
        return (
            fingerprint is not None
            and recorded.fingerprint == fingerprint
            and is_stateless(self.checkpoint)
        )

    def _work(
        self, run: EpochRun, one: Pass, state: JobState, epoch: int, *, drain: bool, digests: bool
    ) -> EpochTask:
        parts = []
        for view in one.views:
            name, target = self.sinks[view.sink].name, self._known[view.sink]
            shown = "" if run.targets.alone else name
            place = letters_of(self.sinks).get(view.sink)
            buries = None if place is None else run.numbers[self.sinks[place].name]
            parts.append(Part(run.numbers[name], target, view, shown, buries))
        secret = Obscured(TaskSecrets(tuple(parts), run.targets.of_register))
        return EpochTask(
            secret, task_of(state, epoch, 0), run.targets.own, drain=drain, digests=digests
        )

    def _run(self, query: Running, targets: Sequence[SinkSpec]) -> EpochRun:
        run = self._attach(query, lambda: self._opened(query, targets))
        end_watcher.watch(query.java, run)
        return run

    def _opened(self, query: Running, targets: Sequence[SinkSpec]) -> OpenSinks:
        names = [sink.name for sink in self.sinks]
        check_beside(names, targets)
        apart = [sink.name for sink in self.sinks if sink.transform is not None]
        if query.mode == "complete":
            check_whole(targets)
        return OpenSinks(names, targets, self._register, apart)

    def _targets(self, made: Sequence[Pass], *, whole: bool) -> list[SinkSpec]:
        """The targets of all sinks, in their order; options are read once.

        Args:
            whole: each batch is the whole result, and replaces the one before.
        """
        schemas = {view.sink: view.schema for one in made for view in one.views}
        return [
            self._target(place, schemas[place], whole=whole) for place in range(len(self.sinks))
        ]

    def check(self) -> None:
        """Check the options of all sinks, as far as they can be checked without rows.

        Raises:
            OptionError: they do not fit the checkpoint, the output mode or each other.
        """
        targets = []
        for sink in self.sinks:
            kind = format_named(sink.format)
            settings = {**sink.options, "checkpointLocation": self.checkpoint}
            options = parse(kind, settings, started=False)
            if self.mode == "complete":
                options = replacing(kind, options, sink.name)
            targets.append(SinkSpec(kind, options, pa.schema([])))
        check_beside([sink.name for sink in self.sinks], targets)

    def _target(self, place: int, schema: pa.Schema, *, whole: bool) -> SinkSpec:
        spec = self._known.get(place)
        if spec is None:
            sink = self.sinks[place]
            kind = format_named(sink.format)
            settings = {**sink.options, "checkpointLocation": self.checkpoint}
            options = parse(kind, settings)
            if whole:
                options = replacing(kind, options, sink.name)
            spec = self._known[place] = SinkSpec(kind, options, schema)
        if spec.schema != schema:
            raise SchemaError(
                f"The rows of the sink {self.sinks[place].name or spec.format.name} have other "
                "columns than in the batch before.",
                remedy="if that is intended, restart the query.",
            )
        return spec


def epoch(
    sinks: EpochSink | Sequence[EpochSink],
    *,
    checkpointLocation: str,  # noqa: N803 - the name of Spark's option
    job: str | None = None,
    register: str | None = None,
    adopt: str | None = None,
    outputMode: str | None = None,  # noqa: N803 - the same
) -> Epoch:
    """The function for ``foreachBatch`` that writes each micro-batch exactly once.

    Also installs the hooks of ``abs_spark``.

    All sinks pre-commit, one decision names what all of them pre-committed, then all commit: after
    recovery an epoch is in every target or in none.

    Args:
        sinks: made by ``abs_spark.sink``; each needs a name if there are several.
        checkpointLocation: the same as the query's own option.
        job: stable name of the job; default: the query's id.
        register: name of the sink whose system has the job's register; default: the first one.
        adopt: consent: the token that a refusal names.
        outputMode: the same as the query's own; needed if Spark does not report it (Connect) and the
            query keeps state.

    Raises:
        OptionError: names are missing or used twice; there is no such mode; or a sink's options do not
            fit the checkpoint, the mode or the other sinks.
        ConfigError: pandas is not installed.
    """
    install_hooks()
    check_pandas()
    made = Epoch(
        sinks=(sinks,) if isinstance(sinks, EpochSink) else tuple(sinks),
        job=job,
        register=register,
        checkpoint=checkpointLocation,
        adopt=adopt,
        mode=None if outputMode is None else outputMode.lower(),
    )
    made.check()
    return made
