"""The printed guarantee of each protocol."""

from __future__ import annotations

from abs_core.model import Guarantee
from abs_sinks.postgres.options import PostgresOptions

_VISIBILITY = {
    "2pc": "per task: when the epoch is committed, the rows of its tasks become visible one task "
    "after another, within milliseconds",
    "wal": "whole epoch: all its rows become visible at once",
    "idempotent": "per task, before the epoch is decided: readers can see rows of an epoch that is "
    "then written again, with the same rows",
}

_READER = {
    "idempotent": "no setting needed. Readers that must not see undecided epochs need protocol=wal",
}

_LIMITS = {
    "2pc": (
        (
            "Between pre-commit and commit the rows keep their locks: a task that needs one of these "
            "locks, for instance for a unique key, waits for at most locktimeout, then fails."
        ),
        "Sequences and other objects outside of transactions advance with each attempt.",
    ),
    "wal": ("Triggers of the table fire when the epoch is applied, in one transaction.",),
    "idempotent": (
        "No row is deleted: a row stays even if its key does not occur again.",
        "All rows of one key must be in one task of an epoch: partition the data frame by the key.",
        "Triggers of the table fire again when an epoch is written again.",
    ),
}


def guarantee(options: PostgresOptions) -> Guarantee:
    """The guarantee that follows from the options."""
    visibility = _VISIBILITY[options.protocol]
    if options.replaces:
        visibility = "whole epoch: its rows replace all rows of the table at once"
    return Guarantee(
        protocol=options.protocol,
        write=options.write,
        visibility=visibility,
        reader=_READER.get(
            options.protocol, "no setting needed: every reader sees committed rows only"
        ),
        limits=_LIMITS[options.protocol],
    )
