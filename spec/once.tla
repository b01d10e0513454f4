--------------------------------- MODULE once ---------------------------------
(***************************************************************************)
(* A write of the user's own (abs_core.ownwrite): a function writes rows   *)
(* and a version in one transaction of a target that nothing here knows.   *)
(*                                                                         *)
(* Before the write one compare-and-set notes a begin: the epoch, and the  *)
(* version = generation of the FIRST begin x Epochs + epoch.  Every try of *)
(* the epoch has this version, under whatever generation it is made; the   *)
(* target takes a write only if its version is higher than the stored one. *)
(* Writes may arrive late, twice, or never.  Compare-and-sets are single   *)
(* steps here: how they are delayed and lost is explored in abs.tla.       *)
(*                                                                         *)
(* Run r replays content[r]; a run of another content adopts the job, and  *)
(* numbers its epochs anew (adopted back, the first would write its rows   *)
(* again, by consent).  The register may vanish once.                      *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS Runs, Epochs, Bugs
\* Runs: how many; Epochs: how many; Bugs: those that are explored, "none" for the right rules.

VARIABLES
    bug,       \* it never changes
    content,   \* of each run
    register,  \* [generation, holder, begin, frontier]; holder 0: there is none
    knows,     \* for each run: the begins that it has loaded, which it may try at any time
    writes,    \* writes under way
    version,   \* of the target
    rows,      \* how often the target has each <<content, epoch>>
    lost       \* whether the register has vanished

vars == <<bug, content, register, knows, writes, version, rows, lost>>

Contents == {"a", "b"}
None == [epoch |-> -1, content |-> "", version |-> 0]
Empty == [generation |-> 0, holder |-> 0, started |-> {}, content |-> "", begin |-> None,
          frontier |-> -1]
Is(name) == bug = name

Init ==
    /\ bug \in Bugs
    /\ content \in {c \in [1 .. Runs -> Contents] :
                      c[1] = "a" /\ \A q, r \in 1 .. Runs : q < r /\ c[q] = "b" => c[r] = "b"}
    /\ register = Empty
    /\ knows = [r \in 1 .. Runs |-> {}]
    /\ writes = {} /\ version = 0
    /\ rows = [row \in Contents \X (0 .. Epochs - 1) |-> 0]
    /\ lost = FALSE

\* A register is made where nothing was begun.  That it was lost is told by the checkpoint's certificate,
\* which is written before the first write, and by a version of this application in the target, since
\* that is named by the job.  A run on another checkpoint beside a register that was lost has no
\* certificate: while the target shows nothing, nothing tells.
Begun == \E q \in 1 .. Runs : knows[q] # {}
Start(r) ==
    /\ r \notin register.started
    /\ \A q \in 1 .. r - 1 : q \in register.started
    /\ register.holder # 0 \/ ~Begun \/ Is("the application is named by the register")
       \/ (Is("register and certificate are lost together") /\ version = 0)
    /\ LET same == register.content \in {"", content[r]}
       IN register' = [register EXCEPT !.generation = @ + 1, !.holder = r, !.started = @ \cup {r},
                         !.content = content[r], !.frontier = IF same THEN @ ELSE -1]
    /\ UNCHANGED <<bug, content, knows, writes, rows, lost>>
    /\ version' = IF register.holder = 0 THEN 0 ELSE version

\* No other epoch begins before this one is recorded.
Begin(r) ==
    /\ register.holder = r
    /\ register.begin = None \/ Is("another epoch begins before")
    /\ register.frontier + 1 < Epochs
    /\ LET e == IF Is("another epoch begins before") /\ register.begin # None
                THEN register.begin.epoch + 1 ELSE register.frontier + 1
       IN /\ e < Epochs
          /\ register' = [register EXCEPT !.begin =
               [epoch |-> e, content |-> content[r], version |-> register.generation * 10 + e]]
    /\ UNCHANGED <<bug, content, knows, writes, version, rows, lost>>

Load(r) ==
    /\ register.holder = r /\ register.begin # None
    /\ knows' = [knows EXCEPT ![r] = @ \cup {register.begin}]
    /\ UNCHANGED <<bug, content, register, writes, version, rows, lost>>

\* The version of this try: that of the begin.
VersionOf(r, b) ==
    IF Is("the version of the present generation") THEN register.generation * 10 + b.epoch
    ELSE b.version

\* A look at the target; where it does not have the epoch, the write is sent.  A zombie does it, too.
Write(r, b) ==
    /\ content[r] = b.content   \* else its rows are not here
    /\ version < VersionOf(r, b)
    /\ writes' = writes \cup {[epoch |-> b.epoch, content |-> b.content, version |-> VersionOf(r, b)]}
    /\ UNCHANGED <<bug, content, register, knows, version, rows, lost>>

Arrive(m) ==
    /\ version < m.version \/ Is("no condition at the target")
    /\ rows[<<m.content, m.epoch>>] < 2
    /\ rows' = [rows EXCEPT ![<<m.content, m.epoch>>] = @ + 1]
    /\ version' = m.version
    /\ UNCHANGED <<bug, content, register, knows, writes, lost>>

\* The look shows it: the epoch is recorded, by whoever looks.
Finish(r, b) ==
    /\ version >= VersionOf(r, b) \/ Is("finished without a look")
    /\ register.begin = b
    /\ register' = [register EXCEPT !.begin = None,
                      !.frontier = IF b.content = register.content THEN b.epoch ELSE @]
    /\ UNCHANGED <<bug, content, knows, writes, version, rows, lost>>

Vanish ==
    /\ ~lost /\ register.holder # 0
    /\ register' = [Empty EXCEPT !.started = register.started]
    /\ lost' = TRUE
    /\ UNCHANGED <<bug, content, knows, writes, version, rows>>

Next ==
    \/ \E r \in 1 .. Runs :
         \/ Start(r) \/ Begin(r) \/ Load(r)
         \/ \E b \in knows[r] : Write(r, b) \/ Finish(r, b)
    \/ \E m \in writes : Arrive(m)
    \/ Vanish

Spec == Init /\ [][Next]_vars

\* No row is written twice, whatever is delayed, killed, adopted or lost.
NoneTwice == \A row \in DOMAIN rows : rows[row] < 2
\* What is recorded is there, and what is begun stays begun until it is there.
NoneLost == \A e \in 0 .. register.frontier : rows[<<register.content, e>>] > 0
I2 == \A r \in 1 .. Runs : \A b \in knows[r] :
        lost \/ register.begin = b \/ rows[<<b.content, b.epoch>>] > 0

\* With one worker, for planted bugs: the first invariant that breaks is printed, once for each.
Broken == CASE ~I2 -> "I2" [] ~NoneLost -> "NoneLost" [] ~NoneTwice -> "NoneTwice" [] OTHER -> ""
StopWhereFound ==
    /\ bug \notin TLCGet(1)
    /\ Broken = "" \/ (TLCSet(1, TLCGet(1) \cup {bug}) /\ PrintT(<<"found", bug, Broken>>) /\ FALSE)
ASSUME TLCSet(1, {})
==============================================================================
