-------------------------------- MODULE worlds --------------------------------
(***************************************************************************)
(* The worlds that abs.tla is explored in, and the bugs that are planted.  *)
(*                                                                         *)
(* One run of TLC explores all worlds of a set, one of:                    *)
(*   small    in `make test`                                               *)
(*   large    in the campaign                                              *)
(*   few      those bugs that show in one run, in `make test`              *)
(*   planted  one for each planted bug, to be found by planted.tla         *)
(*   mended   the same worlds without the bugs                             *)
(*   logs     those of the logs in logs.tla, for trace.tla                 *)
(*                                                                         *)
(* A world is a record:                                                    *)
(*   name, bug   the planted bug, or "none"                                *)
(*   runs        a sequence of [lineage, content, slots, tries, adopts,    *)
(*               first, after]: slots[k] is the set of cells that the k-th *)
(*               task of an epoch writes; each task may run `tries` times  *)
(*               at once; the checkpoint starts with epoch `first`; the    *)
(*               run starts once `after` epochs are noted as done.         *)
(*   epochs      how many there are                                        *)
(*   cocommits   rows and register change in one transaction               *)
(*   composes    a decision names one handle made of the tasks' handles    *)
(*   aborts      a run may give up its epoch at any step                   *)
(*   ends        giving up an epoch is to end the whole run                *)
(*   gaps        the engine numbers epochs as it likes, each higher than   *)
(*               the last; it rolls forward before its tasks begin         *)
(*   joins       what a failed epoch has pre-committed joins the next one   *)
(*   stubborn    having given it up, the engine may commit all the same    *)
(* A cell is a part of an epoch's rows: <<sink, part>>.  Runs of the same  *)
(* content replay the same rows, perhaps cut into other tasks.             *)
(***************************************************************************)
EXTENDS Integers, Sequences, logs

CONSTANT Set

\* Cells: what a task writes.  Both tasks of TWO write one part each to one sink, as a task for each of
\* two sinks does; MERGED replays the same rows in one task.
Run(slots) == [lineage |-> "A", content |-> "a", slots |-> slots, tries |-> 1, adopts |-> FALSE,
               first |-> 0, after |-> 0]
ONE == Run(<<{1}>>)
TWO == Run(<<{1}, {2}>>)
MERGED == Run(<<{1, 2}>>)
RETRY == [ONE EXCEPT !.tries = 2]
ADOPTER == [ONE EXCEPT !.lineage = "B", !.content = "b", !.adopts = TRUE]
BACK == [ONE EXCEPT !.content = "a again", !.adopts = TRUE]
EDITED == [ONE EXCEPT !.content = "edited"]
LATE == [ONE EXCEPT !.first = 2, !.after = 1]

World(name, runs, epochs) ==
    [name |-> name, bug |-> "none", runs |-> runs, epochs |-> epochs, cocommits |-> FALSE,
     composes |-> FALSE, aborts |-> FALSE, ends |-> FALSE, stubborn |-> FALSE,
     gaps |-> FALSE, joins |-> FALSE]
Aborts(x) == [x EXCEPT !.aborts = TRUE]
Ends(x) == [x EXCEPT !.aborts = TRUE, !.ends = TRUE]
Stubborn(x) == [x EXCEPT !.aborts = TRUE, !.stubborn = TRUE]
Joins(x) == [x EXCEPT !.joins = TRUE]
CoCommits(x) == [x EXCEPT !.cocommits = TRUE]
Composes(x) == [x EXCEPT !.composes = TRUE]
With(bug, x) == [x EXCEPT !.bug = bug]

\* In `make test`.
Small == <<
    Aborts(World("given up anywhere", <<ONE, ONE>>, 1)),
    World("two sinks", <<TWO, TWO>>, 1),
    Stubborn(World("given up, and committed all the same", <<ONE, ONE>>, 1)),
    Ends(World("ended anywhere", <<ONE, ONE>>, 1)),
    CoCommits(World("co-commit of two tasks", <<TWO, TWO>>, 1)),
    World("another lineage adopts", <<ONE, ADOPTER>>, 1),
    World("an edited checkpoint", <<ONE, EDITED>>, 1),
    Joins(World("a failed checkpoint joins the next", <<ONE, ONE>>, 2))>>

\* In the campaign.
Large == <<
    World("two runs, two epochs", <<ONE, ONE>>, 2),
    Aborts(World("given up anywhere, two epochs", <<ONE, ONE>>, 2)),
    Aborts(World("two sinks, given up anywhere", <<TWO, TWO>>, 1)),
    Aborts(World("two sinks or tasks, then one", <<TWO, MERGED>>, 1)),
    World("two sinks, two epochs", <<TWO, TWO>>, 2),
    World("tasks are tried again", <<RETRY, RETRY>>, 1),
    World("three runs", <<ONE, ONE, ONE>>, 1),
    Ends(World("two epochs, ended anywhere", <<ONE, ONE>>, 2)),
    CoCommits(Aborts(World("co-commit, given up anywhere", <<ONE, ONE>>, 2))),
    CoCommits(Aborts(World("co-commit of two tasks, given up anywhere", <<TWO, TWO>>, 1))),
    CoCommits(Ends(World("co-commit, ended anywhere", <<ONE, ONE>>, 2))),
    Composes(World("composed", <<TWO, TWO>>, 1)),
    Composes(Aborts(World("composed, then another cut, given up anywhere", <<TWO, MERGED>>, 1))),
    Aborts(World("another lineage adopts, two epochs", <<ONE, ADOPTER>>, 2)),
    World("and the first adopts back", <<ONE, ADOPTER, BACK>>, 1),
    World("a checkpoint with a hole", <<ONE, LATE>>, 3),
    Joins(World("failed checkpoints of two tasks join the next", <<TWO, MERGED>>, 2)),
    Joins(World("two failed checkpoints join the next", <<ONE, ONE>>, 3))>>

\* Each bug, the world that it shows in, and the invariant that must find it.
Planted == <<
    <<"I1", With("commit before the decision", World("", <<ONE>>, 1))>>,
    <<"I2", With("finish before all is committed", World("", <<TWO>>, 1))>>,
    <<"I2", With("finish by the epoch's number", World("", <<ONE, ADOPTER, BACK>>, 1))>>,
    <<"I2", With("an adopter drops open decisions", World("", <<ONE, ADOPTER>>, 1))>>,
    <<"I2", With("a run that ends drops what is decided", Ends(World("", <<ONE>>, 1)))>>,
    <<"I3", With("a finished epoch is decided again", World("", <<ONE, ONE>>, 1))>>,
    <<"I4", With("the sweep ignores open decisions", World("", <<ONE, ONE>>, 1))>>,
    <<"I4", With("one sink is swept by another's state", World("", <<TWO, MERGED>>, 1))>>,
    <<"I4", With("the sweep holds only handles of the decision's epoch",
                 Joins(World("", <<ONE, ONE>>, 3)))>>,
    <<"I4", With("an ended run sweeps the holder's", Ends(World("", <<ONE, ONE>>, 1)))>>,
    <<"I4", With("the sweep takes its own generation's", World("", <<ONE>>, 1))>>,
    <<"I4", With("the sweep takes higher generations'", World("", <<ONE, ONE>>, 1))>>,
    <<"I4", With("abort without abandon", Aborts(World("", <<ONE>>, 1)))>>,
    <<"I4", With("a run that ends sweeps too early", Ends(World("", <<ONE>>, 1)))>>,
    <<"I4", With("an abandoned epoch is decided", Stubborn(World("", <<ONE>>, 1)))>>,
    <<"I5", With("no fence at the decision", World("", <<ONE, ONE>>, 1))>>,
    <<"I5", With("no fence at the coordinator", World("", <<ONE, ONE>>, 1))>>,
    <<"I5", With("a superseded run starts again", World("", <<ONE, ONE>>, 1))>>,
    <<"I5", With("a decision without compare", World("", <<ONE, ONE>>, 1))>>,
    <<"I5", With("co-commit without compare", CoCommits(World("", <<ONE, ONE>>, 1)))>>,
    <<"I6", With("a name without generation and run", World("", <<ONE, ONE>>, 1))>>,
    <<"I7", With("markers are forgotten before the end", World("", <<ONE, ONE>>, 2))>>,
    <<"I7", With("a lost handle is not looked at twice", World("", <<ONE, ONE>>, 1))>>,
    <<"I8", With("an epoch is counted as there by its partitions",
                 CoCommits(World("", <<MERGED, TWO>>, 1)))>>,
    <<"NoneHalf", With("a decision for one of two sinks", World("", <<TWO>>, 1))>>,
    <<"NoneLost", With("a skip without a look at the input", World("", <<ONE, EDITED>>, 1))>>,
    <<"NoneLost", With("an epoch is left out", World("", <<ONE, LATE>>, 3))>>>>

Worlds ==
    CASE Set = "small" -> Small
      [] Set = "large" -> Large
      [] Set = "few" -> LET few == SelectSeq(Planted, LAMBDA pair : Len(pair[2].runs) = 1)
                        IN [i \in DOMAIN few |-> few[i][2]]
      [] Set = "planted" -> [i \in DOMAIN Planted |-> Planted[i][2]]
      [] Set = "mended" -> [i \in DOMAIN Planted |-> With("none", Planted[i][2])]
      [] Set = "logs" -> LogWorlds
==============================================================================
