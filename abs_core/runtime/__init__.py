"""The embedded runtime: barriers in FIFO channels, snapshots, exactly-once sinks, in one process."""

from abs_core.runtime.alignment import STRATEGIES
from abs_core.runtime.checkpoint_rules import Settings
from abs_core.runtime.describe import describe, mermaid
from abs_core.runtime.graph import EventTime, Graph, Stream
from abs_core.runtime.job import Job
from abs_core.runtime.recovery import Restore
from abs_core.several.sinks import Sinks

__all__ = [
    "STRATEGIES",
    "EventTime",
    "Graph",
    "Job",
    "Restore",
    "Settings",
    "Sinks",
    "Stream",
    "describe",
    "mermaid",
]
