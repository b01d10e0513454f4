"""Several sinks as one end of a stream: every row goes to each, an epoch is in all or in none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from abs_core.contracts import Sink
from abs_core.sinkmap import check_names


@dataclass(frozen=True, slots=True)
class Sinks:
    """Sinks by their names, for an engine that unfolds them: each is a sink of the job's one decision.

    It is no ``Sink`` itself. A ``Writer`` has one handle, and one handle cannot stand for several: the
    sweep asks of each handle of each target whether a decision names it.

    Raises:
        OptionError: there is none, or one of several has no name.
    """

    by_name: Mapping[str, Sink]

    def __post_init__(self) -> None:
        check_names(list(self.by_name))


def unfolded(id_: str, sink: Sink | Sinks) -> Mapping[str, Sink]:
    """The sinks by their ids: ``ID.NAME`` for each of several."""
    if isinstance(sink, Sinks):
        return {f"{id_}.{name}": one for name, one in sink.by_name.items()}
    return {id_: sink}
