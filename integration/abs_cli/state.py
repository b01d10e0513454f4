"""Where registers and handles are, for the commands that look after them.

PostgreSQL for now; a register lies in its sink's own system, so each sink adds its own here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from abs_core.errors import ConfigError
from abs_core.model import JobState
from abs_core.protocol import Identity

if (
    TYPE_CHECKING
):  # a driver and Arrow take a second to import; `abs --help` shall not wait for them
    from abs_core.coordinator import Coordinator
    from abs_sinks.postgres import PostgresRegister
    from abs_sinks.postgres.committer import PostgresCommitter

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="ABS_POSTGRES_URL", help="The database: as the sink's option url."
    ),
]
Schema = Annotated[
    str, typer.Option("--stateschema", help="The schema of registers: as the sink's option.")
]
Job = Annotated[str, typer.Argument(help="The job's key, as `abs register list` shows it.")]


@dataclass(frozen=True, slots=True)
class State:
    """The registers of one state schema, and what acts on their handles."""

    register: PostgresRegister
    committer: PostgresCommitter

    @classmethod
    def at(cls, url: str, schema: str) -> State:
        """Does not connect."""
        import pyarrow as pa

        from abs_sinks.postgres import PostgresOptions, PostgresRegister
        from abs_sinks.postgres.committer import PostgresCommitter

        # The table is not looked at: handles are ended by name.
        named = {"url": url, "dbtable": f'"{schema}".register', "stateschema": schema}
        options = PostgresOptions.parse(named)
        return cls(PostgresRegister(options), PostgresCommitter(options, pa.schema([])))

    def of(self, job: str) -> JobState:
        """The state of a job.

        Raises:
            ConfigError: there is no such job.
        """
        stored = self.register.load(job)
        if stored is None:
            known = [s.state.job for s in self.register.jobs()]
            raise ConfigError(
                f"There is no register of a job {job!r} here.",
                remedy=f"the jobs here are: {', '.join(known)}."
                if known
                else "there is none here.",
            )
        return stored.state

    def coordinator(self, state: JobState) -> Coordinator:
        """Acts for the run that holds the job now: it raises no generation and fences nobody."""
        from abs_core.coordinator import Coordinator

        who = Identity(state.job, state.lineage, state.run, state.target)
        return Coordinator(who, self.register, self.committer)
