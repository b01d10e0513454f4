"""The embedded runtime: barriers in FIFO channels, snapshots, exactly-once sinks, in one process."""

from abs_core.barriers.alignment import STRATEGIES
from abs_core.barriers.checkpoint_rules import Settings
from abs_embedded.describe import describe, mermaid
from abs_embedded.graph import EventTime, Graph, Stream
from abs_embedded.job import Job
from abs_embedded.recovery import Restore
from abs_embedded.sinks import Sinks

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
