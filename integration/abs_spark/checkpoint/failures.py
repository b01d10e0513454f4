"""Records a job's first failed batch in the query's checkpoint, so that no run skips it.

If a ``foreachBatch`` function catches an error, Spark takes the batch for written. In the same run the
process remembers it (``foreach.process``); the next run reads it from the file
``abs/failed-JOB.json`` below ``checkpointLocation``, where Spark records written batches too.
"""

from __future__ import annotations

import json
import logging

from abs_core.births.rules import Failed
from abs_core.errors import TargetError, UnavailableError
from abs_core.strictjson import fields, parse, reading, text, version, whole
from abs_spark.checkpoint.ownfile import OwnFile
from abs_spark.checkpoint.spark_files import FAILURES, check_never_readable

VERSION = 1

_log = logging.getLogger("abs_spark.recovery")


class FailedBatch:
    """The record of one job's failed batch.

    Args:
        checkpoint: the option ``checkpointLocation``.
        job: the register key.
    """

    def __init__(self, checkpoint: str, job: str) -> None:
        self._checkpoint = checkpoint
        self._job = job
        self._file = OwnFile(checkpoint, f"failed-{job}.json")

    def read(self) -> Failed | None:
        """Read the record; None if there is none, or the checkpoint is not reachable from here.

        Raises:
            CorruptionError: it is not a record, or a newer release's.
            UnavailableError: this process has read the checkpoint before, and cannot now.
        """
        try:
            _, content = self._file.look()
        except FAILURES as error:
            check_never_readable(self._checkpoint, error)
            return None
        return None if content is None else from_bytes(content, self._file.path, self._job)

    def note(self, batch: int, *, partly: bool = False) -> None:
        """Record the batch unless an earlier one is; log a warning if that fails.

        Args:
            partly: see ``Failed``.
        """
        failed = Failed(batch, partly)
        try:
            noted = self.read()
            if noted is not None and (noted.epoch, not noted.partly) <= (batch, not partly):
                return  # a start that fails, or is refused, writes the noted one no more than this
            self._file.replace(to_bytes(self._job, failed))
        except (*FAILURES, TargetError) as error:
            _log.warning(
                "job %s: batch %d failed, and this cannot be recorded in the checkpoint (%s): if the "
                "query continues, audit the target before you restart the query",
                self._job,
                batch,
                str(error)[:200],
            )

    def forget(self) -> None:
        """Delete the record once its batch is decided, at best effort."""
        try:
            self._file.delete()
        except FAILURES as error:
            _log.warning("job %s: %s", self._job, str(error)[:200])

    def rename(self, old: str) -> None:
        """Move the record from the job's former name to this one.

        Raises:
            UnavailableError: it cannot be moved now.
        """
        before = FailedBatch(self._checkpoint, old)
        failed = before.read()
        if failed is None:
            return
        try:
            self._file.replace(to_bytes(self._job, failed))
        except FAILURES as error:
            raise UnavailableError(
                f"A batch failed under the job's old name, {old}, and this cannot be recorded "
                f"under the new one: {str(error)[:200]}.",
                job=self._job,
                remedy="let the driver's Python write into the checkpoint, then restart the query.",
            ) from error
        before.forget()


def to_bytes(job: str, failed: Failed) -> bytes:
    """The text of the record."""
    partly = {"partly": True} if failed.partly else {}
    return json.dumps({"version": VERSION, "job": job, "epoch": failed.epoch, **partly}).encode()


def from_bytes(content: bytes, path: str, job: str) -> Failed:
    """Parse the record.

    Raises:
        CorruptionError: it is not a record, or a newer release's.
    """
    remedy = "check which batches the target contains, and delete the file"
    with reading(path, remedy, job):
        document = fields(parse(content))
        version(document["version"], VERSION)
        text(document["job"])
        return Failed(whole(document["epoch"]), document.get("partly", False) is True)
