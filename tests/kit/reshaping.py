"""A writer for the checks' batches, where a sink wants columns of another shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from abs_core.contracts import Writer
from abs_core.model import Committable


@dataclass(frozen=True)
class ReshapingWriter:
    """Hands each batch over in the shape that ``reshape`` gives it."""

    _writer: Writer
    reshape: Callable[[pa.RecordBatch], pa.RecordBatch]

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(self.reshape(batch))

    def pre_commit(self) -> Committable | None:
        return self._writer.pre_commit()

    def abort(self) -> None:
        self._writer.abort()
