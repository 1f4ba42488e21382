package engine_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

var update = flag.Bool("update", false, "write what the transcripts really say into testdata")

// TestTranscripts runs the scripts of testdata. A script is a list of blocks: a command, its lines, "----",
// and the whole output that is expected, up to an empty line.
//
//	plan             one step or action per line, as parsePlan reads them; "hash X" changes the hash
//	world            object KEY JSON | gate TITLE fail | desire NAME | bake N | open | closed |
//	                 on N POINT outage|error|crash|interrupt|stop|close|Pause|Rollback
//	run [pause-on-failure]   every record as it is written, every note, and the outcome
//	state | objects  what Replay says of the journal; what the world holds
//	journal          replaces the journal by the records given, one JSON per line
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(data))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(strings.Split(string(data), "\n"), strings.Split(got, "\n")); diff != "" && !*update {
				t.Errorf("%s (-want +got; go test -update writes it):\n%s", file, diff)
			}
		})
	}
}

// play runs a script and returns it with the output that it really has.
func play(t *testing.T, script string) string {
	s := &stage{t: t, bench: newBench(&plan.Plan{Name: "p", Hash: "h1"}, newWorld())}
	s.hook(s.at)
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(script), "\n\n") {
		input, _, _ := strings.Cut(block, "----")
		input = strings.TrimSpace(input)
		var lines []string
		for line := range strings.SplitSeq(input, "\n") {
			if !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
		if len(lines) == 0 {
			fmt.Fprintf(&out, "%s\n\n", input)
			continue
		}
		fmt.Fprintf(&out, "%s\n----\n%s\n\n", input, strings.Trim(s.command(lines[0], lines[1:]), "\n"))
	}
	return strings.TrimSpace(out.String()) + "\n"
}

// stage is a bench with a script of what goes wrong.
type stage struct {
	*bench
	t      *testing.T
	rules  []rule
	calls  map[string]int
	cancel context.CancelFunc
	stop   func() // closes Deps.Stop
}

// rule says what happens when a point is reached for the nth time.
type rule struct {
	n           int
	point, what string
}

func (s *stage) at(point string) error {
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[point]++
	for _, r := range s.rules {
		if r.point != point || r.n != 0 && r.n != s.calls[point] {
			continue
		}
		switch r.what {
		case "outage":
			return engine.ErrUnavailable
		case "error":
			return errBroken
		case "crash":
			panic(crash{})
		case "interrupt":
			s.cancel()
		case "stop":
			s.stop()
		case "close":
			s.world.closed = true
		case "hinder":
			s.world.hinders = "an upgrade is under way"
		default:
			s.world.desire = v1alpha1.Desire(r.what)
		}
	}
	return nil
}

func (s *stage) command(name string, lines []string) string {
	words := strings.Fields(name)
	switch words[0] {
	case "plan":
		parsePlan(s.t, s.plan, lines)
		return fmt.Sprintf("%d steps", len(s.plan.Steps))
	case "world":
		s.rules = nil
		for _, line := range lines {
			s.setUp(line)
		}
		return "ok"
	case "run":
		s.options.PauseOnFailure = slices.Contains(words, "pause-on-failure")
		return s.show()
	case "objects":
		return s.objects()
	case "state":
		return s.state()
	case "journal":
		s.disk = &disk{}
		head := ""
		for _, line := range lines {
			var r engine.Record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				s.t.Fatal(err)
			}
			head = chain(s.t, head, &r)
			data, err := json.Marshal(r)
			if err != nil {
				s.t.Fatal(err)
			}
			s.disk.lines, s.disk.records = append(s.disk.lines, data), append(s.disk.records, r)
		}
		s.disk.hook = s.at
		return s.state()
	}
	s.t.Fatalf("unknown command %q", name)
	return ""
}

func (s *stage) setUp(line string) {
	words := strings.Fields(line)
	switch words[0] {
	case "object":
		var o map[string]any
		if err := json.Unmarshal([]byte(strings.Join(words[2:], " ")), &o); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		s.world.objects[words[1]] = o
	case "gate":
		s.world.gates[words[1]] = words[2] != "fail"
	case "bake":
		if _, err := fmt.Sscan(words[1], &s.world.bake); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
	case "open", "closed":
		s.world.closed = words[0] == "closed"
	case "unhindered":
		s.world.hinders = ""
	case "desire":
		s.world.desire = v1alpha1.Desire(strings.TrimPrefix(words[1], "Run"))
	case "on":
		var r rule
		if _, err := fmt.Sscan(words[1], &r.n); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		r.point, r.what = strings.Join(words[2:len(words)-1], " "), words[len(words)-1]
		s.rules = append(s.rules, r)
	default:
		s.t.Fatalf("unknown line %q", line)
	}
}

