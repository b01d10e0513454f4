"""What each protocol promises, in words for the person who starts the job."""

from __future__ import annotations

from abs_core.model import Guarantee
from abs_sinks.postgres.options import PostgresOptions

_VISIBILITY = {
    "2pc": "per task: when the epoch is committed, its tasks' rows appear one task after another, "
    "within milliseconds of each other",
    "wal": "whole epoch: all of its rows appear at once",
    "idempotent": "per task, and before the epoch is decided: a reader can see rows of an epoch "
    "that is then written again, with the same rows",
}

_READER = {
    "idempotent": "nothing; who must not see an epoch before it is decided takes protocol wal",
}

_LIMITS = {
    "2pc": (
        (
            "Between pre-commit and commit the rows hold their locks: a task that needs one of them, "
            "for a unique key for instance, waits for locktimeout at most, then fails."
        ),
        "Sequences and other things outside transactions advance once per attempt, not per row.",
    ),
    "wal": ("Triggers of the table fire when the epoch is applied, in one transaction.",),
    "idempotent": (
        "A row whose key does not come again stays: nothing is deleted.",
        "All rows of one key must lie in one task of an epoch: partition the data frame by the key.",
        "Triggers of the table fire again when an epoch is written again.",
    ),
}


def guarantee(options: PostgresOptions) -> Guarantee:
    """The guarantee that follows from the options."""
    visibility = _VISIBILITY[options.protocol]
    if options.replaces:
        visibility = "whole epoch: its rows take the place of all that the table held, at once"
    return Guarantee(
        protocol=options.protocol,
        write=options.write,
        visibility=visibility,
        reader=_READER.get(options.protocol, "nothing: every reader sees committed rows only"),
        limits=_LIMITS[options.protocol],
    )
