-------------------------------- MODULE planted --------------------------------
(***************************************************************************)
(* Finds all planted bugs in one run of TLC, with one worker: the first    *)
(* invariant that a world breaks is printed, and that world is left.       *)
(* Which one must be found is in `Planted`.                                *)
(***************************************************************************)
EXTENDS abs

Broken ==
    CASE ~I1 -> "I1" [] ~I8 -> "I8" [] ~I2 -> "I2" [] ~I3 -> "I3" [] ~I4 -> "I4" [] ~I5 -> "I5"
      [] ~I6 -> "I6" [] ~I7 -> "I7" [] ~NoneTwice -> "NoneTwice" [] ~NoneLost -> "NoneLost"
      [] ~NoneHalf -> "NoneHalf" [] OTHER -> ""
Unfound == \A i \in DOMAIN Planted : TLCSet(i, FALSE)
StopWhereFound ==
    /\ ~TLCGet(world)
    /\ LET invariant == Broken
       IN \/ invariant = ""
          \/ /\ TLCSet(world, TRUE)
             /\ PrintT(<<"found", w.bug, invariant>>)
             /\ FALSE
ASSUME Unfound
==============================================================================
