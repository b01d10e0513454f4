"""Where the marker of a prepared transaction lies, which alone proves that it was committed.

Where the register lies elsewhere, nothing else would tell that the option ``stateschema`` was changed:
without its marker, what is committed would be taken for lost. So a committable says it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from abs_core.errors import ConfigError
from abs_core.model import PROTOCOL, Committable, HandleName, Outcome

_SCHEMA = "stateschema"


def noted(stateschema: str | None) -> tuple[tuple[str, str], ...]:
    """Of a committable of protocol ``2pc``.

    Args:
        stateschema: of its marker; None where the register lies there, too.
    """
    return ((PROTOCOL, "2pc"), *(((_SCHEMA, stateschema),) if stateschema is not None else ()))


def check_proof_is_here(
    stateschema: str, committables: Sequence[Committable], found: Mapping[HandleName, Outcome]
) -> None:
    """Refuse to tell what became of a handle whose marker would lie in another schema.

    Args:
        stateschema: where markers were looked for.

    Raises:
        ConfigError: one is neither prepared nor marked, and says another schema.
    """
    for committable in committables:
        there = dict(committable.extra).get(_SCHEMA, stateschema)
        if found[committable.handle] is Outcome.UNKNOWN and there != stateschema:
            raise ConfigError(
                f"The option stateschema is {stateschema}, and whether this is committed stands in the "
                f"schema {there}.",
                job=committable.handle.job,
                epoch=committable.handle.epoch,
                handle=str(committable.handle),
                remedy=f"set stateschema={there} until the decided epoch is finished; then it may be "
                "another one.",
            )
