"""Which options of the PostgreSQL sink go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abs_clients.options import Problems
from abs_sinks.options import CommonOptions, check_changes, check_may_bury

OF_CHANGES = (
    "sequenceby",
    "applyasdeletes",
    "exceptcolumns",
    "positions",
    "tombstones",
    "unchanged",
    "committedat",
)
"""The options that ``write=changes`` has alone."""


def check_together(
    common: CommonOptions,
    values: Mapping[str, Any],
    defaults: Mapping[str, Any],
    problems: Problems,
) -> None:
    """Refuse combinations that cannot keep the guarantee."""
    write = values["write"]
    if common.protocol == "2pc" and write in ("upsert", "changes"):
        action = "upsert" if write == "upsert" else "apply changes"
        problems.add(
            f"protocol=2pc cannot {action}: two tasks that touch the same key would block each other "
            "for ever, each prepared and neither committed.",
            "set protocol=wal (the epoch appears at once) or protocol=idempotent (least work).",
        )
    if common.protocol == "idempotent" and write == "append":
        problems.add(
            "protocol=idempotent cannot append: an epoch that is written again would double its "
            "rows.",
            "set write=upsert and key, or protocol=2pc or wal.",
        )
    if write == "upsert" and not values["key"]:
        problems.add("write=upsert needs the option key.", "name the columns that identify a row.")
    _check_changes(values, defaults, problems)
    if values["onconflict"] != "fail" and (write != "append" or common.protocol != "wal"):
        problems.add(
            f"onconflict={values['onconflict']} needs write=append and protocol=wal: COPY, by which "
            "2pc appends, knows no conflicts, and other writes replace rows.",
            "set protocol=wal, or leave onconflict out.",
        )
    for name in ("key", "orderby"):
        if write == "append" and values[name] and values["onconflict"] != "nothing":
            problems.add(
                f"The option {name} has no meaning for write=append.", "did you mean write=upsert?"
            )
    check_may_bury(common, values, problems)
    if values["deadletter"] is not None and values["deadletter"] == values["dbtable"]:
        problems.add("The options deadletter and dbtable name one table.", "name another one.")


def _check_changes(
    values: Mapping[str, Any], defaults: Mapping[str, Any], problems: Problems
) -> None:
    of_changes = {name: defaults[name] for name in OF_CHANGES}
    if not check_changes(values, of_changes, problems):
        return
    if values["orderby"]:
        problems.add("The option orderby has no meaning for write=changes.", "use sequenceby.")
    if both := set(values["key"]) & set(values["sequenceby"]):
        problems.add(
            f"The columns {', '.join(sorted(both))} are in key and in sequenceby.",
            "the key says which row changes, sequenceby in which order.",
        )
