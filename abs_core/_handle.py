"""Handle names, and the job keys that they contain; import them from ``abs_core.model``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from abs_core.errors import OptionError, ProtocolError
from abs_core.strictjson import shown, text

MAX_JOB_KEY = 100
"""Longest job key, in characters: a handle's name must fit PostgreSQL's 200-byte gid."""

NO_EPOCH = 10**18 - 1
"""The epoch number in a bounded name; no real epoch has it, so it is never finished or abandoned."""

_NAME = re.compile(
    r"abs1:(?P<register>[0-9a-f]{16}):(?P<job>[A-Za-z0-9_.~%@-]{1,100})"
    r":(?P<generation>0|[1-9][0-9]{0,17}):(?P<epoch>0|[1-9][0-9]{0,17})"
    r":(?P<partition>0|[1-9][0-9]{0,9}):(?P<attempt>[0-9a-f]{1,24})"
)


def job_key(job: str, token: str | None = None) -> str:
    """The register key of a job, or of one batch write of a job.

    Args:
        job: the job's stable name.
        token: the ``epoch`` token of a batch write; each token has its own register record.

    Returns:
        ``job`` or ``job@token``, percent-encoded.

    Raises:
        OptionError: a name is empty, longer than ``MAX_JOB_KEY`` once encoded, or not valid Unicode.
    """
    parts = [job] if token is None else [job, token]
    if not all(parts):
        raise OptionError(
            "A job's name and its epoch token cannot be empty.",
            remedy="give the option job (or epoch) a name, or leave it out.",
        )
    try:
        key = "@".join(quote(part, safe="") for part in parts)
    except UnicodeEncodeError as error:
        raise OptionError(
            f"The job name {job!a} is not valid Unicode text: it contains an unpaired surrogate.",
            remedy="write it as UTF-8.",
        ) from error
    if len(key) > MAX_JOB_KEY:
        raise OptionError(
            f"The job name {job!r}{f' with epoch {token!r}' if token else ''} takes {len(key)} "
            f"characters once encoded; a handle's name has room for {MAX_JOB_KEY}.",
            remedy="choose a shorter name for the option `job` (or `epoch`).",
        )
    return key


@dataclass(frozen=True, slots=True, order=True)
class HandleName:
    """The durable name of one writer's pre-commit (I6: no two live writers share one).

    Register id and generation identify the run, epoch and partition the work, and the random attempt
    each retry or speculative copy of a task.

    Raises:
        ProtocolError: ``parse`` could not read the name back.
    """

    register: str
    job: str
    generation: int
    epoch: int
    partition: int
    attempt: str

    def __post_init__(self) -> None:
        # No sweep would find a name that does not parse.
        if _NAME.fullmatch(str(self)) is None:
            raise ProtocolError(
                f"{str(self)!r} is not a valid handle name.",
                remedy="this is a defect of the engine's adaptor: names take the register's id, a "
                "key made by `job_key`, numbers from 0 on and an attempt in lower-case hex.",
            )

    def __str__(self) -> str:
        return (
            f"abs1:{self.register}:{self.job}:{self.generation}:{self.epoch}"
            f":{self.partition}:{self.attempt}"
        )

    @classmethod
    def parse(cls, name: str) -> HandleName | None:
        """Parse a name; None unless the whole text is one."""
        if _NAME.fullmatch(name) is None:
            return None
        _, register, job, generation, epoch, partition, attempt = name.split(":")
        return cls(register, job, int(generation), int(epoch), int(partition), attempt)

    @classmethod
    def read(cls, stored: object) -> HandleName:
        """Read a stored name; ``ValueError`` if it is not a handle's name."""
        handle = cls.parse(text(stored))
        if handle is None:
            raise ValueError(f"{shown(stored)} is not a handle name")
        return handle
