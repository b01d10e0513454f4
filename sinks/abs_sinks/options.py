"""The options that every sink takes; how options are read is in ``abs_clients.options``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from abs_clients.options import (
    Option,
    Problems,
    boolean,
    duration,
    one_of,
    read_options,
    seconds,
    text,
    whole_number,
)
from abs_core.model import job_key
from abs_core.patience import DEFAULT_SECONDS

__all__ = [
    "COMMON",
    "PROTOCOLS",
    "REPLAYS",
    "CommonOptions",
    "Option",
    "Problems",
    "boolean",
    "duration",
    "one_of",
    "read_options",
    "seconds",
    "text",
    "whole_number",
]

PROTOCOLS = ("2pc", "wal", "idempotent")
REPLAYS = ("digest", "count", "token")


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """What every sink takes.

    Args:
        protocol: ``2pc``, ``wal`` or ``idempotent``.
        job: stable name of the job; None: the engine's own (Spark: the query id).
        epoch: names a batch write, so that running it again changes nothing.
        adopt: token by which a run takes over another lineage's or target's register.
        wal: URL of the write-ahead log, for sinks that keep it outside their target.
        checkpoint: the engine's checkpoint location, where it tells.
        patience: seconds for which a system that does not answer is waited for.
        replay: how an epoch that comes again is told from another one where the checkpoint does not
            tell: by a ``digest`` of its rows, by their ``count``, or by a batch's ``token`` alone.
    """

    protocol: str = "2pc"
    job: str | None = None
    epoch: str | None = None
    adopt: str | None = None
    wal: str | None = None
    checkpoint: str | None = None
    patience: float = DEFAULT_SECONDS
    replay: str = "digest"

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> CommonOptions:
        """From what ``read_options`` returned for ``COMMON``."""
        return cls(
            protocol=values["protocol"],
            job=values["job"],
            epoch=values["epoch"],
            adopt=values["adopt"],
            wal=values["wal"],
            checkpoint=values["checkpointLocation"],
            patience=values["patience"],
            replay=values["replay"],
        )


def _job_name(given: str) -> str:
    job_key(text(given))
    return given


COMMON = (
    Option("protocol", one_of(*PROTOCOLS), "2pc"),
    Option("job", _job_name),
    Option("epoch", text),
    Option("adopt", text),
    Option("wal", text),
    Option("checkpointLocation", text),
    Option("patience", duration(1.0, 86_400.0), DEFAULT_SECONDS),
    Option("replay", one_of(*REPLAYS), "digest"),
    # Spark adds it to a query that has a name.
    Option("queryName", str),
)
"""The options of every sink, see ``CommonOptions``."""
