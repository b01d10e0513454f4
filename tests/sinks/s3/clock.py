"""Another clock for this process, as the sink and its client see it; the server keeps its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo

import botocore.crt.auth  # botocore signs by awscrt where that is installed
import pytest

from abs_sinks.s3 import layout

SetClock = Callable[[timedelta], None]
"""Puts the clock so far ahead of the right time."""


@contextmanager
def clock() -> Iterator[SetClock]:
    """Right again when the block ends."""
    with pytest.MonkeyPatch.context() as patch:

        def ahead(off: timedelta) -> None:
            class Clock(datetime):
                @classmethod
                def now(cls, tz: tzinfo | None = None) -> Clock:
                    return cls.fromtimestamp((datetime.now(UTC) + off).timestamp(), tz)

            def of_requests(remove_tzinfo: bool = True) -> datetime:
                now = Clock.now(UTC)
                return now.replace(tzinfo=None) if remove_tzinfo else now

            patch.setattr(layout, "datetime", Clock)
            patch.setattr(botocore.crt.auth, "get_current_datetime", of_requests)

        yield ahead
