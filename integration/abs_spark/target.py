"""What a query writes to: a format, its options read once, and the schema of the input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from abs_core.contracts import Sink
from abs_core.patience import Patience
from abs_sinks.options import CommonOptions


class Options(Protocol):
    """A sink's options. Its ``repr`` shows no secret (I9); it is hashable and can be pickled."""

    @property
    def common(self) -> CommonOptions: ...

    @property
    def patience(self) -> Patience:
        """With the system that is written to; it names it."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of sink, under the name that Spark users write.

    Args:
        name: as in ``writeStream.format(name)``.
        parse: reads the options; raises ``OptionError`` with all that is wrong.
        sink: builds the sink; does not connect.
        beside: builds the sink for a job whose register lies elsewhere, or has other sinks, too.

    All are pickled by reference.
    """

    name: str
    parse: Callable[[Mapping[str, str]], Any]
    sink: Callable[[Any, pa.Schema], Sink]
    beside: Callable[[Any, pa.Schema], Sink]


@dataclass(frozen=True, slots=True)
class Target:
    """Enough to build the same sink in any process of the query.

    It goes to the executors in the pickled task, credentials included, as any Spark connector's
    options do; it never goes into a plan, a message or a log.
    """

    format: Format
    options: Options
    schema: pa.Schema

    def sink(self, *, alone: bool = True) -> Sink:
        """A new sink; the caller closes it.

        Args:
            alone: whether it is the only one of its job, whose register it then has.
        """
        make = self.format.sink if alone else self.format.beside
        return make(self.options, self.schema)
