"""Checks that an epoch's handles are prepared, and will be for long enough to commit them.

A target may abort a handle by itself (a transaction's timeout). After the decision its rows would be
lost, while an undecided epoch is written again. So a decision has a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from abs_core.contracts import Committer
from abs_core.errors import NotPreparedError
from abs_core.model import Committable, Inspection, Outcome
from abs_core.patience import Patience


@dataclass(slots=True)
class Permission:
    """Permission to decide one epoch by exactly these committables.

    Args:
        job: for errors.
        patience: of the later commit; handles must have that much time left.
        clock: in seconds, as ``time.monotonic``.
    """

    _job: str
    _epoch: int
    _committer: Committer
    _committables: Sequence[Committable]
    _patience: Patience
    _clock: Callable[[], float] = time.monotonic
    _deadline: float | None = None
    _timeout: str = ""
    tries: int = 0

    def inspect(self) -> None:
        """Inspect every handle and compute the deadline of the decision.

        Raises:
            NotPreparedError: a handle is no longer prepared, or has too little time left.
            TargetError: the target does not answer.
        """
        # Before the question: what is left counts from then, however late the answer comes.
        asked = self._clock()
        seen = self._committer.inspect(self._committables)
        self._deadline = None
        for committable in self._committables:
            inspection = seen.get(committable.handle, Inspection(Outcome.UNKNOWN))
            left = inspection.seconds_left
            if inspection.outcome is not Outcome.PREPARED or (
                left is not None and left < self._patience.to_decide
            ):
                raise self._refused(committable, inspection)
            if left is not None:
                self._timeout = inspection.timeout
                ends = asked + left - self._patience.to_commit
                self._deadline = ends if self._deadline is None else min(self._deadline, ends)

    def ask(self) -> float | None:
        """Allow one attempt of the decision and return its deadline; None: no deadline.

        Before each further attempt, handles that can expire are inspected again.

        Raises:
            NotPreparedError: no attempt is allowed now; an earlier one may still take effect.
            TargetError: the target does not answer.
        """
        self.tries += 1
        if self._deadline is None:
            return None
        if self.tries > 1:
            self.inspect()
        if self._deadline is not None and self._clock() >= self._deadline:
            raise NotPreparedError(
                "The epoch could not be decided in time: its handles would be aborted by their "
                "target before they are committed.",
                job=self._job,
                epoch=self._epoch,
                remedy=_again(self._timeout),
            )
        return self._deadline

    def _refused(self, committable: Committable, answer: Inspection) -> NotPreparedError:
        left = "" if answer.seconds_left is None else f", with {answer.seconds_left:.0f} s left"
        return NotPreparedError(
            f"A handle is {answer.outcome} before its epoch is decided{left}; nothing of the epoch is "
            "visible.",
            job=self._job,
            epoch=self._epoch,
            handle=str(committable.handle),
            remedy=_again(answer.timeout),
        )


def _again(timeout: str) -> str:
    return (
        "see that no other driver runs on this checkpoint (it may have taken over), and restart the "
        "query: the epoch is written again. If it happens again, epochs take too "
        f"long for the target's own timeout{f' ({timeout})' if timeout else ''}, less the option "
        "patience."
    )
