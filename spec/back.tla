--------------------------------- MODULE back ---------------------------------
(***************************************************************************)
(* A register that vanishes or goes back at any step, and a target that    *)
(* goes back: abs_core.births.  Runs come one after the other and die      *)
(* anywhere; the engine's checkpoint stays, and the birth certificate in   *)
(* it.  (Runs that are alive at once: abs.tla.)                            *)
(*                                                                         *)
(* Left out, as no rule of the next run can tell it from a history without *)
(* a loss: a register that loses exactly its last decision while the       *)
(* engine has not noted the epoch; and of a job that could never be        *)
(* certified all decisions, while the last epoch is not noted.             *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Runs, Epochs, Ways
(***************************************************************************)
(* Ways: a set of records                                                  *)
(*   bug       the planted bug, or "none"                                  *)
(*   gaps      the engine may leave epochs out; then each epoch is noted   *)
(*             in the certificate before the engine may note it            *)
(*   full      no certificate can ever be written                          *)
(*   refusals  how often one cannot be written, where one is there         *)
(*   losses    how often the register vanishes or goes back                *)
(*   restores  how often the target goes back to the rows of fewer epochs  *)
(***************************************************************************)

VARIABLES
    way,          \* it never changes
    register,     \* [id, run, generation, frontier, last, open, decidedby]; id 0: there is none
    held,         \* what it has held before
    certificate,  \* [id, generation, frontier, deciding]; id 0: there is none
    noted,        \* how many epochs the engine's checkpoint has as done
    begun,        \* the highest epoch that a task has begun
    rows,         \* for each epoch: by which decisions the target has its rows
    run,          \* [number, at, seen, origin, certified]
    left,         \* how many losses, restores and refusals are left
    top, below,   \* the highest epoch that was ever decided, and the one decided before it
    gone,         \* epochs that the target has lost, and nobody has noticed
    skipped       \* epochs that the engine has left out

vars == <<way, register, held, certificate, noted, begun, rows, run, left, top, below, gone, skipped>>

Nothing == [id |-> 0, run |-> 0, generation |-> 0, frontier |-> -1, last |-> -1, open |-> FALSE,
            decidedby |-> 0]
NoCertificate == [id |-> 0, generation |-> 0, frontier |-> -1, deciding |-> -1]
Bug(name) == way.bug = name
At(place) == run.at = place
GoTo(place) == run' = [run EXCEPT !.at = place]
Stop == GoTo("off")

(***************************************************************************)
(* Rules.                                                                  *)
(***************************************************************************)
\* How the register differs from the certificate c, at epoch e of this run.
Lost(s, c, e) ==
    /\ c.id # 0 /\ ~Bug("mint again")
    /\ \/ s.id = 0
       \/ /\ ~(s.run = run.number /\ s.generation > c.generation)
          /\ \/ s.id # c.id
             \/ s.generation < c.generation
             \/ s.generation = c.generation /\ s.last < c.frontier
             \/ /\ s.generation = c.generation /\ e > c.deciding /\ s.last < c.deciding
                /\ ~Bug("the certificate does not name the epoch about to be decided")

\* In one process: the register is older than what it has seen, or is not there.
WentBack(s) ==
    \/ s.id # run.seen.id
    \/ s.generation < run.seen.generation
    \/ s.generation = run.seen.generation /\ (s.last < run.seen.last \/ s.frontier < run.seen.frontier)

\* Whether a first decision may be made although the certificate could not be written.
Uncertified(s, c, e) ==
    \/ Bug("a certificate that cannot be written is a warning")
    \/ Bug("one that cannot be written anew is a warning")
    \/ IF c.id = 0 THEN e = 0 \/ s.last >= 0
       ELSE c.id = s.id /\ (c.generation >= s.generation \/ s.last >= 0)

Plan(s, e) == IF e <= s.last THEN "skip"
              ELSE IF e > s.last + 1 /\ s.last >= 0 /\ ~way.gaps THEN "refused" ELSE "write"

StartRule(s) ==
    IF s.id = 0 THEN [Nothing EXCEPT !.id = run.number, !.generation = 1, !.run = run.number]
    ELSE IF s.run = run.number THEN s
    ELSE [s EXCEPT !.generation = @ + 1, !.run = run.number]

\* The target shows the last finished epoch by a mark that lies beside its rows: is it there?
TargetWentBack(s) == s.frontier >= 0 /\ rows[s.frontier] = {} /\ ~Bug("no look at the target")

(***************************************************************************)
(* Steps of a run.                                                         *)
(***************************************************************************)
Put(s) == /\ register' = s
          /\ held' = IF register.id = 0 THEN held ELSE held \cup {register}
          /\ top' = IF s.last > top THEN s.last ELSE top
          /\ below' = IF s.last > top THEN register.last ELSE below
Kept == UNCHANGED <<register, held, top, below>>

Boot ==
    /\ At("off") /\ run.number < Runs /\ noted < Epochs
    /\ run' = [number |-> run.number + 1, at |-> "begin", seen |-> Nothing, origin |-> certificate,
               certified |-> FALSE]
    /\ Kept /\ UNCHANGED <<way, certificate, noted, begun, rows, left, gone, skipped>>

Die == /\ ~At("off") /\ Stop /\ Kept
       /\ UNCHANGED <<way, certificate, noted, begun, rows, left, gone, skipped>>

\* A task begins: it starts the run, where no task has, and plans.
Begin ==
    /\ At("begin")
    /\ LET s == StartRule(register)
           back == s # register /\ TargetWentBack(register)
       IN IF Lost(register, run.origin, noted) \/ back \/ Plan(s, noted) = "refused"
          THEN Stop /\ Kept /\ UNCHANGED begun /\ gone' = IF back THEN {} ELSE gone
          ELSE /\ IF s = register THEN Kept ELSE Put(s)
               /\ begun' = IF noted > begun THEN noted ELSE begun
               /\ GoTo("load") /\ UNCHANGED gone
    /\ UNCHANGED <<way, certificate, noted, rows, left, skipped>>

LeaveOut ==
    /\ At("begin") /\ way.gaps /\ noted > begun
    /\ noted' = noted + 1 /\ skipped' = skipped \cup {noted}
    /\ IF noted + 1 = Epochs THEN Stop ELSE UNCHANGED run
    /\ Kept /\ UNCHANGED <<way, certificate, begun, rows, left, gone>>

\* The commit process; it refuses a register that is not there, went back, or is another run's.
Refuses == register.id = 0 \/ register.run # run.number \/ (run.seen.id # 0 /\ WentBack(register))
Told == IF way.gaps /\ ~Bug("a certificate once a run") THEN "tell" ELSE "note"

Load ==
    /\ At("load")
    /\ IF Refuses THEN Stop
       ELSE run' = [run EXCEPT !.seen = register,
              !.at = IF register.open THEN "commit"
                     ELSE IF Plan(register, noted) = "skip" THEN Told
                     ELSE IF Plan(register, noted) = "refused" THEN "off"
                     ELSE IF run.certified \/ Bug("the certificate comes after the decision")
                     THEN "decide" ELSE "certify"]
    /\ Kept /\ UNCHANGED <<way, certificate, noted, begun, rows, left, gone, skipped>>

