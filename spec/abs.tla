--------------------------------- MODULE abs ---------------------------------
(***************************************************************************)
(* The commit protocol: runs of one job, a register, and a target.         *)
(*                                                                         *)
(* A run is one start of the job.  Its tasks start it, plan, write and     *)
(* pre-commit; its commit process (here: its driver) decides, rolls        *)
(* forward, finishes, forgets, sweeps and abandons.  Several runs may be   *)
(* alive at once.  A process that died is one that takes no more steps,    *)
(* so every crash is among the behaviours.                                 *)
(*                                                                         *)
(* Every request goes through a set that nothing is ever taken out of: it  *)
(* may arrive at once, late, twice, or never, and no process is told that  *)
(* it arrived.  A process looks at the register or at the target instead.  *)
(* A compare-and-set is dropped once the register has changed: states of   *)
(* the register never come again, so it can only conflict.                 *)
(*                                                                         *)
(* A register that is lost, and a target that goes back: see back.tla.  A  *)
(* write of the user's own: see once.tla.  What is explored: worlds.tla.   *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC, worlds

VARIABLES
    world,     \* the number of the world; it never changes
    register,  \* the job's state, or Nothing
    wire,      \* compare-and-sets under way
    sent,      \* requests to the target: to commit, abort or forget a handle
    handle,    \* what the target, or a task, holds under each name
    driver,    \* where each run's commit process is
    noted,     \* for each content: how many epochs the checkpoint has as done
    decided,   \* all decisions that were ever stored (for invariants only)
    top,       \* the highest generation so far      (for invariants only)
    alarm      \* the invariant that a process found broken, or ""

vars == <<world, register, wire, sent, handle, driver, noted, decided, top, alarm>>

w == Worlds[world]
None == "none"
Bug(name) == w.bug = name
Runs == DOMAIN w.runs
Range(sequence) == {sequence[i] : i \in DOMAIN sequence}

(***************************************************************************)
(* Handles: <<run, epoch, slot, attempt>>; slot 0 is a composed one.       *)
(***************************************************************************)
TaskHandles == UNION {{r} \X (w.runs[r].first .. w.epochs - 1) \X (DOMAIN w.runs[r].slots)
                        \X (1 .. w.runs[r].tries) : r \in Runs}
Composed == IF w.composes
            THEN UNION {{r} \X (w.runs[r].first .. w.epochs - 1) \X {0} \X {1} : r \in Runs}
            ELSE {}
Handles == DOMAIN handle
RunOf(h) == h[1]
EpochOf(h) == h[2]
SlotOf(h) == h[3]
Content(r) == w.runs[r].content
AllCells(r) == UNION Range(w.runs[r].slots)
Cells(h) == IF SlotOf(h) = 0 THEN AllCells(RunOf(h)) ELSE w.runs[RunOf(h)].slots[SlotOf(h)]

\* What the target knows the handle by.  I6: no two may be alike.
Name(h) == IF Bug("a name without generation and run") THEN Tail(h) ELSE h

PreCommitted == {"prepared", "committed", "forgotten", "aborted"}
Visible == {"committed", "forgotten"}

(***************************************************************************)
(* The register's value.  `history` has every run that has started, in     *)
(* order, so its length is the generation.  A run that ended itself is in  *)
(* it a second time, as a negative number.                                 *)
(***************************************************************************)
Nothing == [history |-> <<>>, lineage |-> "", frontier |-> -1, open |-> <<>>, recent |-> {},
            abandoned |-> {}]
Exists(s) == s.history # <<>>
Generation(s) == Len(s.history)
Holder(s) == s.history[Len(s.history)]
IsOpen(s, d) == d \in Range(s.open)
Started(s, r) == r \in Range(s.history)
\* The generation under which run r writes; 0 before it starts.
GenerationOf(s, r) ==
    IF Started(s, r) THEN CHOOSE g \in DOMAIN s.history : s.history[g] = r
                               /\ \A f \in DOMAIN s.history : s.history[f] = r => g <= f
    ELSE 0
\* The highest epoch of the present lineage that is decided or finished.
LastDecided(s) ==
    LET epochs == {d.epoch : d \in {o \in Range(s.open) : o.lineage = s.lineage}} \cup {s.frontier}
    IN CHOOSE e \in epochs : \A f \in epochs : f <= e

(***************************************************************************)
(* The rules, as in abs_core.protocol: from a state, a new one.            *)
(***************************************************************************)
Minted(r) == [Nothing EXCEPT !.history = <<r>>, !.lineage = w.runs[r].lineage]

MayStart(s, r) ==
    IF ~Exists(s) THEN TRUE
    ELSE /\ Holder(s) # r
         /\ ~Started(s, r) \/ Bug("a superseded run starts again")
         /\ s.lineage = w.runs[r].lineage \/ w.runs[r].adopts

StartRule(s, r) ==
    IF ~Exists(s) THEN Minted(r)
    ELSE LET raised == [s EXCEPT !.history = Append(@, r), !.abandoned = {}]
         IN IF s.lineage = w.runs[r].lineage THEN raised
            ELSE \* Adoption: epochs are numbered anew; open decisions stay, and are finished.
                 [raised EXCEPT !.lineage = w.runs[r].lineage, !.frontier = -1, !.recent = {},
                    !.open = IF Bug("an adopter drops open decisions") THEN <<>> ELSE @]

EndRule(s, r) ==
    [s EXCEPT !.history = Append(@, -r), !.abandoned = {},
              !.open = IF Bug("a run that ends drops what is decided") THEN <<>> ELSE @]

ByPartition == Bug("an epoch is counted as there by its partitions")

\* "write", "skip", or "refused".
Plan(s, e) ==
    IF e <= LastDecided(s) /\ ~Bug("a finished epoch is decided again") /\ ~ByPartition THEN "skip"
    ELSE IF (\E a \in s.abandoned : a <= e) /\ ~Bug("an abandoned epoch is decided") THEN "refused"
    ELSE IF e > LastDecided(s) + 1 /\ LastDecided(s) >= 0 /\ ~w.gaps /\ ~w.joins /\ ~Bug("an epoch is left out")
         THEN "refused"
    ELSE "write"

\* Whether the replayed epoch is the recorded one: the fingerprint of the input.
SameEpoch(s, r, e) ==
    <<e, Content(r)>> \in s.recent \/ Bug("a skip without a look at the input")

Decision(s, e, handles) ==
    [lineage |-> s.lineage, epoch |-> e, generation |-> Generation(s), handles |-> handles]

DecideRule(s, r, e, d) ==
    [s EXCEPT !.open = Append(@, d), !.recent = @ \cup {<<e, Content(r)>>}]

FinishRule(s, d) ==
    LET left == [s EXCEPT !.open = SelectSeq(@, LAMBDA o : o # d)]
    IN IF d.lineage # s.lineage THEN left
       ELSE [left EXCEPT !.frontier = d.epoch, !.abandoned = {a \in @ : a > d.epoch}]

AbandonRule(s, e) == [s EXCEPT !.abandoned = @ \cup {e}]

\* What an open decision holds; a handle of it is never aborted.
Held(s) ==
    LET all == UNION {d.handles : d \in Range(s.open)}
    IN CASE Bug("the sweep ignores open decisions") -> {}
         [] Bug("one sink is swept by another's state") -> {h \in all : SlotOf(h) = 1}
         [] Bug("the sweep holds only handles of the decision's epoch") ->
              UNION {{h \in d.handles : EpochOf(h) = d.epoch} : d \in Range(s.open)}
         [] OTHER -> all

\* Whether no decision, present or future, can name the handle, as rule `sweepable` has it.
Unnameable(s, h) ==
    LET g == GenerationOf(s, RunOf(h))
    IN /\ g > 0
       /\ \A d \in Range(s.open) : h \notin d.handles
       /\ \/ g < Generation(s)
          \/ EpochOf(h) <= s.frontier
          \/ EpochOf(h) \in s.abandoned

\* Whether a process that loaded s, as the holder of generation g, may abort h.
Sweepable(s, g, h) ==
    LET mine == GenerationOf(s, RunOf(h))
        over == EpochOf(h) <= s.frontier \/ EpochOf(h) \in s.abandoned
    IN /\ h \notin Held(s)
       /\ CASE Bug("the sweep takes higher generations'") -> mine # g /\ mine > 0
            [] Bug("the sweep takes its own generation's") ->
                 Generation(s) = g /\ mine > 0 /\ mine <= g
            [] OTHER -> Generation(s) = g /\ mine > 0 /\ (mine < g \/ (mine = g /\ over))

\* What any run may abort, also one that was overtaken: of generations before the present one.
Superseded(s) == {h \in Handles : /\ Sweepable(s, Generation(s), h)
                                  /\ GenerationOf(s, RunOf(h)) < Generation(s)}

(***************************************************************************)
(* Processes.  Each step is one look at the register or at the target, and *)
(* what is sent after it.  A step on an older look differs in nothing: a   *)
(* compare-and-set on it conflicts, and a request sent on it is one that   *)
(* arrives later.                                                          *)
(***************************************************************************)
At(r, places) == driver[r].at \in places
Go(r, place) == driver' = [driver EXCEPT ![r].at = place]
GoWith(r, value) == driver' = [driver EXCEPT ![r] = value]
Sound == alarm = ""
Alarm(invariant) == alarm' = invariant

\* A compare-and-set is sent.  `made`: a decision; `applied`: handles that become visible with it.
Swap(new, made, applied) ==
    wire' = wire \cup {[new |-> new, made |-> made, applied |-> applied]}
Send(kind, handles) == sent' = [sent EXCEPT ![kind] = @ \cup handles]

Fenced(r) == ~Exists(register) \/ Holder(register) # r

\* I5 in the commit process, as _decider and cell.mine have it.
CheckedFence(r) == IF Bug("no fence at the decision") \/ Bug("no fence at the coordinator")
                   THEN FALSE ELSE Fenced(r)

\* The engine begins a run: at the next epoch, or at an older one, if its checkpoint was rolled back.
\* Where checkpoints may join, a run is started first, and restores the one that is decided.
\* Runs that are alike begin in order: which is which makes no difference.
Boot(r) ==
    /\ At(r, {"off"})
    /\ noted[Content(r)] >= w.runs[r].after
    /\ \A q \in 1 .. r - 1 : w.runs[q] = w.runs[r] => ~At(q, {"off"})
    /\ \E e \in IF w.gaps THEN noted[Content(r)] .. w.epochs - 1
               ELSE IF w.joins THEN {e \in {LastDecided(register) + 1} : ~Fenced(r)}
               ELSE w.runs[r].first .. noted[Content(r)] \cup {w.runs[r].first} :
         /\ e < w.epochs
         /\ GoWith(r, [driver[r] EXCEPT !.at = "run", !.epoch = e, !.since = e])
    /\ UNCHANGED <<world, register, wire, sent, handle, noted, decided, top, alarm>>

\* A task begins: it starts the run where no task has, else it plans.
Start(r) ==
    /\ At(r, IF w.joins THEN {"off"} ELSE {"run"})
    /\ w.joins => \A q \in 1 .. r - 1 : Started(register, q)
    /\ MayStart(register, r)
    /\ Swap(StartRule(register, r), {}, {})
    /\ UNCHANGED <<world, register, sent, handle, driver, noted, decided, top, alarm>>

Begin(h) ==
    /\ handle[h] = None /\ SlotOf(h) > 0
    /\ At(RunOf(h), {"run"}) /\ driver[RunOf(h)].epoch = EpochOf(h)
    /\ ~Fenced(RunOf(h))
    /\ LET there == \E g \in Handles : /\ handle[g] \in Visible /\ EpochOf(g) = EpochOf(h)
                                       /\ SlotOf(g) = SlotOf(h)
           plan == IF ByPartition /\ there THEN "skip" ELSE Plan(register, EpochOf(h))
       IN /\ plan # "refused"
          /\ handle' = [handle EXCEPT ![h] = IF plan = "skip" THEN "drained" ELSE "writing"]
    /\ UNCHANGED <<world, register, wire, sent, driver, noted, decided, top, alarm>>

\* At any later time, also long after its run was overtaken.
PreCommit(h) ==
    /\ handle[h] = "writing"
    /\ handle' = [handle EXCEPT ![h] = "prepared"]
    /\ UNCHANGED <<world, register, wire, sent, driver, noted, decided, top, alarm>>

\* The run that holds the generation sweeps; in real runs as it starts, and as epochs finish.
Sweep(r) ==
    /\ At(r, {"run", "tidy"})
    /\ \/ ~Fenced(r)
       \/ Bug("the sweep takes higher generations'") /\ Started(register, r)
    /\ LET names == {h \in Handles : Sweepable(register, GenerationOf(register, r), h)}
       IN /\ ~(names \subseteq sent.abort)
          /\ Send("abort", names)
    /\ UNCHANGED <<world, register, wire, handle, driver, noted, decided, top, alarm>>

\* The engine has one share of each task, and takes one of several tries.
Reported(r, wrote, drained) ==
    GoWith(r, [driver[r] EXCEPT !.at = "check", !.drained = drained,
                 !.pick = IF Bug("a decision for one of two sinks")
                          THEN {h \in wrote : SlotOf(h) = 1} ELSE wrote])

Report(r) ==
    /\ At(r, {"run"}) /\ driver[r].forward = {}
    /\ LET Parts == (driver[r].since .. driver[r].epoch) \X DOMAIN w.runs[r].slots
           Done(e, k) == {t \in 1 .. w.runs[r].tries :
                            handle[<<r, e, k, t>>] \in PreCommitted \cup {"drained"}}
       IN \E try \in [Parts -> 1 .. w.runs[r].tries] :
            /\ \A part \in Parts : try[part] \in Done(part[1], part[2])
            /\ LET shares == {<<r, part[1], part[2], try[part]>> : part \in Parts}
                   wrote == {h \in shares : handle[h] # "drained"}
               IN Reported(r, wrote, wrote # shares)
    /\ UNCHANGED <<world, register, wire, sent, handle, noted, decided, top, alarm>>

\* A checkpoint fails, and rewinds nothing: what it has pre-committed joins the next decision.
Fail(r) ==
    /\ w.joins /\ At(r, {"run"}) /\ driver[r].epoch + 1 < w.epochs
    /\ \A k \in DOMAIN w.runs[r].slots : handle[<<r, driver[r].epoch, k, 1>>] # None
    /\ GoWith(r, [driver[r] EXCEPT !.epoch = @ + 1])
    /\ UNCHANGED <<world, register, wire, sent, handle, noted, decided, top, alarm>>

\* The commit process looks at the register first: fenced, an older decision, or the plan.
Check(r) ==
    /\ At(r, {"check"}) /\ driver[r].forward = {}
    /\ \/ /\ CheckedFence(r)
          /\ Go(r, "end") /\ UNCHANGED alarm
       \/ /\ ~CheckedFence(r) /\ register.open = <<>>
          /\ LET e == driver[r].epoch  plan == Plan(register, e)
             IN CASE plan = "refused" -> Go(r, "end") /\ UNCHANGED alarm
                  [] plan = "skip" -> /\ Go(r, IF SameEpoch(register, r, e) THEN "tidy" ELSE "end")
                                      /\ UNCHANGED alarm
                  [] plan = "write" /\ driver[r].drained /\ ~ByPartition -> Go(r, "end") /\ Alarm("I8")
                  [] OTHER -> /\ Go(r, IF w.cocommits THEN "decide" ELSE "inspect")
                              /\ UNCHANGED alarm
    /\ UNCHANGED <<world, register, wire, sent, handle, noted, decided, top>>

\* Inspect: every handle is prepared.  Where not, a successor has swept it; else it is a defect.
Inspect(r) ==
    /\ At(r, {"inspect"})
    /\ LET prepared == \A h \in driver[r].pick : handle[h] = "prepared"
           blind == Bug("no fence at the decision")
       IN \/ /\ prepared \/ blind
             /\ Send("commit", IF Bug("commit before the decision") THEN driver[r].pick ELSE {})
             /\ Go(r, IF w.composes THEN "compose" ELSE "decide") /\ UNCHANGED alarm
          \/ /\ ~prepared /\ ~blind /\ UNCHANGED sent
             /\ IF CheckedFence(r) \/ Plan(register, driver[r].epoch) = "refused"
                THEN Go(r, "end") /\ UNCHANGED alarm
                ELSE IF Plan(register, driver[r].epoch) = "skip"
                     THEN Go(r, "decide") /\ UNCHANGED alarm
                     ELSE Go(r, "end") /\ Alarm("I4")
    /\ UNCHANGED <<world, register, wire, handle, noted, decided, top>>

\* Compose: the tasks' rows as one new handle.  It fails where one of theirs is gone.
Compose(r) ==
    /\ At(r, {"compose"})
    /\ LET made == <<r, driver[r].epoch, 0, 1>>
           whole == \A h \in driver[r].pick : handle[h] = "prepared"
       IN IF whole /\ handle[made] = None
          THEN /\ handle' = [handle EXCEPT ![made] = "prepared"]
               /\ GoWith(r, [driver[r] EXCEPT !.at = "decide", !.pick = {made}])
          ELSE Go(r, "end") /\ UNCHANGED handle
    /\ UNCHANGED <<world, register, wire, sent, noted, decided, top, alarm>>

\* Decide, or co-commit: one compare-and-set names exactly these handles.
Decide(r) ==
    /\ At(r, {"decide"})
    /\ LET e == driver[r].epoch
           d == Decision(register, e, driver[r].pick)
           stored == DecideRule(register, r, e, d)
           own == \A h \in driver[r].pick : GenerationOf(register, RunOf(h)) = Generation(register)
       IN IF CheckedFence(r) \/ (~CheckedFence(r) /\ Plan(register, e) = "refused")
          THEN Go(r, "end") /\ UNCHANGED <<wire, alarm>>
          ELSE IF Plan(register, e) = "skip"
          THEN \* It is decided: by the reply that was lost, or by another run.
               Go(r, IF SameEpoch(register, r, e) THEN "forward" ELSE "end")
               /\ UNCHANGED <<wire, alarm>>
          ELSE IF ~own /\ ~Bug("no fence at the decision")
          THEN \* The rule itself refuses a handle of another generation, as a defect.
               Go(r, "end") /\ Alarm("I5") /\ UNCHANGED wire
          ELSE IF w.cocommits
          THEN /\ \A h \in driver[r].pick : handle[h] = "prepared"
               /\ Swap(FinishRule(stored, d), {d}, driver[r].pick)
               /\ UNCHANGED <<driver, alarm>>
          ELSE Swap(stored, {d}, {}) /\ UNCHANGED <<driver, alarm>>
    /\ UNCHANGED <<world, register, sent, handle, noted, decided, top>>

\* Roll forward the oldest open decision, whoever made it, and under whatever generation.  Where an
\* engine has to know before its tasks begin what is finished, it does so then.
RollForward(r) ==
    /\ At(r, {"check", "forward"} \cup IF w.gaps \/ w.joins THEN {"run"} ELSE {}) /\ driver[r].forward = {}
    /\ ~At(r, {"forward"}) => ~CheckedFence(r)
    /\ register.open # <<>>
    /\ LET d == Head(register.open)
       IN Send("commit", d.handles) /\ GoWith(r, [driver[r] EXCEPT !.forward = {d}])
    /\ UNCHANGED <<world, register, wire, handle, noted, decided, top, alarm>>

\* Its handles have been looked at: finish, or go on where another has finished it.
Finish(r) ==
    /\ driver[r].forward # {}
    /\ LET d == CHOOSE f \in driver[r].forward : TRUE
           proven == \/ \A h \in d.handles : handle[h] = "committed"
                     \/ Bug("finish before all is committed")
           lost == \E h \in d.handles : handle[h] \notin {"prepared", "committed"}
           one == IF Bug("finish by the epoch's number")
                  THEN {o \in Range(register.open) : o.lineage = d.lineage /\ o.epoch = d.epoch}
                  ELSE {o \in Range(register.open) : o = d}
           \* I7: gone is lost only if the decision is still open at a second look.
           called == lost /\ (one # {} \/ Bug("a lost handle is not looked at twice"))
       IN /\ proven \/ lost
          /\ IF called THEN Alarm("I7") ELSE UNCHANGED alarm
          /\ IF one = {} \/ called
             THEN GoWith(r, [driver[r] EXCEPT !.forward = {}]) /\ UNCHANGED wire
             ELSE Swap(FinishRule(register, CHOOSE o \in one : TRUE), {}, {}) /\ UNCHANGED driver
    /\ UNCHANGED <<world, register, sent, handle, noted, decided, top>>

Forwarded(r) ==
    /\ At(r, {"forward"}) /\ driver[r].forward = {} /\ register.open = <<>>
    /\ Go(r, "tidy")
    /\ UNCHANGED <<world, register, wire, sent, handle, noted, decided, top, alarm>>

\* Markers of proven commits are forgotten, by the same rule as the sweep; then `commit` returns,
\* and the engine notes the epoch and goes on with the next one.
Tidy(r) ==
    /\ At(r, {"tidy"})
    /\ LET over == {h \in Handles : /\ handle[h] = "committed"
                                    /\ \/ Sweepable(register, Generation(register), h)
                                       \/ Bug("markers are forgotten before the end")}
           e == driver[r].epoch
       IN /\ Send("forget", over)
          /\ noted' = [noted EXCEPT ![Content(r)] = IF @ > e THEN @ ELSE e + 1]
          /\ GoWith(r, IF e + 1 = w.epochs THEN [driver[r] EXCEPT !.at = "end"]
                       ELSE [at |-> "run", epoch |-> e + 1, since |-> e + 1, pick |-> {}, drained |-> FALSE,
                             forward |-> {}])
    /\ UNCHANGED <<world, register, wire, handle, decided, top, alarm>>

\* The engine gives the epoch up.  Before anything of it is aborted, one compare-and-set abandons the
\* epoch, or ends the run; it kills a decision that is still under way.
GiveUp(r) ==
    /\ w.aborts /\ Exists(register)
    /\ At(r, {"run", "check", "inspect", "compose", "decide", "forward", "tidy"})
    /\ GoWith(r, [driver[r] EXCEPT !.at = "abandon", !.forward = {}])
    /\ UNCHANGED <<world, register, wire, sent, handle, noted, decided, top, alarm>>

Abandon(r) ==
    /\ At(r, {"abandon"})
    /\ LET e == driver[r].epoch
           \* `end` may be called by any run; of one that does not hold the register it changes nothing.
           given == IF w.ends THEN Holder(register) = -r ELSE e \in register.abandoned
           new == IF w.ends THEN EndRule(register, r) ELSE AbandonRule(register, e)
           late == Bug("abort without abandon") \/ Bug("a run that ends sweeps too early")
           doomed(s) == {h \in Handles : Sweepable(s, Generation(s), h)}
       IN IF given
          THEN /\ Send("abort", doomed(register))
               /\ \/ Go(r, "end")
                  \/ w.stubborn /\ driver[r].pick # {} /\ Go(r, "check")
               /\ UNCHANGED wire
          ELSE IF Holder(register) # r \/ (~w.ends /\ e <= LastDecided(register))
          THEN Go(r, "end") /\ UNCHANGED <<wire, sent>>
          ELSE IF late
          THEN Send("abort", doomed(new)) /\ Go(r, "end") /\ UNCHANGED wire
          ELSE Swap(new, {}, {}) /\ UNCHANGED <<driver, sent>>
    /\ UNCHANGED <<world, register, handle, noted, decided, top, alarm>>

\* A run that has ended, or was overtaken, ends what its late tasks have pre-committed.
SweepEnded(r) ==
    /\ w.ends /\ At(r, {"end"}) /\ r \in Range(register.history)
    /\ LET names == IF Bug("an ended run sweeps the holder's") THEN {h \in Handles : h \notin Held(register)}
                    ELSE Superseded(register)
       IN ~(names \subseteq sent.abort) /\ Send("abort", names)
    /\ UNCHANGED <<world, register, wire, handle, driver, noted, decided, top, alarm>>

(***************************************************************************)
(* Arrivals.                                                               *)
(***************************************************************************)
Uncompared == {m \in wire : m.made # {} /\ (Bug("a decision without compare")
                                            \/ Bug("co-commit without compare"))}

ArriveAtRegister(m) ==
    /\ \A h \in m.applied : handle[h] = "prepared"
    /\ register' = m.new
    /\ wire' = Uncompared \ {m}
    /\ handle' = [h \in Handles |-> IF h \in m.applied THEN "forgotten" ELSE handle[h]]
    /\ decided' = decided \cup m.made
    /\ top' = IF Generation(m.new) > top THEN Generation(m.new) ELSE top
    /\ UNCHANGED <<world, sent, driver, noted, alarm>>

Arrive(h, kind, from, to) ==
    /\ h \in sent[kind] /\ handle[h] = from
    /\ handle' = [handle EXCEPT ![h] = to]
    /\ UNCHANGED <<world, register, wire, sent, driver, noted, decided, top, alarm>>

ArriveAtTarget(h) ==
    \/ Arrive(h, "commit", "prepared", "committed")
    \/ Arrive(h, "abort", "prepared", "aborted")
    \/ Arrive(h, "forget", "committed", "forgotten")

(***************************************************************************)
(* The whole.                                                              *)
(***************************************************************************)
InitWith(handles) ==
    /\ world \in DOMAIN Worlds
    /\ register = Nothing
    /\ wire = {}
    /\ sent = [commit |-> {}, abort |-> {}, forget |-> {}]
    /\ handle = [h \in handles |-> None]
    /\ driver = [r \in Runs |-> [at |-> "off", epoch |-> 0, since |-> 0, pick |-> {},
                                 drained |-> FALSE, forward |-> {}]]
    /\ noted = [c \in {Content(r) : r \in Runs} |-> 0]
    /\ decided = {}
    /\ top = 0
    /\ alarm = ""

Init == InitWith(TaskHandles \cup Composed)

Next ==
    /\ Sound
    /\ \/ \E r \in Runs :
            \/ Boot(r) \/ Start(r) \/ Sweep(r) \/ Report(r) \/ Check(r) \/ Inspect(r) \/ Compose(r)
            \/ Decide(r) \/ RollForward(r) \/ Finish(r) \/ Forwarded(r) \/ Tidy(r)
            \/ GiveUp(r) \/ Abandon(r) \/ Fail(r) \/ SweepEnded(r)
       \/ \E h \in Handles : Begin(h) \/ PreCommit(h) \/ ArriveAtTarget(h)
       \/ \E m \in wire : ArriveAtRegister(m)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Invariants, by their names in docs/explanation/protocol.md.             *)
(***************************************************************************)
Named == UNION {d.handles : d \in decided}
Shown(h) == handle[h] \in Visible
Epochs == 0 .. w.epochs - 1
Contents == DOMAIN noted
VisibleOf(c, e) == {h \in Handles : Shown(h) /\ Content(RunOf(h)) = c /\ EpochOf(h) = e}
WholeCells(c) == AllCells(CHOOSE r \in Runs : Content(r) = c)
VisibleCells(c, e) == UNION {Cells(h) : h \in VisibleOf(c, e)}

\* A handle is committed only if a decision names it.
I1 == \A h \in Handles : Shown(h) => h \in Named

\* A decision is never changed or dropped before each of its handles is proven committed.
I2 == \A d \in decided : IsOpen(register, d) \/ \A h \in d.handles : Shown(h)

\* Each epoch has at most one decision.
ContentOf(d) == {Content(RunOf(h)) : h \in d.handles}
I3 == \A d, f \in decided : d # f /\ d.epoch = f.epoch => ContentOf(d) \cap ContentOf(f) = {}

\* Nothing that a decision may still name is aborted.
I4 == /\ alarm # "I4"
      /\ \A h \in Handles : handle[h] = "aborted" => h \notin Named /\ Unnameable(register, h)

\* A lower generation can neither decide nor sweep; none is taken a second time.
I5 == /\ alarm # "I5"
      /\ Exists(register) =>
           /\ Generation(register) = top
           /\ \A f, g \in DOMAIN register.history :
                register.history[f] = register.history[g] => f = g
           /\ \A d \in decided : \A h \in d.handles :
                GenerationOf(register, RunOf(h)) = d.generation

\* No two writers share a name.
I6 == \A g, h \in Handles : g # h /\ handle[g] \in PreCommitted /\ handle[h] \in PreCommitted
                              => Name(g) # Name(h)

\* What is decided and open can be committed: no handle of it is gone, and none is called lost.
I7 == /\ alarm # "I7"
      /\ Exists(register) => \A d \in Range(register.open) : \A h \in d.handles :
                              handle[h] \in {"prepared", "committed"}

\* Deduplication is per epoch: all that is visible of an epoch is of one decision.
I8 == /\ alarm # "I8"
      /\ \A c \in Contents, e \in Epochs : VisibleOf(c, e) = {} \/
           \E d \in decided : VisibleOf(c, e) \subseteq d.handles

\* No row is visible twice.
NoneTwice == \A g, h \in Handles :
    g # h /\ Shown(g) /\ Shown(h) /\ EpochOf(g) = EpochOf(h) /\ Content(RunOf(g)) = Content(RunOf(h))
      => Cells(g) \cap Cells(h) = {}

\* No row of an epoch that the register or the engine has as done is missing.
Lineage(c) == w.runs[CHOOSE r \in Runs : Content(r) = c].lineage
First(l) == LET firsts == {w.runs[r].first : r \in {q \in Runs : w.runs[q].lineage = l}}
            IN CHOOSE f \in firsts : \A g \in firsts : f <= g
NoneLost ==
    /\ \A c \in Contents : \A e \in Epochs : e < noted[c] => VisibleCells(c, e) = WholeCells(c)
    /\ Exists(register) => \A e \in First(register.lineage) .. register.frontier :
         \E c \in Contents : Lineage(c) = register.lineage /\ VisibleCells(c, e) = WholeCells(c)

\* What is missing of an epoch that is visible in part is decided, and will be committed.  Where rows
\* and register change together, no epoch is ever visible in part.
NoneHalf ==
    \A c \in Contents, e \in Epochs :
      LET there == VisibleCells(c, e)
          coming == UNION {Cells(h) : h \in {g \in Handles :
                      /\ EpochOf(g) = e /\ Content(RunOf(g)) = c /\ handle[g] = "prepared"
                      /\ ~w.cocommits /\ \E d \in Range(register.open) : g \in d.handles}}
      IN there = {} \/ there \cup coming = WholeCells(c)
==============================================================================
