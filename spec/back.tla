--------------------------------- MODULE back ---------------------------------
(***************************************************************************)
(* A register that vanishes or goes back at any step, and a target that    *)
(* goes back at any step: abs_core.births, abs_core.lookback.  Runs come   *)
(* one after the other and die anywhere; the engine's checkpoint stays,    *)
(* and the birth certificate in it.  (Runs that are alive at once:         *)
(* abs.tla.)                                                               *)
(*                                                                         *)
(* When an epoch is finished, a mark is noted in the register by which its *)
(* rows are known later.  All marks are compared with the target when a    *)
(* run starts, and the two newest before each decision.  What is found     *)
(* missing is told; the operator then writes it again, or consents by a    *)
(* token to go on without it, or both.  A token stays in the options; it   *)
(* is taken once, and for no other loss.                                   *)
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
(*   consents  how often the operator consents to go on without the rows   *)
(*   newest    the target shows no mark but the newest, and what is        *)
(*             prepared goes back with it (PostgreSQL); else it shows each *)
(*             mark, and what is prepared outlives it (Kafka, the lake)    *)
(***************************************************************************)

VARIABLES
    way,          \* it never changes
    register,     \* [id, run, generation, frontier, last, open, decidedby]; id 0: there is none
    held,         \* what it has held before
    certificate,  \* [id, generation, frontier, deciding]; id 0: there is none
    noted,        \* how many epochs the engine's checkpoint has as done
    begun,        \* the highest epoch that a task has begun
    rows,         \* for each epoch: by which decisions the target has its rows
    mark,         \* for each epoch: of which one the rows are looked for; -1: it is forgotten
    once,         \* what `rows` was before the target went back
    run,          \* [number, at, seen, origin, certified, staged]; staged: what the tasks prepared is there
    left,         \* how many losses, restores and refusals are left
    top, below,   \* the highest epoch that was ever decided, and the one decided before it
    gone,         \* epochs that the target has lost, and nobody has told
    stale,        \* what is decided and open went back with the target
    passed,       \* a run has started, or has looked and gone on, although rows of finished epochs are gone
    skipped,      \* epochs that the engine has left out
    operator      \* [left, token, said, given, asked]: consents left; the token in the options, and the
                  \* epochs that it was asked for, until a run starts; the epochs that are given up; whether
                  \* a consent was asked for them a second time

target == <<rows, mark, once, gone, stale, passed, operator>>
vars == <<way, register, held, certificate, noted, begun, target, run, left, top, below, skipped>>

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

\* Epochs with a mark in the register, and which of these marks the target does not show.
Highest(epochs) == CHOOSE e \in epochs : \A f \in epochs : f <= e
Marked(s) == {e \in 0 .. s.frontier : e \notin skipped /\ mark[e] >= 0}
Newest(s) == LET first == Highest(Marked(s))
                 rest == Marked(s) \ {first}
             IN IF Marked(s) = {} THEN {}
                ELSE {first} \cup IF rest = {} \/ Bug("a look at the newest epoch only") THEN {}
                                  ELSE {Highest(rest)}
Missing(epochs) == {e \in epochs : /\ rows[mark[e]] = {}
                                   /\ ~(way.newest /\ \E f \in DOMAIN rows : f > mark[e] /\ rows[f] # {})}

\* Of a finished epoch that is gone somebody must be told before the job goes on.
Unseen(s) == \E e \in gone \ operator.said : e <= s.frontier

\* A consent is for this generation and epoch, and for what is missing now.
Token(s) == [generation |-> IF Bug("consent that is taken twice") THEN 0 ELSE s.generation,
             epoch |-> noted,
             told |-> IF Bug("consent of another restore") THEN {} ELSE Missing(Marked(s))]
Consented(s) == operator.token = Token(s)

\* An error names the epochs; the operator brings their rows back, or gives them up by the token.  He
\* may also do both, and the token stays.
Tell(s) == LET told == Missing(Marked(s))
               brought == [e \in DOMAIN rows |-> IF e \in told THEN once[e] ELSE rows[e]]
               asked == operator.asked \/ told \subseteq operator.given
           IN /\ gone' = gone \ told
              /\ \E now \in {rows, brought}, consents \in {FALSE, operator.left > 0} :
                   /\ now = brought \/ consents
                   /\ rows' = now
                   /\ operator' = [left |-> operator.left - (IF consents THEN 1 ELSE 0),
                        token |-> IF consents THEN Token(s) ELSE operator.token,
                        said |-> IF consents THEN told ELSE operator.said,
                        given |-> IF now = brought THEN operator.given \ told
                                  ELSE operator.given \cup told,
                        asked |-> asked]
              /\ UNCHANGED <<mark, once, stale, passed>>
PassBy(s) == /\ passed' = (passed \/ Unseen(s)) /\ gone' = gone \ operator.said
             /\ operator' = [operator EXCEPT !.said = {}, !.given = @ \cup (operator.said \cap gone)]
             /\ UNCHANGED <<rows, once, stale>>

\* The start that is consented to no longer looks for what is missing.
Forget(s) == LET forgotten == CASE Missing(Marked(s)) = {} -> {}
                                [] Bug("consent that leaves the marks") -> {}
                                [] Bug("consent that forgets all marks") -> Marked(s)
                                [] OTHER -> Missing(Marked(s))
             IN mark' = [e \in DOMAIN mark |-> IF e \in forgotten THEN -1 ELSE mark[e]]

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
               certified |-> FALSE, staged |-> FALSE]
    /\ Kept /\ UNCHANGED <<way, certificate, noted, begun, target, left, skipped>>

Die == /\ ~At("off") /\ Stop /\ Kept
       /\ UNCHANGED <<way, certificate, noted, begun, target, left, skipped>>

\* A task begins: it starts the run, where no task has, and plans.
Begin ==
    /\ At("begin")
    /\ LET s == StartRule(register)
           starts == s # register
           back == /\ starts /\ Missing(Marked(register)) # {} /\ ~Consented(register)
                   /\ ~Bug("no look at the target")
       IN IF Lost(register, run.origin, noted) \/ back \/ Plan(s, noted) = "refused"
          THEN Stop /\ Kept /\ UNCHANGED begun /\ IF back THEN Tell(register) ELSE UNCHANGED target
          ELSE /\ IF starts THEN Put(s) /\ PassBy(register) /\ Forget(register)
                  ELSE Kept /\ UNCHANGED target
               /\ begun' = IF noted > begun THEN noted ELSE begun
               /\ run' = [run EXCEPT !.at = "load", !.staged = TRUE]
    /\ UNCHANGED <<way, certificate, noted, left, skipped>>

LeaveOut ==
    /\ At("begin") /\ way.gaps /\ noted > begun
    /\ noted' = noted + 1 /\ skipped' = skipped \cup {noted}
    /\ IF noted + 1 = Epochs THEN Stop ELSE UNCHANGED run
    /\ Kept /\ UNCHANGED <<way, certificate, begun, target, left>>

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
                     THEN "look" ELSE "certify"]
    /\ Kept /\ UNCHANGED <<way, certificate, noted, begun, target, left, skipped>>