Certificate(s) ==
    [id |-> s.id, generation |-> s.generation, frontier |-> s.frontier, deciding |-> noted]

\* The certificate is read, compared, and written anew; or it cannot be written.
Certify ==
    /\ run.at \in {"certify", "afterwards", "tell"}
    /\ LET next == CASE At("certify") -> "decide" [] At("tell") -> "note" [] OTHER -> "commit"
           stops == ~Bug("an epoch that cannot be noted is a warning")
       IN IF ~At("tell") /\ Lost(run.seen, certificate, noted)
          THEN Stop /\ UNCHANGED <<certificate, left>>
          ELSE \/ /\ ~way.full
                  /\ certificate' = Certificate(run.seen)
                  /\ run' = [run EXCEPT !.certified = TRUE, !.at = next]
                  /\ UNCHANGED left
               \/ /\ way.full \/ (left.refusals > 0 /\ certificate.id # 0)
                  /\ left' = IF way.full THEN left ELSE [left EXCEPT !.refusals = @ - 1]
                  /\ GoTo(IF (way.gaps /\ stops)
                             \/ (~At("tell") /\ ~Uncertified(run.seen, certificate, noted))
                          THEN "off" ELSE next)
                  /\ UNCHANGED certificate
    /\ Kept /\ UNCHANGED <<way, noted, begun, rows, gone, skipped>>

Decide ==
    /\ At("decide")
    /\ IF Refuses \/ register.open \/ Plan(register, noted) # "write"
       THEN Stop /\ Kept
       ELSE LET s == [register EXCEPT !.last = noted, !.open = TRUE, !.decidedby = register.generation]
            IN /\ Put(s)
               /\ run' = [run EXCEPT !.seen = s,
                    !.at = IF Bug("the certificate comes after the decision") /\ ~run.certified
                           THEN "afterwards" ELSE "commit"]
    /\ UNCHANGED <<way, certificate, noted, begun, rows, left, gone, skipped>>

