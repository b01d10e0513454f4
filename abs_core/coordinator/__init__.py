"""Applies the rules of ``protocol`` to a register and a sink's committer: the core's I/O.

``cell`` loads and changes a job's register cell, ``_decider`` decides an epoch, ``rollforward``
commits decisions, ``_sweeper`` aborts the rest, and ``permission`` sets the deadline of a decision.
"""

from abs_core.coordinator._coordinator import NOTHING_BEGUN, Coordinator
from abs_core.coordinator._report import Report

__all__ = ["NOTHING_BEGUN", "Coordinator", "Report"]
