"""Retries calls to a system that does not answer, and logs the wait.

``waiting`` writes the log lines of a wait; ``slow_writes`` does so for a task's long write.
"""

from abs_core.patience._patience import DEFAULT_PATIENCE, DEFAULT_SECONDS, Patience, several

__all__ = ["DEFAULT_PATIENCE", "DEFAULT_SECONDS", "Patience", "several"]
