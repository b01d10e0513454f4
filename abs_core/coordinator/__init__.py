"""Drives the rules of ``protocol`` against a register and a sink's committer: all I/O of the core.

``cell`` loads and changes a job's register cell, ``_decider`` decides an epoch, ``rollforward``
commits what is decided, ``_sweeper`` aborts the rest. ``permission`` says whether an epoch may still
be decided.
"""

from abs_core.coordinator._coordinator import NOTHING_BEGUN, Coordinator
from abs_core.coordinator._report import Report

__all__ = ["NOTHING_BEGUN", "Coordinator", "Report"]
