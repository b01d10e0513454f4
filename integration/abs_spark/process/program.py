"""What a format's processes tell the program that started the query: through a pipe with a name.

Spark commits a format's epochs in a Python process of its own, which it ends after a minute without an
epoch. The program outlives it, has the user's observers and metrics, and alone can set anything in a
query's session. The processes find the pipe in their environment: Spark gives them the one that the
program had when it registered the formats.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPE = "ABS_PROGRAM_PIPE"
"""Environment variable of a format's processes."""

MAX_BYTES = 32 << 10
"""Of a message: a pipe of Linux holds 64 KiB, and one that does not fit at once is not sent."""

_log = logging.getLogger("abs_spark.start")
_registering = threading.RLock()

Heard = Callable[[Any], None]

_heard: dict[str, Heard] = {}


def hear(subject: str, heard: Heard) -> None:
    """In the program: call a function with each message about a subject, in the thread that reads them.

    Args:
        heard: must not raise; called from one thread, one message after another.
    """
    _heard[subject] = heard


def tell_program(subject: str, message: object) -> bool:
    """In a format's process: send the program what JSON can hold; whether it was sent.

    Not where there is no such program: under Spark Connect, without ``abs_spark.register``, on another
    machine, or after it has ended. Waits for nothing and raises nothing.
    """
    place = os.environ.get(PIPE)
    if place is None:
        return False
    # The first line break ends a message that was cut, so that the reader finds this one.
    line = b"\n" + json.dumps([subject, message]).encode() + b"\n"
    if len(line) > MAX_BYTES:
        return False
    try:
        pipe = os.open(place, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # Two messages that are longer than PIPE_BUF would be mixed. Who holds the lock does not
            # wait for the reader: what does not fit into the pipe is left out.
            fcntl.flock(pipe, fcntl.LOCK_EX)
            return os.write(pipe, line) == len(line)
        finally:
            os.close(pipe)
    except OSError as error:
        _log.debug("the program is not told of %s: %s", subject, error)
        return False


@contextmanager
def program_hears(spark: SparkSession) -> Iterator[bool]:
    """Formats that are registered while this is open tell this process what their processes do.

    Yields whether they do: not under Spark Connect, whose server another program has started.
    """
    context: Any = getattr(spark, "_sc", None)
    if getattr(context, "environment", None) is None or not hasattr(os, "mkfifo"):
        yield False
        return
    with _registering:
        # Another one, not changed: another thread may just be sending it with a function.
        environment = context.environment
        context.environment = {**environment, PIPE: _pipe(os.getpid())}
        try:
            yield True
        finally:
            context.environment = environment


@cache
def _pipe(process: int) -> str:
    """The pipe of this process, and a thread that follows it."""
    folder = tempfile.mkdtemp(prefix="abs-sinks-")
    atexit.register(_remove, folder, process)
    place = str(Path(folder) / "program")
    os.mkfifo(place, 0o600)
    # To read and write: so it has no end where the last epoch's commit has closed it.
    pipe = os.open(place, os.O_RDWR)
    threading.Thread(target=_follow, args=(pipe,), name="abs-program", daemon=True).start()
    return place


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # not as a fork of it ends
        shutil.rmtree(folder, ignore_errors=True)


def _follow(pipe: int) -> None:
    with open(pipe, "rb") as lines:
        for line in lines:
            try:
                subject, message = json.loads(line)
            except ValueError:
                continue  # an empty line, or a message that was cut
            if heard := _heard.get(subject):
                heard(message)
