"""Files that a client reads once, when it is made, and that are replaced while it is used.

Certificates are: cert-manager and others put a new one in the file before the old one ends. A client
that has read the old one connects until then, and never again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from abs_core.errors import OptionError

Stamp = tuple[tuple[int, int, int], ...]


class ReadFiles:
    """Tells when a client has to be made anew. Thread-safe.

    Create it before the client reads the files: what is replaced in between counts as replaced.

    Args:
        paths: files, or folders of files.
        load: reads them as the client does; raises ``OptionError`` if they do not fit together.
    """

    def __init__(self, paths: Sequence[str], load: Callable[[], object]) -> None:
        self._paths = [Path(path) for path in paths]
        self._load = load
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._unfit: Stamp | None = None

    def replaced(self) -> bool:
        """Whether there are others than at the last call, which fit together.

        Of a certificate and its key, which are written one after the other, one is new for a moment,
        or half written: until both are, the client that there is stays in use.
        """
        if not self._paths:
            return False
        with self._lock:
            now = self._stamp()
            if now in (None, self._seen, self._unfit):
                return False
            try:
                self._load()
            except OptionError:
                self._unfit = now
                return False
            self._seen = now
            return True

    def _stamp(self) -> Stamp | None:
        """Differs once a file is replaced; None while one is not there."""
        with suppress(OSError):
            stats = [path.stat() for path in self._paths]
            return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)
        return None