// show runs the engine and writes down all that it says.
func (s *stage) show() (text string) {
	var out strings.Builder
	begun := newClock().now
	stamp := func() string { return s.clock.now.Sub(begun).Round(time.Second).String() }
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			text = out.String() + "crashed"
		}
	}()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	s.cancel = cancel
	stop := make(chan struct{})
	s.stop = sync.OnceFunc(func() { close(stop) })
	outcome, err := engine.Run(ctx, s.plan,
		engine.Deps{Actor: s.world, Hold: s.world.hold, Gate: s.world, Journal: s.disk,
			Control: s.world, Hindrance: func(context.Context) string { return s.world.hinders }, Clock: s.clock,
			Stop: stop, By: "tester@here", Theseus: "v0", Options: s.options,
			Notify: func(r engine.Record) { fmt.Fprintf(&out, "%5s %s\n", stamp(), line(r)) }, Note: func(text string) {
				fmt.Fprintf(&out, "%5s (%s)\n", stamp(), text)
			}})
	if err != nil {
		return out.String() + fmt.Sprintf("error: %v\nhint: %s\n", err, engine.HintOf(err))
	}
	fmt.Fprintf(&out, "= %s, exit %d, already %v, past return %v\n",
		outcome.End, outcome.ExitCode(), outcome.Already, outcome.PastReturn)
	for _, text := range []struct{ name, value string }{{"cause", outcome.Cause}, {"hint", outcome.Hint}} {
		if text.value != "" {
			fmt.Fprintf(&out, "  %s: %s\n", text.name, text.value)
		}
	}
	return out.String()
}

// line is a record in one line.
func line(r engine.Record) string {
	parts := []string{fmt.Sprintf("%d %s", r.Seq, r.Event)}
	if r.Undo {
		parts[0] += " undo"
	}
	for _, part := range []string{r.Step, r.Action, r.Result, r.Error} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if r.Inverse != nil {
		target := r.Inverse.Verb() + " " + r.Inverse.Node()
		switch {
		case r.Inverse.Ref() != (step.Ref{}):
			target = r.Inverse.Ref().String()
		case r.Inverse.Object() != nil:
			target = step.RefOf(r.Inverse.Object()).String()
		}
		parts = append(parts, fmt.Sprintf("inverse: %s %s", r.Inverse.Op(), target))
	}
	if r.Verdict != nil {
		parts = append(parts, fmt.Sprintf("pass %v: %s", r.Verdict.Pass, r.Verdict.Reason))
	}
	return strings.Join(parts, " | ")
}

func (s *stage) objects() string {
	var out strings.Builder
	for _, key := range slices.Sorted(mapsKeys(s.world.objects)) {
		data, _ := json.Marshal(s.world.objects[key])
		fmt.Fprintf(&out, "%s %s\n", key, data)
	}
	if out.Len() == 0 {
		return "none"
	}
	return out.String()
}

func (s *stage) state() string {
	records, _ := s.disk.Records(s.t.Context())
	state, err := engine.Replay(records)
	if err != nil {
		return fmt.Sprintf("error: %v\nhint: %s", err, engine.HintOf(err))
	}
	return fmt.Sprintf("%s, %d records, %d of %d steps done, at %q %q, undoing %v, asked %v, cause %q",
		state.Phase, state.Seq, state.DoneSteps(), state.Start.Steps, state.Step, state.Action,
		state.Undoing, state.Asked, state.Cause)
}

// chain gives a record that was written by hand its link, and returns it.
func chain(t testing.TB, head string, r *engine.Record) string {
	t.Helper()
	if r.Event == engine.Started {
		var start engine.Start
		if err := json.Unmarshal(r.Data, &start); err != nil {
			t.Fatal(err)
		}
		head = start.Plan
	}
	link, err := engine.Link(head, *r)
	if err != nil {
		t.Fatal(err)
	}
	r.Chain = link
	return link
}