Certificate(s) ==
    [id |-> s.id, generation |-> s.generation, frontier |-> s.frontier, deciding |-> noted]

\* The certificate is read, compared, and written anew; or it cannot be written.
Certify ==
    /\ run.at \in {"certify", "afterwards", "tell"}
    /\ LET next == CASE At("certify") -> "look" [] At("tell") -> "note" [] OTHER -> "commit"
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
    /\ Kept /\ UNCHANGED <<way, noted, begun, target, skipped>>

\* What the tasks prepared is there, and then the two newest marks are: later ones would hide what is
\* gone from every start.  The target may go back between this look and the decision.
Look ==
    /\ At("look")
    /\ LET back == /\ Missing(Newest(register)) # {} /\ ~Consented(register)
                   /\ ~Bug("no look before a decision")
       IN IF Refuses \/ ~run.staged THEN Stop /\ UNCHANGED target
          ELSE IF back THEN Stop /\ Tell(register)
          ELSE GoTo("decide") /\ PassBy(register) /\ UNCHANGED mark
    /\ Kept /\ UNCHANGED <<way, certificate, noted, begun, left, skipped>>

Decide ==
    /\ At("decide")
    /\ IF Refuses \/ register.open \/ Plan(register, noted) # "write"
       THEN Stop /\ Kept /\ UNCHANGED stale
       ELSE LET s == [register EXCEPT !.last = noted, !.open = TRUE, !.decidedby = register.generation]
            IN /\ Put(s)
               /\ stale' = ~run.staged
               /\ run' = [run EXCEPT !.seen = s,
                    !.at = IF Bug("the certificate comes after the decision") /\ ~run.certified
                           THEN "afterwards" ELSE "commit"]
    /\ UNCHANGED <<way, certificate, noted, begun, rows, mark, once, gone, passed, operator, left,
                   skipped>>

\* Handles are named by register and generation: what is committed twice is an epoch decided twice.
\* A handle that is gone is told (I7), and the job does not go on.
Commit ==
    /\ At("commit")
    /\ IF stale THEN Stop /\ UNCHANGED target
       ELSE /\ rows' = [rows EXCEPT ![run.seen.last] = @ \cup {<<run.seen.id, run.seen.decidedby>>}]
            /\ once' = [once EXCEPT ![run.seen.last] = @ \cup {<<run.seen.id, run.seen.decidedby>>}]
            /\ gone' = gone \ {run.seen.last}
            /\ GoTo("finish") /\ UNCHANGED <<mark, stale, passed, operator>>
    /\ Kept /\ UNCHANGED <<way, certificate, noted, begun, left, skipped>>

