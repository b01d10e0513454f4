"""The project's errors. Each says what happened, to what, what to do next, and whether a retry helps.

    AbsError
    ├── ConfigError             the job as written cannot run; nothing was touched
    │   ├── OptionError         an option is unknown, missing, malformed or contradicts another
    │   └── PreflightError      the target, as it is set up, cannot keep the promise
    ├── DataError               the input does not fit the target; nothing of the epoch becomes visible
    │   ├── SchemaError         columns or types do not match
    │   ├── RowError            one value cannot be represented in the target
    │   └── SourceWentBackError a source of changes has begun again at older positions
    ├── ProtocolError           a rule of the commit protocol refuses
    │   ├── DeadLettersError    more rows are refused by a target than its limit allows
    │   ├── UnknownProtocolError a handle was made under a protocol that nothing here can act on
    │   ├── FencedError         a newer run of the job has taken over; this one must stop
    │   ├── IdentityError       the register belongs to another lineage or another target
    │   ├── RegisterLostError   the job's register is missing, another one, or older than it was
    │   ├── TargetWentBackError a target no longer has rows of finished epochs
    │   ├── ReplayMismatchError a replayed epoch is not the epoch that was committed
    │   ├── EpochGapError       an epoch was left out
    │   ├── AbandonedError      the epoch was given up by this generation; only a new run may try it
    │   ├── NotPreparedError    before the decision: a handle is no longer prepared; the epoch replays
    │   │   └── MiscountError   before the decision: written and dead rows are not those that passed
    │   └── HandleLostError     after the decision: a handle is aborted or of unknown outcome (I7)
    ├── NotYetError             an epoch that is waited for, or read, is not finished in all targets
    ├── JobGoneError            the job whose epoch is waited for has no register here any more
    └── TargetError             the other system answered with an error, or not at all
        ├── UnavailableError    it cannot be reached, or went away; the outcome may be unknown
        ├── ContentionError     something else holds a lock or a name that is needed
        ├── HungError           a function or a call does not come back
        ├── RefusedError        it refused: credentials, privileges, a constraint, a limit
        └── CorruptionError     what was read back is not what was written

Foreign exceptions (a database driver's, the file system's) are mapped once, at the edge, with
``from``. No message holds a secret (I9). Errors can be pickled.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Protocol, Self

MAX_LENGTH = 8000
"""Longest ``what`` of an error, in characters."""

# A password may have a slash, as those of S3 do; what follows a colon and digits is a port's path.
_LOGIN = re.compile(r"""://[^\s/?#'"@:]{0,200}(?::(?!\d+/)[^\s'"@]{0,500})?@""")


class HandleOfEpoch(Protocol):
    """The parts of ``model.HandleName`` that errors use."""

    @property
    def job(self) -> str: ...

    @property
    def epoch(self) -> int: ...


class AbsError(Exception):
    """Base of all errors of the project.

    Args:
        what: what happened, one sentence.
        remedy: what to do next, one sentence; empty where the cause already says it.
        handle: its name, or the value, which also sets job and epoch.

    ``code``: names the kind of error in its text and in ``docs/reference/errors.md``; it never changes.
    ``retryable``: whether the same operation, unchanged, can succeed. ``system``: name of the external
    system, where known.
    """

    code: ClassVar[str] = "ABS-ERROR"
    retryable: ClassVar[bool] = False
    system: str = ""

    def __init__(
        self,
        what: str,
        *,
        remedy: str = "",
        job: str | None = None,
        epoch: int | None = None,
        handle: str | HandleOfEpoch | None = None,
    ) -> None:
        # Cut twice: a login that the last cut would split is hidden before.
        self.what = _shortened(_without_logins(_shortened(what, 8 * MAX_LENGTH)))
        self.remedy = _without_logins(remedy)
        self.job = job
        self.epoch = epoch
        self.handle = None if handle is None else str(handle)
        if handle is not None and not isinstance(handle, str):
            self.job, self.epoch = handle.job, handle.epoch
        self.place: str | None = None
        super().__init__(self.what)

    def at(self, place: str) -> None:
        """Set where it happened, as the end of a sentence: ``on executor host-3``."""
        self.place = self.place or place

    def of(self, system: str) -> Self:
        """Set the external system, as named by its sink's patience: ``Kafka``."""
        self.system = self.system or system
        return self

    def by(self, operator: str, job: str) -> Self:
        """Prefix the operator's name, and set the job if it is not set."""
        self.what, self.job = f"Operator {operator}: {self.what}", self.job or job
        return self

    def __str__(self) -> str:
        named = [
            f"{label} {value}"
            for label, value in (("job", self.job), ("epoch", self.epoch), ("handle", self.handle))
            if value is not None
        ]
        named += [self.place] if self.place else []
        where = f" [{', '.join([self.code, *named])}]"
        remedy = f" What to do: {self.remedy}" if self.remedy else ""
        return f"{self.what}{where}{remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__.copy())


def _without_logins(text: str) -> str:
    """The text without user and password of the URLs in it (I9); a path keeps its ``@``."""
    return _LOGIN.sub("://***@", text)


