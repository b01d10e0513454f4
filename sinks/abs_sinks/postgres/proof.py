"""Records the schema of a prepared transaction's marker, the only proof of its commit.

With a register elsewhere a changed option ``stateschema`` would hide the marker, and committed rows
would count as lost. So a committable records the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from abs_core.errors import ConfigError
from abs_core.model import PROTOCOL, Committable, HandleName, Outcome

_SCHEMA = "stateschema"


def noted(stateschema: str | None) -> tuple[tuple[str, str], ...]:
    """The ``extra`` of a committable of ``2pc``; None: the register is in the same schema."""
    return ((PROTOCOL, "2pc"), *(((_SCHEMA, stateschema),) if stateschema is not None else ()))


def check_proof_is_here(
    stateschema: str, committables: Sequence[Committable], found: Mapping[HandleName, Outcome]
) -> None:
    """Refuse an unknown outcome of a handle whose marker is in another schema.

    Args:
        stateschema: the schema of the markers that were read.

    Raises:
        ConfigError: a handle is neither prepared nor marked, and records another schema.
    """
    for committable in committables:
        there = dict(committable.extra).get(_SCHEMA, stateschema)
        if found[committable.handle] is Outcome.UNKNOWN and there != stateschema:
            raise ConfigError(
                f"The option stateschema is {stateschema}, but the schema {there} records whether "
                "this is committed.",
                job=committable.handle.job,
                epoch=committable.handle.epoch,
                handle=str(committable.handle),
                remedy=f"set stateschema={there} until the decided epoch is finished; after that "
                "it may be changed.",
            )
