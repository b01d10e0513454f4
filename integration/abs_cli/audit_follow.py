"""``abs audit --follow``: compares beside a job that runs."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING

from rich.markup import escape

from abs_cli.audit_job import progress_shown
from abs_cli.output import errors, people
from abs_core.errors import UnavailableError

if TYPE_CHECKING:
    from abs_audit import AuditSettings, Relation, Round


def followed(
    source: Relation,
    target: Relation,
    settings: AuditSettings,
    every: float,
    late: float,
    times: int | None,
    *,
    as_json: bool,
) -> bool:
    """Compare until ``times`` or Ctrl-C, print each comparison, and return whether the last was well.

    A side that cannot be read for a while is told, and read again.

    Raises:
        UnavailableError: it could not be read in the last comparison.
        ConfigError, DataError, TargetError: the sides do not fit, or refuse.
    """
    from abs_audit import follow

    left, well = times, True
    while left is None or left > 0:
        try:
            with contextlib.closing(follow(source, target, settings, late=late)) as rounds:
                while left is None or left > 0:
                    left = None if left is None else left - 1
                    with progress_shown():
                        found = next(rounds)
                    well = not found.reasons
                    _tell(found, as_json=as_json)
                    if left != 0:
                        time.sleep(every)
        except UnavailableError as error:
            if left == 0:
                raise
            errors.print(f"[yellow]not read:[/] {escape(str(error))}", soft_wrap=True)
            time.sleep(every)
    return well


def _tell(found: Round, *, as_json: bool) -> None:
    from abs_audit.render import show_round

    if as_json:
        sys.stdout.write(json.dumps(found.to_dict()) + "\n")
        sys.stdout.flush()
    else:
        show_round(found, people)
