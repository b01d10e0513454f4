"""Exit codes of the command ``abs``.

===  ==================================================================================
0    done, and what was asked about is well
1    the thing asked about is not clean or not up, or a rule or the target refused
2    the command line, the configuration or this machine's set-up is wrong
3    the target cannot be reached or is busy; the same command may succeed later
130  interrupted (Ctrl-C)
===  ==================================================================================
"""

from __future__ import annotations

from abs_core.errors import AbsError, ConfigError, ContentionError, UnavailableError

FAILED = 1
USAGE = 2
UNAVAILABLE = 3
INTERRUPTED = 130


def exit_code(error: AbsError) -> int:
    """The exit code for an error (table above)."""
    match error:
        case ConfigError():
            return USAGE
        case UnavailableError() | ContentionError():
            return UNAVAILABLE
        case _:
            return FAILED
