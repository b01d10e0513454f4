"""Whether a folder went back: by objects of the last epochs.

A reader or a lifecycle rule may remove objects, the oldest first. So missing objects tell only where
those of an earlier epoch are still there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import islice

from abs_clients.s3.objects import Objects
from abs_core.lookback import LookedBack, Past, Position, compared, reading_mark
from abs_core.model import MAX_MARK, Committable, HandleName, Shown
from abs_core.strictjson import fields, of, parse, text, whole
from abs_sinks.asof import AsOf, Reading
from abs_sinks.s3.layout import UPTO, FileName, UpTo, handle_of, job_text
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.uploads import uploads_of

_UNSURE = (
    "No object of its last epochs is there: they were removed, or the folder was restored empty."
)

_LOOKED_AT = 32
"""Objects of a lost time line that are listed: those of ``protocol=idempotent`` may be undecided."""


def shown(committables: Sequence[Committable]) -> list[Shown]:
    """How many objects the epoch has, with the first and the last one's key."""
    keys = sorted(upload.key for one in committables for upload in uploads_of(one))
    rows = sum(committable.rows for committable in committables)
    for named in (keys[:1] + keys[-1:], keys[-1:]) if keys else ():
        values = {"objects": len(keys), "keys": sorted(set(named))}
        mark = json.dumps(values, ensure_ascii=False)
        if len(mark) <= MAX_MARK:
            return [Shown(0, rows, mark)]
    return []


def as_of(mark: str, *, readable: bool) -> AsOf:
    """The epoch's objects, and which of a job's objects are of it or of an earlier one.

    Args:
        readable: whether the options for Spark are told, too.
    """
    with reading_mark("S3"):
        values = fields(parse(mark))
        keys = [text(key) for key in of(list, values["keys"])]
        count = whole(values["objects"])
        last = handle_of(keys[-1]) if keys else None
        if last is None:
            raise ValueError("no object of a sink")
    upto = UpTo(last.register, (last.generation, last.epoch))
    place = {
        "register": upto.register,
        "generation": last.generation,
        "epoch": last.epoch,
        "objects": count,
        "first": keys[0],
        "last": keys[-1],
    }
    reading = Reading("abs-s3", {UPTO: str(upto)}, as_sink=True) if readable else None
    return AsOf(place, f"{count} objects of {last.generation}-{last.epoch}", reading=reading)


def look_back(options: S3Options, past: Past) -> list[LookedBack]:
    """Compare the folder with what is noted.

    At a start only: consumers may take away the last epoch's objects, and older ones a moment later.
    """
    if past.running:
        return []
    objects = Objects(options.bucket)

    def keys_of(mark: str) -> list[str]:
        with reading_mark("S3"):
            return [text(key) for key in of(list, fields(parse(mark))["keys"])]

    def is_there(mark: str) -> bool:
        return all(objects.head(key) is not None for key in keys_of(mark))

    @cache
    def left() -> set[tuple[str, int, int]]:
        # Names may begin with anything (``partitionby``), so all of the folder is listed, and once.
        listed = objects.list(options.path.key(""))
        return {_epoch(name) for entry in listed if (name := handle_of(entry.key))}

    def has_part(mark: str) -> bool:
        noted = handle_of(keys_of(mark)[-1])
        return noted is None or _epoch(noted) in left()

    looks = []
    why = "Objects of these epochs are not there; older ones are."
    for look in compared(past, is_there, why, has_part=has_part):
        noted = {note.epoch for note in past.noted if note.sink == look.sink}
        newest = max(noted - set(look.gone), default=None)
        if newest is None:
            looks.append(LookedBack(look.sink, unsure=_UNSURE, untold=look.gone))
        else:
            gone = tuple(epoch for epoch in look.gone if epoch > newest)
            removed = tuple(epoch for epoch in look.gone if epoch < newest)
            partly = tuple(epoch for epoch in look.partly if epoch in gone)
            looks.append(replace(look, gone=gone, untold=removed, partly=partly))
    return looks + [LookedBack(0, ahead=position) for position in _later(objects, options, past)]


def _epoch(name: HandleName) -> tuple[str, int, int]:
    return name.register, name.generation, name.epoch


def _later(objects: Objects, options: S3Options, past: Past) -> list[Position]:
    """Decisions of a lost time line, by the names of their objects.

    Not told where names begin with what differs: ``partitionby``, or another template of ``filename``.
    """
    if options.partitionby or "{" in options.filename:
        return []
    generation, epoch = past.decided
    lead = options.path.key(f"{options.filename}.{job_text(past.job)}-{past.register}-")
    listed = islice(objects.list(f"{lead}{generation}-{epoch + 1}-"), _LOOKED_AT)
    names = (FileName.parse(entry.key.rpartition("/")[2]) for entry in listed)
    later = []
    if any(name is not None and not name.by_manifest for name in names):
        later.append((generation, epoch + 1))
    # Of any later generation: runs that wrote nothing may lie between.
    seen = [int(text) for text in objects.between(lead, "-") if text.isdecimal()]
    if max(seen, default=0) > generation:
        later.append((max(seen), -1))
    return later