def _shortened(text: str, most: int = MAX_LENGTH) -> str:
    """Cut the middle out of a text that is longer."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} ... {text[-most // 4 :]}"


def _rebuild(cls: type[AbsError], fields: dict[str, Any]) -> AbsError:
    error = cls.__new__(cls)
    error.__dict__.update(fields)
    error.args = (fields["what"],)
    return error


class ConfigError(AbsError):
    """The job as written cannot run. Nothing was touched. A remedy is required."""

    code = "ABS-CONFIG"

    def __init__(
        self,
        what: str,
        *,
        remedy: str,
        job: str | None = None,
        epoch: int | None = None,
        handle: str | HandleOfEpoch | None = None,
    ) -> None:
        super().__init__(what, remedy=remedy, job=job, epoch=epoch, handle=handle)


class OptionError(ConfigError):
    """An option is unknown, missing, malformed, or contradicts another one."""

    code = "ABS-OPTION"


class PreflightError(ConfigError):
    """The target, as it is set up, cannot keep the requested guarantee."""

    code = "ABS-PREFLIGHT"


class DataError(AbsError):
    """The input does not fit the target. Nothing of the epoch becomes visible."""

    code = "ABS-DATA"


class SourceWentBackError(DataError):
    """A source of changes was restored, or is another one: its positions begin again lower."""

    code = "ABS-SOURCE-WENT-BACK"


class SchemaError(DataError):
    """Columns or types of the input and the target do not match."""

    code = "ABS-SCHEMA"


class RowError(DataError):
    """A value cannot be represented in the target; the message names the column."""

    code = "ABS-ROW"


class ProtocolError(AbsError):
    """A rule of the commit protocol refuses to go on.

    ``left_out``: the first and the last epoch that its remedy would give up, if it would.
    """

    code = "ABS-PROTOCOL"
    left_out: tuple[int, int] | None = None


class DeadLettersError(ProtocolError):
    """More rows are refused by a target than its limit of dead letters allows."""

    code = "ABS-DEAD-LETTERS"


class UnknownProtocolError(ProtocolError):
    """No committer here handles the protocol that made a handle."""

    code = "ABS-UNKNOWN-PROTOCOL"


class FencedError(ProtocolError):
    """A newer run of the job has taken over; this one must stop."""

    code = "ABS-FENCED"


class IdentityError(ProtocolError):
    """The register belongs to another lineage or another target than this job's."""

    code = "ABS-IDENTITY"


class RegisterLostError(ProtocolError):
    """The job's register is missing, another one, or older than it was."""

    code = "ABS-REGISTER-LOST"


class TargetWentBackError(ProtocolError):
    """A target no longer has rows of finished epochs: it was restored, rolled back or made again."""

    code = "ABS-TARGET-WENT-BACK"


class ReplayMismatchError(ProtocolError):
    """A replayed epoch is not the epoch that was committed: skipping it would lose data.

    Args:
        why: the difference, as the end of a sentence; empty where ``what`` says it.
    """

    code = "ABS-REPLAY-MISMATCH"

    def __init__(self, what: str, *, why: str = "", **more: Any) -> None:
        super().__init__(what, **more)
        self.why = why


class EpochGapError(ProtocolError):
    """An epoch was left out: continuing would lose its rows."""

    code = "ABS-EPOCH-GAP"


class AbandonedError(ProtocolError):
    """This generation has abandoned the epoch; only a new run may write it again."""

    code = "ABS-ABANDONED"


class NotPreparedError(ProtocolError):
    """Before the decision, a handle is no longer prepared. Nothing is lost: the epoch is replayed."""

    code = "ABS-NOT-PREPARED"

    retryable = True


class MiscountError(NotPreparedError):
    """Before the decision, rows written and rows dead are not together those that passed."""

    code = "ABS-MISCOUNT"


class HandleLostError(ProtocolError):
    """After the decision, a handle is aborted or its outcome is unknown (invariant I7)."""

    code = "ABS-HANDLE-LOST"


class NotYetError(AbsError):
    """An epoch that is waited for, or read, is not finished in all targets."""

    code = "ABS-NOT-YET"

    retryable = True


class JobGoneError(AbsError):
    """The job has no register here, or another one than when the wait began: its epochs never come."""

    code = "ABS-JOB-GONE"


class TargetError(AbsError):
    """The external system answered with an error, or did not answer."""

    code = "ABS-TARGET"

    waited: float | None = None

    def gave_up(self, seconds: float, system: str, job: str | None) -> None:
        """Add how long the call was retried, and for whom; only the first call has an effect."""
        if self.waited is None:
            self.waited, self.job = seconds, self.job or job
            of = f" for {system}" if system else ""
            self.what = f"{self.what} Waited{of} for {seconds:.0f} s (option patience)."
            self.args = (self.what,)


class UnavailableError(TargetError):
    """The external system cannot be reached or went away; the request may have taken effect."""

    code = "ABS-UNAVAILABLE"

    retryable = True


class ContentionError(TargetError):
    """Another client holds a lock or name that is needed."""

    code = "ABS-CONTENTION"

    retryable = True


class HungError(TargetError):
    """A function or call did not return within its time limit."""

    code = "ABS-HUNG"


class RefusedError(TargetError):
    """The external system refused permanently: credentials, privileges, a constraint, a limit."""

    code = "ABS-REFUSED"


class CorruptionError(TargetError):
    """What was read back is not what was written."""

    code = "ABS-CORRUPTION"
