"""Settings and result of a demo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from abs_audit import EpochFound, Report
from abs_chaos.moments import Moment
from abs_chaos.outcome import Outcome
from abs_chaos.schedule import Kill, schedule
from abs_core.errors import OptionError
from abs_demo.engine import Engine
from abs_demo.flights import DAYS, ROWS
from abs_demo.hops import TAKEN_PER_EPOCH, Route
from abs_demo.job import UNSAFE
from abs_sinks.options import PROTOCOLS

FILES_PER_EPOCH = {Route.DIRECT: 8, Route.CHAIN: 24, Route.EPOCH: 24, Route.LAKE: 24}
FILES_PER_CHECKPOINT = 12
"""The embedded job reads half as many between two checkpoints."""

_STORIES = {
    Route.DIRECT: "flights of 2013 -> Spark -> PostgreSQL",
    Route.CHAIN: "flights of 2013 -> Kafka -> PostgreSQL and S3, three Spark queries",
    Route.EPOCH: "flights of 2013 -> PostgreSQL, Kafka and S3, one Spark query, one decision",
    Route.LAKE: "flights of 2013 -> PostgreSQL, Kafka, Iceberg and Delta, one query, one decision",
}

MOMENTS = {
    "2pc": (Moment.PREPARED, Moment.RECOVERING, Moment.DECIDED, Moment.WRITING),
    # Rows and register change in one transaction: nothing lies between decision and commit.
    "wal": (Moment.PREPARED, Moment.RECOVERING, Moment.WRITING),
    # Tasks apply their rows themselves; nothing is pre-committed.
    "idempotent": (Moment.WRITING, Moment.RECOVERING),
    # No register either.
    UNSAFE: (Moment.WRITING,),
}
"""The phases in which a job can be killed, by protocol, besides the one that every plan has."""

MIN_KILLS = 5
_PER_DAY = ROWS // DAYS


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """One demo.

    Args:
        seed: draws the moments of the kills.
        protocol: of PostgreSQL's sink, or ``unsafe``: a plain writer, for comparison.
        days: days of 2013 to write, a file each.
        route: to PostgreSQL, through Kafka to PostgreSQL and S3, or to several at once.
        engine: Spark, or the embedded runtime.

    Raises:
        OptionError: a value is invalid, or there are too few epochs for the kills.
    """

    seed: int
    protocol: str = "2pc"
    kills: int = MIN_KILLS
    days: int = DAYS
    route: Route = Route.DIRECT
    engine: Engine = Engine.SPARK

    def __post_init__(self) -> None:
        if self.protocol not in (*PROTOCOLS, UNSAFE):
            raise OptionError(
                f"There is no protocol {self.protocol!r}.",
                remedy=f"choose from {', '.join(PROTOCOLS)}.",
            )
        if not 1 <= self.days <= DAYS:
            raise OptionError(
                f"2013 does not have {self.days} days.", remedy=f"choose from 1 to {DAYS}."
            )
        if self.protocol == UNSAFE and self.route is not Route.DIRECT:
            raise OptionError(
                "The plain writer writes to PostgreSQL only.", remedy="omit --unsafe or --route."
            )
        if self.protocol == "idempotent" and self.route.is_one_query:
            raise OptionError(
                "protocol=idempotent is refused together with other sinks: its rows are visible before "
                "the decision.",
                remedy="choose --protocol 2pc or wal.",
            )
        if self.engine is Engine.EMBEDDED and (
            self.protocol == UNSAFE or self.route is not Route.DIRECT
        ):
            raise OptionError(
                "The plain writer and the routes chain, epoch and lake need Spark.",
                remedy="omit --engine embedded.",
            )
        _ = self.planned

    @property
    def epochs(self) -> int:
        """Of the query that writes to PostgreSQL; at least so many from Kafka, or embedded."""
        if self.engine is Engine.EMBEDDED:
            return -(-self.days // FILES_PER_CHECKPOINT)
        files = -(-self.days // FILES_PER_EPOCH[self.route])
        return -(-self.days * _PER_DAY // TAKEN_PER_EPOCH) if self.route is Route.CHAIN else files

    @property
    def planned(self) -> tuple[Kill, ...]:
        """The kills that the seed draws."""
        return schedule(
            self.seed,
            MOMENTS[self.protocol],
            self.kills,
            self.epochs,
            spark=self.engine is Engine.SPARK,
        )

    @property
    def story(self) -> str:
        """The route of the flights, for people."""
        if self.engine is Engine.EMBEDDED:
            return "flights of 2013, each twice -> embedded runtime, keyed state -> PostgreSQL"
        return _STORIES[self.route]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a demo.

    Args:
        rows: expected ones.
        outcome: kills, and the audit of the table.
        others: the audits of further targets, by name.
        epochs: what each target has of each epoch, where one query writes to several.
    """

    settings: DemoSettings
    rows: int
    outcome: Outcome
    others: Mapping[str, Report] = field(default_factory=dict)
    epochs: tuple[EpochFound, ...] = ()

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """Reasons why the demo failed; empty if it succeeded."""
        reasons, kills = list(self.outcome.shortcomings), self.outcome.kills
        for name, report in self.others.items():
            reasons += [f"{name}: {reason}" for reason in report.reasons]
        reasons += [epoch.shortcoming for epoch in self.epochs if epoch.shortcoming]
        left = self.outcome.report.left_behind
        if left is not None and (left.prepared or left.staging or left.decisions):
            reasons.append(
                f"left behind: {len(left.prepared)} prepared transactions, "
                f"{len(left.staging)} staging tables, {len(left.decisions)} open decisions"
            )
        is_spark = self.settings.engine is Engine.SPARK
        if is_spark and kills and not any(kill.found is Moment.COMMITTED for kill in kills):
            reasons.append("no kill hit between commit() and Spark's own commits/N")
        return tuple(reasons)

    @property
    def clean(self) -> bool:
        return not self.shortcomings

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "clean": self.clean,
            "shortcomings": list(self.shortcomings),
            **asdict(self.settings),
            "epochs": self.settings.epochs,
            "rows": self.rows,
            "kills_done": [asdict(kill) for kill in self.outcome.kills],
            "failures": self.outcome.failures,
            "job_seconds": round(self.outcome.job_seconds, 3),
            "audit": self.outcome.report.to_dict(),
            "audits": {name: report.to_dict() for name, report in self.others.items()},
            "by_epoch": [entry.to_dict() for entry in self.epochs],
        }
