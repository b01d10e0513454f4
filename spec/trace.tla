--------------------------------- MODULE trace --------------------------------
(***************************************************************************)
(* Is an event log a behaviour of abs.tla?                                 *)
(*                                                                         *)
(* A log is what the processes of a job told (abs_core.events), in the     *)
(* order in which they wrote it, with lines of the test's own: that it     *)
(* killed all processes, that all of one run have ended while others may   *)
(* go on, and at the end what register and target show.                    *)
(* Every step here is a step of abs.tla, or the reading of a line that     *)
(* changes nothing.  A line is read only where it is true; a step that a   *)
(* process tells of is taken only with its line.  All other steps (looks,  *)
(* compare-and-sets, arrivals, zombies) are hidden, and the search finds   *)
(* them.  Every log is accepted whose last line can be read.               *)
(*                                                                         *)
(* What a process does just before it is killed may be untold.  So the     *)
(* last step of each process of a killed run may be missing.               *)
(***************************************************************************)
EXTENDS abs

(***************************************************************************)
(* logs.tla has worlds, and a log for each.  Lines are records with `event` *)
(* and what the event says; runs go by their generation, handles by        *)
(* <<run, epoch, slot, attempt>>.  A world has these fields, too:          *)
(*   killed    the runs that a test has killed, and those of `gone`        *)
(*   gone      the runs that were overtaken while they stood still or went *)
(*             on, and then ended by themselves                            *)
(*   told      the handles of which some line tells that they were         *)
(*             pre-committed                                               *)
(*   untold    handles that other lines name                               *)
(*   early     those of `told` whose line comes after a newer run's first: *)
(*             the task had begun before, and its line may come late       *)
(*   silent    sweeps do not tell of each handle: not of those that were   *)
(*             composed, nor by the names that decisions use               *)
(***************************************************************************)
VARIABLES
    i,       \* the next line
    dead,    \* runs that were killed
    known    \* <<event, run, epoch>> that were told

all == <<vars, i, dead, known>>

Log == Logs[world]
Line == Log[i]
\* A process that was killed tells nothing more; that a run has started is the first that one tells.
Before(n) == n < i /\ Line.pid # 0 /\ Log[n].pid = Line.pid
SpeaksUp == \A n, m \in 1 .. i - 1 : Before(n) /\ n < m => Log[m].event # "Killed"
IsFirst == \A n \in 1 .. i - 1 : ~Before(n)
Is(event) == i <= Len(Log) /\ Line.event = event /\ SpeaksUp
Read == i' = i + 1
Alive(r) == r \notin dead
Tell(event, r, e) == known' = known \cup {<<event, r, e>>}
Killed(r) == r \in w.killed
\* What a run that was not killed has begun was told.
Announced(r) == Killed(r) \/ <<"Started", r, 0>> \in known

(***************************************************************************)
(* Lines.                                                                  *)
(***************************************************************************)
ReadStarted ==
    /\ Is("Started") /\ IsFirst
    /\ Alive(Line.run) /\ Started(register, Line.run)
    /\ Line.minted = (Line.run = 1)
    /\ <<"Started", Line.run, 0>> \notin known
    /\ Tell("Started", Line.run, 0)
    /\ Read /\ UNCHANGED <<vars, dead>>

ReadPreCommitted ==
    /\ Is("PreCommitted")
    /\ Alive(Line.run)
    /\ \/ PreCommit(Line.handle)
       \/ Line.handle \in w.early /\ handle[Line.handle] \in PreCommitted /\ UNCHANGED vars
    /\ IF Line.handle \in w.early
       THEN /\ <<"PreCommitted", Line.run, Line.handle>> \notin known
            /\ Tell("PreCommitted", Line.run, Line.handle)
       ELSE UNCHANGED known
    /\ Read /\ UNCHANGED dead

\* The decision is there, and names exactly these handles.
ReadDecided ==
    /\ Is("Decided")
    /\ Alive(Line.run) /\ At(Line.run, {"forward", "tidy"}) /\ driver[Line.run].epoch = Line.epoch
    /\ <<"Decided", Line.run, Line.epoch>> \notin known
    /\ \E d \in decided : /\ d.generation = Line.run /\ d.epoch = Line.epoch
                          /\ d.handles = Line.handles
    /\ Tell("Decided", Line.run, Line.epoch)
    /\ Read /\ UNCHANGED <<vars, dead>>

\* `commit` is about to return: of an epoch that this run has decided, or found decided.
ReadReturned(event, own) ==
    /\ Is(event)
    /\ \E r \in Runs :
         /\ Alive(r) /\ driver[r].epoch = Line.epoch
         /\ own <=> (<<"Decided", r, Line.epoch>> \in known)
         /\ own /\ ~w.composes => \E d \in decided :
              d.epoch = Line.epoch /\ d.generation = r /\ Cardinality(d.handles) = Line.handles
         /\ Tidy(r)
    /\ Read /\ UNCHANGED <<dead, known>>

\* A decision that was open is finished: not by the commit that made it.
ReadRolledForward ==
    /\ Is("RolledForward")
    /\ \E r \in Runs :
         /\ Alive(r) /\ Announced(r) /\ At(r, {"run", "check"})
         /\ \E d \in driver[r].forward : /\ d.epoch = Line.epoch
                                         /\ w.composes \/ Cardinality(d.handles) = Line.handles
         /\ Finish(r) /\ driver'[r].forward = {}
    /\ Read /\ UNCHANGED <<dead, known>>

\* These were aborted by a sweep: requests to abort them were sent, and have all arrived.
ReadSwept ==
    /\ Is("Swept")
    /\ Line.handles \subseteq sent.abort
    /\ \A h \in Line.handles : handle[h] \in {"prepared", "aborted"}
    /\ handle' = [h \in Handles |-> IF h \in Line.handles THEN "aborted" ELSE handle[h]]
    /\ Read /\ UNCHANGED <<world, register, wire, sent, driver, noted, decided, top, alarm, dead, known>>

ReadAbandoned ==
    /\ Is("Abandoned")
    /\ Alive(Line.run) /\ At(Line.run, {"abandon"}) /\ ~w.ends
    /\ driver[Line.run].epoch = Line.epoch /\ Line.epoch \in register.abandoned
    /\ Abandon(Line.run)
    /\ Read /\ UNCHANGED <<dead, known>>

\* The test has killed every process that there is.
ReadKilled ==
    /\ Is("Killed")
    /\ dead' = dead \cup Range(register.history)
    /\ Read /\ UNCHANGED <<vars, known>>

\* All processes of one run have ended.
ReadGone ==
    /\ Is("Gone")
    /\ dead' = dead \cup {Line.run}
    /\ Read /\ UNCHANGED <<vars, known>>

\* Nothing is prepared any more at the end, but it may have been aborted without a line: also by a run
\* that was killed before it told, and by a task that failed as its run was overtaken.
Silently(h) ==
    /\ Unnameable(register, h)
    /\ w.silent \/ RunOf(h) \in w.gone \/ \E r \in w.killed : r > RunOf(h)

\* What the test finds at the end.
ReadLeft ==
    /\ Is("Left")
    /\ Generation(register) = Line.generation
    /\ register.frontier = Line.frontier
    /\ register.open = <<>>
    /\ \A h \in Handles : handle[h] = "prepared" => Silently(h)
    /\ \A r \in Runs : Announced(r) /\ (Killed(r) \/ At(r, {"off", "run", "end"}))
    /\ Read /\ UNCHANGED <<vars, dead, known>>

(***************************************************************************)
(* Hidden steps.  Where the order of two of them makes no difference, one  *)
(* is taken first: that leaves out equal behaviours, and finds no others.  *)
(***************************************************************************)
\* The handle that the next line tells, or one that no line tells to be pre-committed.
Begins(h) ==
    /\ Alive(RunOf(h)) /\ Begin(h)
    /\ IF h \in w.untold THEN Killed(RunOf(h))
       ELSE handle'[h] = "writing" /\ (h \in w.early \/ (Is("PreCommitted") /\ Line.handle = h))

\* The engine has a share of each task: those that the decision names are all told.
Reports(r) ==
    /\ At(r, {"run"}) /\ driver[r].forward = {} /\ Announced(r)
    /\ LET e == driver[r].epoch
           told == {h \in w.told : RunOf(h) = r /\ EpochOf(h) = e /\ handle[h] \in PreCommitted}
           plan == Plan(register, e)
       IN \E wrote \in SUBSET told :
            /\ plan = "skip" <=> wrote = {}
            /\ \A g, h \in wrote : g # h => SlotOf(g) # SlotOf(h)
            /\ \A n \in i .. Len(Log) : Log[n].event = "Decided" /\ Log[n].run = r
                  /\ Log[n].epoch = e /\ ~w.composes => wrote = Log[n].handles
            /\ Reported(r, wrote, plan = "skip")
    /\ UNCHANGED <<world, register, wire, sent, handle, noted, decided, top, alarm>>

\* A run goes on only once what it has done before was told.
Goes(r) ==
    \/ Boot(r) /\ \A q \in 1 .. r - 1 : q \in dead \/ (i <= Len(Log) /\ "run" \in DOMAIN Line
                                                       /\ Line.run = r)
    \/ Start(r) /\ ~Started(register, r)
    \/ Sweep(r) /\ Is("Swept")
    \/ Reports(r)
    \/ Check(r) /\ driver'[r].at # "end"
    \/ Inspect(r) /\ driver'[r].at # "end"
    \/ Compose(r) /\ driver'[r].at # "end"
    \/ Decide(r) /\ driver'[r].at # "end"
    \/ RollForward(r)
    \/ Finish(r) /\ (driver'[r].forward = {} => At(r, {"forward"}))
    \/ Forwarded(r)
    \/ GiveUp(r) /\ Is("Abandoned")
    \/ Abandon(r) /\ driver'[r].at = "abandon"

AnyOf(handles) == CHOOSE h \in handles : TRUE
Deliverable == {h \in sent.commit : handle[h] = "prepared"}

Hidden ==
    /\ i <= Len(Log)
    /\ IF Deliverable # {}
       THEN Arrive(AnyOf(Deliverable), "commit", "prepared", "committed")
       ELSE IF wire # {}
       THEN \E m \in wire : ArriveAtRegister(m)
       ELSE \/ \E r \in Runs : Alive(r) /\ Goes(r)
            \/ \E h \in w.told \cup w.untold : Begins(h)
            \/ \E h \in w.untold : Killed(RunOf(h)) /\ PreCommit(h)
            \/ \E h \in w.early : PreCommit(h)
    /\ UNCHANGED <<i, dead, known>>

Reads == \/ ReadStarted \/ ReadPreCommitted \/ ReadDecided \/ ReadReturned("Committed", TRUE)
         \/ ReadReturned("Skipped", FALSE) \/ ReadRolledForward \/ ReadSwept \/ ReadAbandoned
         \/ ReadLeft

TraceInit == InitWith(w.told \cup w.untold \cup Composed) /\ i = 1 /\ dead = {} /\ known = {}
\* A line that can be read is read: no hidden step is lost by that, but before `Killed` and `Gone`.
TraceNext == IF ENABLED Reads THEN Reads ELSE ReadKilled \/ ReadGone \/ Hidden
TraceSpec == TraceInit /\ [][TraceNext]_all

(***************************************************************************)
(* Each log that is accepted is printed once, with one worker; the longest *)
(* part that could be read of the others is printed as it grows.           *)
(***************************************************************************)
ASSUME \A n \in DOMAIN Logs : TLCSet(n, 0)
Accepted ==
    /\ TLCGet(world) <= Len(Log)
    /\ IF i > TLCGet(world) THEN TLCSet(world, i) /\ PrintT(<<"read", world, i - 1, Len(Log)>>)
       ELSE TRUE
==============================================================================
