"""A partition's log as its leaders leave it, after Kafka's own rules; no broker."""

from __future__ import annotations


class Log:
    """Counts records.

    ``leader`` is the epoch of the present one; ``cuts`` are the ends with which leaders took over.
    """

    def __init__(self) -> None:
        self.end, self.leader = 0, 0
        self._begins = [(0, 0)]
        self.cuts: list[int] = []

    def write(self, records: int) -> None:
        self.end += records

    def elect(self, missing: int) -> None:
        """A leader takes over that lacks so many of the last records."""
        self.end = max(0, self.end - missing)
        self.cuts.append(self.end)
        self.leader += 1
        # LeaderEpochFileCache: what began at or behind the end goes, then the new leader begins there.
        self._begins = [begin for begin in self._begins if begin[1] < self.end]
        self._begins.append((self.leader, self.end))

    def end_of(self, leader: int) -> int:
        """What brokers answer to OffsetsForLeaderEpoch."""
        if leader == self.leader:
            return self.end
        return next(start for epoch, start in self._begins if epoch > leader)
