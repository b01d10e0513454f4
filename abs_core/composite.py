"""Several sinks as one committer: what is decided goes to the sink whose number the handle bears."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from abs_core.aborting import attempt_all
from abs_core.contracts import Committer, Composer
from abs_core.crash import CrashPoint, reached
from abs_core.errors import AbsError
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome


class RoutedCommitter:
    """A ``Composite`` and a ``Composer`` over the committers of several sinks.

    What is undecided is ended by whichever sink sees it in its target: the one that prepared it may be
    gone, or write elsewhere now. Where none sees it, it stays.

    Args:
        committers: of the sinks, by number; sinks that share transactions have the same one.
        number_of: of the sink whose handle it is.
        gone: the error for a handle of a sink that is not among them.
    """

    def __init__(
        self,
        committers: Mapping[int, Committer],
        number_of: Callable[[HandleName], int],
        gone: Callable[[int, Committable], AbsError],
    ) -> None:
        self._committers = committers
        self._number_of = number_of
        self._gone = gone

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        told = [committer.inspect(share) for committer, share in self._routed(committables)]
        return {handle: found for share in told for handle, found in share.items()}

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        """See ``Composer``; the handles of a sink that composes nothing stay as they are."""
        made: list[Committable] = []
        for committer, share in self._routed(committables):
            made += committer.compose(share) if isinstance(committer, Composer) else share
        return made

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """See ``Committer``. A system that is away does not keep the others from showing the epoch."""
        done: dict[HandleName, Outcome] = {}

        def commit(committer: Committer, share: list[Committable]) -> None:
            if done:
                reached(CrashPoint.BETWEEN_COMMITS)
            done.update(committer.commit(share))

        attempt_all(partial(commit, *routed) for routed in self._routed(committables))
        return done

    def abort(self, handles: Sequence[HandleName]) -> None:
        jobs = {handle.job for handle in handles}

        def abort(committer: Committer) -> None:
            seen = {doubt.handle for job in jobs for doubt in committer.in_doubt(job)}
            if share := [handle for handle in handles if handle in seen]:
                committer.abort(share)

        attempt_all(partial(abort, committer) for committer in self.systems())

    def systems(self) -> Sequence[Committer]:
        """See ``Composite``: the sinks' committers."""
        return list({id(committer): committer for committer in self._committers.values()}.values())

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        told = [doubt for c in self.systems() for doubt in c.in_doubt(job)]
        # Two sinks on one server see the same handles.
        return list({doubt.handle: doubt for doubt in told}.values())

    def forget(self, state: JobState) -> None:
        attempt_all(partial(committer.forget, state) for committer in self.systems())

    def _routed(
        self, committables: Sequence[Committable]
    ) -> list[tuple[Committer, list[Committable]]]:
        shares: dict[int, tuple[Committer, list[Committable]]] = {}
        for committable in sorted(committables, key=lambda c: self._number_of(c.handle)):
            number = self._number_of(committable.handle)
            if number not in self._committers:
                raise self._gone(number, committable)
            committer = self._committers[number]
            shares.setdefault(id(committer), (committer, []))[1].append(committable)
        return list(shares.values())
