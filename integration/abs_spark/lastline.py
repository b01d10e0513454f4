"""Repeats the sentence and remedy of an error as the last line of a failed job's output.

Spark prints a Python sink's error in the middle of a traceback of up to a hundred lines.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from types import TracebackType

_OURS = re.compile(
    r"abs_core\.errors\.(\w+): ("
    r"(?:(?!\n\n|\n\s*at |\n\s*File |\nTraceback|\n===|abs_core\.errors\.)[\s\S])*?What to do: .*|.+)"
)
"""An error's name and text: through the line of its remedy, if no traceback comes before that."""
_NEXT_LINE = re.compile(r"(:?)\s*\n\s*(?:- )?")
_NO_UPDATE = (
    "OptionError: {}: Spark gives a Python sink no outputMode update. What to do: give "
    "abs_spark.epoch to foreachBatch, with a sink of write=upsert and key, which keeps running "
    "aggregates current; or use outputMode append with a watermark."
)
_NO_TIME = (
    "{}: Spark has the type TIME switched off. What to do: set spark.sql.timeType.enabled to true "
    "in the session, or cast the column."
)
_TWO_DRIVERS = (
    "FencedError: {}: another driver runs this query on the same checkpoint, and has taken over. "
    "What to do: nothing, if you restarted the job; otherwise stop one of the two drivers."
)
_BY_SPARK = (
    (re.compile(r"\[(CONCURRENT_STREAM_LOG_UPDATE)\b"), _TWO_DRIVERS),
    (re.compile(r"(abs-\w+) does not support Update mode"), _NO_UPDATE),
    (re.compile(r"\[(UNSUPPORTED_TIME_TYPE)\]"), _NO_TIME),
)
"""Errors by which Spark itself ends or refuses a query, with our sentence for each."""


def sentence_of(error: BaseException) -> str | None:
    """Name and sentence of the project's error in this exception's text or in one of its causes.

    Some queries are ended or refused by Spark itself; those cases have sentences here.
    """
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if found := _OURS.findall(str(at)):
            # The last one: before it stand those that it was made from.
            name, sentence = found[-1]
            one_line = _NEXT_LINE.sub(lambda end: f"{end[1] or ';'} ", sentence.strip())
            return f"{name}: {one_line}"
        for pattern, sentence in _BY_SPARK:
            if refused := pattern.search(str(at)):
                return sentence.format(refused[1])
        at = at.__cause__ or at.__context__
    return None


@cache
def show_last() -> None:
    """Install a ``sys.excepthook`` that prints the line after the previous hook; can be repeated."""
    before = sys.excepthook

    def shown(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        before(kind, error, traceback)
        if kind.__module__.startswith("pyspark.") and (sentence := sentence_of(error)):
            print(f"\nabs-sinks: {sentence}", file=sys.stderr)

    sys.excepthook = shown