\* Handles are named by register and generation: what is committed twice is an epoch decided twice.
Commit ==
    /\ At("commit")
    /\ rows' = [rows EXCEPT ![run.seen.last] = @ \cup {<<run.seen.id, run.seen.decidedby>>}]
    /\ GoTo("finish")
    /\ Kept /\ UNCHANGED <<way, certificate, noted, begun, left, gone, skipped>>

Finish ==
    /\ At("finish")
    /\ IF Refuses THEN Stop /\ Kept
       ELSE LET s == [register EXCEPT !.open = FALSE, !.frontier = register.last]
            IN /\ Put(s)
               /\ run' = [run EXCEPT !.seen = s, !.at = IF s.last = noted THEN Told ELSE "load"]
    /\ UNCHANGED <<way, certificate, noted, begun, rows, left, gone, skipped>>

Note ==
    /\ At("note")
    /\ noted' = noted + 1
    /\ run' = [run EXCEPT !.at = IF noted + 1 = Epochs THEN "off" ELSE "begin",
                          !.origin = IF way.gaps THEN @ ELSE certificate]
    /\ Kept /\ UNCHANGED <<way, certificate, begun, rows, left, gone, skipped>>

(***************************************************************************)
(* Losses.                                                                 *)
(***************************************************************************)
Lose(s) ==
    /\ register' = s
    /\ held' = {h \in held : s.id # 0 /\ h.last <= s.last /\ h.generation <= s.generation /\ h # s}
    /\ left' = [left EXCEPT !.losses = @ - 1]
    /\ UNCHANGED <<way, certificate, noted, begun, rows, run, top, below, gone, skipped>>

Undone == top = noted
Vanish == /\ left.losses > 0 /\ register.id # 0
          /\ ~(way.full /\ Undone /\ below = -1)
          /\ Lose(Nothing)
GoBack == /\ left.losses > 0 /\ register.id # 0
          /\ \E s \in held : ~(Undone /\ s.last = below) /\ Lose(s)

\* Rows of the epochs from e on are gone, with their marks; what is open there is still prepared.
Restore ==
    /\ left.restores > 0 /\ At("off")
    /\ \E e \in 0 .. register.frontier :
         /\ \E f \in e .. register.frontier : rows[f] # {}
         /\ gone' = gone \cup {f \in e .. register.frontier : rows[f] # {}}
         /\ rows' = [f \in DOMAIN rows |-> IF f >= e /\ f <= register.frontier THEN {} ELSE rows[f]]
    /\ left' = [left EXCEPT !.restores = @ - 1]
    /\ Kept /\ UNCHANGED <<way, certificate, noted, begun, run, skipped>>

Init ==
    /\ way \in Ways
    /\ register = Nothing /\ held = {} /\ certificate = NoCertificate
    /\ noted = 0 /\ begun = -1 /\ top = -1 /\ below = -1
    /\ rows = [e \in 0 .. Epochs - 1 |-> {}]
    /\ run = [number |-> 0, at |-> "off", seen |-> Nothing, origin |-> NoCertificate,
              certified |-> FALSE]
    /\ left = [losses |-> way.losses, restores |-> way.restores, refusals |-> way.refusals]
    /\ gone = {} /\ skipped = {}

Next == Boot \/ Die \/ Begin \/ LeaveOut \/ Load \/ Certify \/ Decide \/ Commit \/ Finish \/ Note
        \/ Vanish \/ GoBack \/ Restore
Spec == Init /\ [][Next]_vars

\* No epoch's rows are in the target by two decisions.
NoneTwice == \A e \in DOMAIN rows : Cardinality(rows[e]) <= 1
\* What the engine has as done is there, or was left out by it, or was lost by the target, which the
\* next start notices.
NoneLost == \A e \in 0 .. noted - 1 : rows[e] # {} \/ e \in skipped \/ left.restores < way.restores
\* No run goes on beside a target that went back: I7, of an epoch that is finished.
Noticed == gone # {} => At("off") \/ At("begin")
==============================================================================
