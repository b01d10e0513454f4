--------------------------------- MODULE backs --------------------------------
(***************************************************************************)
(* The ways that back.tla is explored in, and its planted bugs.            *)
(***************************************************************************)
EXTENDS back

Way == [bug |-> "none", gaps |-> FALSE, full |-> FALSE, refusals |-> 0, losses |-> 1, restores |-> 0]
Gaps(way_) == [way_ EXCEPT !.gaps = TRUE]
With(bug, way_) == [way_ EXCEPT !.bug = bug]
Right == {Way, Gaps(Way), [Way EXCEPT !.full = TRUE], [Way EXCEPT !.refusals = 2],
          Gaps([Way EXCEPT !.refusals = 2]), [Way EXCEPT !.losses = 2],
          [Way EXCEPT !.losses = 0, !.restores = 1]}
Planted == {
    With("mint again", Way),
    With("the certificate comes after the decision", Way),
    With("the certificate does not name the epoch about to be decided", Way),
    With("a certificate that cannot be written is a warning", [Way EXCEPT !.full = TRUE]),
    With("one that cannot be written anew is a warning", [Way EXCEPT !.refusals = 3]),
    With("a certificate once a run", Gaps(Way)),
    With("an epoch that cannot be noted is a warning", Gaps([Way EXCEPT !.refusals = 2])),
    With("no look at the target", [Way EXCEPT !.losses = 0, !.restores = 1])}

\* With one worker: the first invariant that each breaks is printed, and that way is left.
Broken == CASE ~NoneTwice -> "NoneTwice" [] ~NoneLost -> "NoneLost" [] ~Noticed -> "Noticed"
            [] OTHER -> ""
StopWhereFound ==
    /\ way \notin TLCGet(1)
    /\ Broken = "" \/ (/\ TLCSet(1, TLCGet(1) \cup {way})
                       /\ PrintT(<<"found", way.bug, Broken>>) /\ FALSE)
ASSUME TLCSet(1, {})
==============================================================================
