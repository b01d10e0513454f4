// Command check says whether a history of compare-and-set cells is linearizable, by Porcupine.
//
//	check [-seconds N] [-picture FILE.html] HISTORY.json
//
// It prints one line that begins with ok (exit code 0), illegal (1) or unknown (2: it took too long).
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// call is one operation, as tests/porcupine/history.py writes it. Version and value are null of a cell
// that is not there; end is null where nobody heard the answer.
type call struct {
	Process  string  `json:"process"`
	Job      string  `json:"job"`
	Call     string  `json:"call"`
	Start    int64   `json:"start"`
	End      *int64  `json:"end"`
	Expected *string `json:"expected"`
	Version  *string `json:"version"`
	Value    *string `json:"value"`
	Done     bool    `json:"done"`
}

// cell is the state of one job's cell. A version is opaque: one that nobody was told begins with "?",
// and is learnt from the first load.
type cell struct {
	version, value string
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func step(state, input, output interface{}) (bool, interface{}) {
	now, op := state.(cell), input.(call)
	if op.Call == "load" {
		learnt := strings.HasPrefix(now.version, "?") && op.Version != nil
		legal := now.value == text(op.Value) && (learnt || now.version == text(op.Version))
		return legal, cell{text(op.Version), text(op.Value)}
	}
	fits := now.version == text(op.Expected)
	switch {
	case op.End == nil: // It was done, or not: if the version fits no more, it changes nothing.
		if fits {
			return true, cell{"?" + text(op.Value), text(op.Value)}
		}
		return true, now
	case op.Done:
		return fits && text(op.Version) != text(op.Expected), cell{text(op.Version), text(op.Value)}
	default:
		return !fits, now
	}
}

func describe(input, output interface{}) string {
	op := input.(call)
	if op.Call == "load" {
		return fmt.Sprintf("load: %q at %q", text(op.Value), text(op.Version))
	}
	answer := "conflict"
	if op.End == nil {
		answer = "no answer"
	} else if op.Done {
		answer = fmt.Sprintf("%q", text(op.Version))
	}
	return fmt.Sprintf("set %q if %q: %s", text(op.Value), text(op.Expected), answer)
}

func model() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			jobs := map[string][]porcupine.Operation{}
			for _, op := range history {
				job := op.Input.(call).Job
				jobs[job] = append(jobs[job], op)
			}
			parts := [][]porcupine.Operation{}
			for _, part := range jobs {
				parts = append(parts, part)
			}
			sort.Slice(parts, func(i, j int) bool { return parts[i][0].Call < parts[j][0].Call })
			return parts
		},
		Init:              func() interface{} { return cell{} },
		Step:              step,
		DescribeOperation: describe,
		DescribeState: func(state interface{}) string {
			return fmt.Sprintf("%q at %q", state.(cell).value, state.(cell).version)
		},
	}
}

// operations gives each process a client's number, and a new one after each answer that it did not
// hear: such an operation lasts until the end of the history.
func operations(calls []call) (history []porcupine.Operation, unheard int) {
	last := int64(0)
	for _, c := range calls {
		last = max(last, c.Start)
		if c.End != nil {
			last = max(last, *c.End)
		}
	}
	clients, lives := map[string]int{}, map[string]int{}
	sort.SliceStable(calls, func(i, j int) bool { return calls[i].Start < calls[j].Start })
	for _, c := range calls {
		life := fmt.Sprintf("%s/%d", c.Process, lives[c.Process])
		if _, met := clients[life]; !met {
			clients[life] = len(clients)
		}
		end := last + 1
		if c.End != nil {
			end = *c.End
		} else {
			unheard++
			lives[c.Process]++
		}
		history = append(history, porcupine.Operation{
			ClientId: clients[life], Input: c, Call: c.Start, Output: nil, Return: end,
		})
	}
	return history, unheard
}

func main() {
	seconds := flag.Int("seconds", 120, "how long to look")
	picture := flag.String("picture", "", "where Porcupine's picture of a violation is written")
	flag.Parse()
	content, err := os.ReadFile(flag.Arg(0))
	refuse(err)
	calls := []call{}
	refuse(json.Unmarshal(content, &calls))
	history, unheard := operations(calls)
	began := time.Now()
	verdict, info := porcupine.CheckOperationsVerbose(
		model(), history, time.Duration(*seconds)*time.Second)
	said := map[porcupine.CheckResult]string{
		porcupine.Ok: "ok", porcupine.Illegal: "illegal", porcupine.Unknown: "unknown"}[verdict]
	fmt.Printf("%s: %d operations, %d of them without an answer, %.2f s\n",
		said, len(history), unheard, time.Since(began).Seconds())
	if verdict == porcupine.Illegal && *picture != "" {
		refuse(porcupine.VisualizePath(model(), info, *picture))
	}
	os.Exit(map[string]int{"ok": 0, "illegal": 1, "unknown": 2}[said])
}

func refuse(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}