\* The mark of an epoch that is finished: its own, whatever the target shows at that moment.
Mark(e) == LET there == {f \in DOMAIN rows : rows[f] # {}}
           IN IF Bug("a mark of what is there at that moment") /\ there # {} THEN Highest(there) ELSE e

Finish ==
    /\ At("finish")
    /\ IF Refuses THEN Stop /\ Kept /\ UNCHANGED <<mark, stale>>
       ELSE LET s == [register EXCEPT !.open = FALSE, !.frontier = register.last]
            IN /\ Put(s)
               /\ mark' = [mark EXCEPT ![s.last] = Mark(s.last)] /\ stale' = FALSE
               /\ run' = [run EXCEPT !.seen = s, !.at = IF s.last = noted THEN Told ELSE "load"]
    /\ UNCHANGED <<way, certificate, noted, begun, rows, once, gone, passed, operator, left, skipped>>

Note ==
    /\ At("note")
    /\ noted' = noted + 1
    /\ run' = [run EXCEPT !.at = IF noted + 1 = Epochs THEN "off" ELSE "begin",
                          !.origin = IF way.gaps THEN @ ELSE certificate]
    /\ Kept /\ UNCHANGED <<way, certificate, begun, target, left, skipped>>

(***************************************************************************)
(* Losses.                                                                 *)
(***************************************************************************)
Lose(s) ==
    /\ register' = s
    /\ held' = {h \in held : s.id # 0 /\ h.last <= s.last /\ h.generation <= s.generation /\ h # s}
    /\ left' = [left EXCEPT !.losses = @ - 1]
    /\ UNCHANGED <<way, certificate, noted, begun, target, run, top, below, skipped>>

Undone == top = noted
Vanish == /\ left.losses > 0 /\ register.id # 0
          /\ ~(way.full /\ Undone /\ below = -1)
          /\ Lose(Nothing)
GoBack == /\ left.losses > 0 /\ register.id # 0
          /\ \E s \in held : ~(Undone /\ s.last = below) /\ Lose(s)

\* Rows of the epochs from e on are gone, with their marks.  What is prepared is gone, too, or is not.
Vanishes == way.newest /\ ~Bug("only the newest marker, where what is prepared outlives it")
Restore ==
    /\ left.restores > 0
    /\ \E e \in DOMAIN rows :
         /\ rows[e] # {}
         /\ gone' = gone \cup {f \in DOMAIN rows : f >= e /\ rows[f] # {}}
         /\ rows' = [f \in DOMAIN rows |-> IF f >= e THEN {} ELSE rows[f]]
    /\ stale' = (stale \/ (Vanishes /\ register.open))
    /\ run' = [run EXCEPT !.staged = @ /\ ~Vanishes]
    /\ left' = [left EXCEPT !.restores = @ - 1]
    /\ Kept /\ UNCHANGED <<way, certificate, noted, begun, mark, once, passed, skipped, operator>>

Init ==
    /\ way \in Ways
    /\ register = Nothing /\ held = {} /\ certificate = NoCertificate
    /\ noted = 0 /\ begun = -1 /\ top = -1 /\ below = -1
    /\ rows = [e \in 0 .. Epochs - 1 |-> {}] /\ once = rows
    /\ mark = [e \in 0 .. Epochs - 1 |-> e]
    /\ run = [number |-> 0, at |-> "off", seen |-> Nothing, origin |-> NoCertificate,
              certified |-> FALSE, staged |-> FALSE]
    /\ left = [losses |-> way.losses, restores |-> way.restores, refusals |-> way.refusals]
    /\ gone = {} /\ stale = FALSE /\ passed = FALSE /\ skipped = {}
    /\ operator = [left |-> way.consents, said |-> {}, given |-> {}, asked |-> FALSE,
                   token |-> [generation |-> 0, epoch |-> -1, told |-> {}]]

Next == Boot \/ Die \/ Begin \/ LeaveOut \/ Load \/ Certify \/ Look \/ Decide \/ Commit \/ Finish \/ Note
        \/ Vanish \/ GoBack \/ Restore
Spec == Init /\ [][Next]_vars

\* No epoch's rows are in the target by two decisions.
NoneTwice == \A e \in DOMAIN rows : Cardinality(rows[e]) <= 1
\* What the engine has as done is there, or was left out by it, or given up by the operator, or was lost
\* by the target, which the next look notices.
NoneLost == \A e \in 0 .. noted - 1 : rows[e] # {} \/ e \in skipped \cup gone \cup operator.given
\* No run starts, and none looks and decides, beside a target that went back: I7, of an epoch that is
\* finished.
Noticed == ~passed
\* A loss is consented to once.
ConsentedOnce == ~operator.asked
==============================================================================
