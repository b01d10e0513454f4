--------------------------------- MODULE backs --------------------------------
(***************************************************************************)
(* The ways that back.tla is explored in, and its planted bugs.            *)
(***************************************************************************)
EXTENDS back

Way == [bug |-> "none", gaps |-> FALSE, full |-> FALSE, refusals |-> 0, losses |-> 1, restores |-> 0,
        consents |-> 0, newest |-> FALSE]
Gaps(way_) == [way_ EXCEPT !.gaps = TRUE]
Back(count) == [Way EXCEPT !.losses = 0, !.restores = count]
Consents(way_) == [way_ EXCEPT !.consents = 1]
AsPostgres(way_) == [way_ EXCEPT !.newest = TRUE]
With(bug, way_) == [way_ EXCEPT !.bug = bug]
Right == {Way, Gaps(Way), [Way EXCEPT !.full = TRUE], [Way EXCEPT !.refusals = 2],
          Gaps([Way EXCEPT !.refusals = 2]), [Way EXCEPT !.losses = 2],
          Back(2), AsPostgres(Back(2)), Gaps(Back(1)), Gaps(AsPostgres(Back(1))),
          Consents(Back(2)), AsPostgres(Consents(Back(2)))}
Planted == {
    With("mint again", Way),
    With("the certificate comes after the decision", Way),
    With("the certificate does not name the epoch about to be decided", Way),
    With("a certificate that cannot be written is a warning", [Way EXCEPT !.full = TRUE]),
    With("one that cannot be written anew is a warning", [Way EXCEPT !.refusals = 3]),
    With("a certificate once a run", Gaps(Way)),
    With("an epoch that cannot be noted is a warning", Gaps([Way EXCEPT !.refusals = 2])),
    With("no look at the target", Back(1)),
    With("no look before a decision", AsPostgres(Back(1))),
    With("a look at the newest epoch only", Back(1)),
    With("a mark of what is there at that moment", AsPostgres(Back(1))),
    With("only the newest marker, where what is prepared outlives it", AsPostgres(Back(1))),
    With("consent that leaves the marks", Consents(Back(1))),
    With("consent that forgets all marks", Consents(Back(2))),
    With("consent that is taken twice", Consents(Back(2))),
    With("consent of another restore", Consents(Back(2)))}

\* With one worker: the first invariant that each breaks is printed, and that way is left.
Broken == CASE ~NoneTwice -> "NoneTwice" [] ~NoneLost -> "NoneLost" [] ~Noticed -> "Noticed"
            [] ~ConsentedOnce -> "ConsentedOnce" [] OTHER -> ""
StopWhereFound ==
    /\ way \notin TLCGet(1)
    /\ Broken = "" \/ (/\ TLCSet(1, TLCGet(1) \cup {way})
                       /\ PrintT(<<"found", way.bug, Broken>>) /\ FALSE)
ASSUME TLCSet(1, {})
==============================================================================
