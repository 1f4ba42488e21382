package view

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

var update = flag.Bool("update", false, "write what the terminal really shows into testdata")

// screen is a screen that understands what the view writes, and keeps what scrolled out of it.
type screen struct {
	t             *testing.T
	width, height int
	rows          []string // scrolled out, then on the screen
	top, at, col  int      // the first row on the screen, and where is written
	after         func()   // every write
}

func newScreen(t *testing.T, width, height int) *screen {
	return &screen{t: t, width: width, height: height, rows: []string{""}}
}

func (s *screen) size() (width, height int) { return s.width, s.height }

func (s *screen) Write(p []byte) (int, error) {
	text := string(p)
	for text != "" {
		if escape, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexAny(escape, "AJm")
			s.escape(escape[:end], escape[end])
			text = escape[end+1:]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		row := []rune(s.rows[s.at])
		switch {
		case r == '\r':
			s.col = 0
		case r == '\n':
			s.next()
		case s.col == s.width:
			s.next()
			s.rows[s.at], s.col = string(r), 1
		default:
			s.rows[s.at] = string(row[:s.col]) + string(r)
			s.col++
		}
	}
	if s.after != nil {
		s.after()
	}
	return len(p), nil
}

func (s *screen) escape(number string, command byte) {
	switch command {
	case 'A':
		n, err := strconv.Atoi(number)
		if err != nil {
			s.t.Error(err)
		}
		s.at = max(s.at-n, s.top)
	case 'J':
		s.rows = append(s.rows[:s.at], string([]rune(s.rows[s.at])[:s.col]))
	}
}

func (s *screen) next() {
	s.col = 0
	if s.at++; s.at == len(s.rows) {
		s.rows = append(s.rows, "")
	}
	s.top = max(s.top, s.at-s.height+1)
}

// resize makes the screen narrower, and breaks its rows as terminals do.
func (s *screen) resize(width int) {
	var rows []string
	for _, row := range s.rows {
		runes := []rune(row)
		for len(runes) > width {
			rows, runes = append(rows, string(runes[:width])), runes[width:]
		}
		rows = append(rows, string(runes))
	}
	s.width, s.rows, s.at = width, rows, len(rows)-1
	s.top = max(0, len(rows)-s.height)
}

func (s *screen) all() string { return strings.Join(s.rows, "\n") }

func (s *screen) screen() string {
	return strings.TrimRight(strings.Join(s.rows[s.top:], "\n"), "\n") + "\n"
}

// small is the plan of three nodes that the planner's own tests hold.
func small(t *testing.T) *plan.Plan {
	t.Helper()
	data, err := os.ReadFile("../../change/plan/testdata/plan.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// large is a plan of many nodes and waves, as far as the view looks at it.
func large() *plan.Plan {
	p := &plan.Plan{}
	for w := range 20 {
		wave := plan.Wave{Name: fmt.Sprintf("wave-%d", w+1)}
		for n := range 1 + w {
			node := fmt.Sprintf("node-%d-%d", w+1, n+1)
			wave.Nodes = append(wave.Nodes, node)
			id := wave.Name + "/" + node
			p.Steps = append(p.Steps, step.Step{ID: id, Group: wave.Name, Does: "move",
				Title: "Move the pods of " + node, Node: node, Wave: wave.Name,
				Estimate: step.Duration(20 * time.Second),
				Actions:  []step.Action{{ID: id + "/1", Title: "evict the pods of " + node}}})
		}
		p.Waves = append(p.Waves, wave)
	}
	return p
}

// play shows a run of a plan up to and with a step, with all that a view is told.
func play(v View, p *plan.Plan, last string) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	record := func(r engine.Record) {
		now = now.Add(900 * time.Millisecond)
		r.At = now
		v.Record(r)
	}
	record(engine.Record{Event: engine.Started})
	for _, one := range p.Steps {
		record(engine.Record{Event: engine.StepBegan, Step: one.ID})
		for _, action := range one.Actions {
			record(engine.Record{Event: engine.Intended, Step: one.ID, Action: action.ID})
			v.Note("waiting: Deployment/shop/web has 5 of 6 pods ready, which is what it had before the first pod of " +
				"it was evicted from its node")
			if one.ID == last {
				return
			}
			record(engine.Record{Event: engine.Acted, Step: one.ID, Action: action.ID, Result: engine.ResultDone})
		}
		if one.Gate != nil {
			record(engine.Record{Event: engine.GateAsked, Step: one.ID})
			record(engine.Record{Event: engine.GateAnswer, Step: one.ID, Verdict: &engine.Verdict{Pass: true,
				Reason: "0 of 12,340 probes over 84 paths were lost, the longest gap is 12 ms, and 0 of " +
					"310 denied ones got through"}})
		}
		record(engine.Record{Event: engine.StepDone, Step: one.ID})
	}
}

// TestLiveStandsStill: whatever the screen, the block stands once, at its end, and nothing but words scrolls by.
func TestLiveStandsStill(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {140, 40}, {40, 10}, {20, 5}} {
		for name, p := range map[string]*plan.Plan{"small": small(t), "large": large()} {
			t.Run(fmt.Sprintf("%s %dx%d", name, size[0], size[1]), func(t *testing.T) {
				s := newScreen(t, size[0], size[1])
				s.after = func() {
					if n := strings.Count(s.screen(), "elapsed  "); n != 1 && !t.Failed() {
						t.Errorf("the block stands %d times:\n%s", n, s.screen())
					}
					if s.rows[s.at] != "" || s.at != len(s.rows)-1 {
						t.Errorf("the cursor is not below the block")
					}
				}
				v := newLive(s, p, s.size, false)
				v.Say("warning: the disk under the evidence of this migration is full, and the " +
					"report will lack it from here on")
				play(v, p, "")
				v.Evidence(run.Seen{Paths: 84, Sent: 123_456_789, Lost: 3, LongestGapMillis: 12})
				v.Close()
				if n := strings.Count(s.all(), "elapsed  "); n != 1 {
					t.Errorf("%d blocks are left in what scrolled by", n)
				}
			})
		}
	}
}

// TestLiveFrames shows what a person sees; go test -update writes it.
func TestLiveFrames(t *testing.T) {
	for _, test := range []struct {
		name          string
		width, height int
		plan          *plan.Plan
		last          string
		then          func(*live)
	}{
		{"80x24", 80, 24, small(t), "wave-2/node-2/move", nil},
		{"140x40", 140, 40, small(t), "wave-2/node-2/move", nil},
		{"large-80x24", 80, 24, large(), "wave-12/node-12-9", nil},
		{"rollback-80x24", 80, 24, small(t), "wave-2/node-2/move", func(v *live) {
			at := v.now.Add(time.Second)
			for _, r := range []engine.Record{
				{Event: engine.Acted, Step: "wave-2/node-2/move", Action: "wave-2/node-2/move/1",
					Result: engine.ResultFailed,
					Error:  "Deployment/shop/web has 5 of 6 pods ready (not finished within 12m0s)"},
				{Event: engine.RollingBack, Step: "wave-2/node-2/move", Result: engine.ResultFailed,
					Error: "evict the pods of node-2: Deployment/shop/web has 5 of 6 pods ready " +
						"(not finished within 12m0s)"},
				{Event: engine.Intended, Step: "wave-2/node-2/switch",
					Action: "wave-2/node-2/switch/undo-3", Undo: true},
			} {
				at = at.Add(time.Second)
				r.At = at
				v.Record(r)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScreen(t, test.width, test.height)
			v := newLive(s, test.plan, s.size, true)
			play(v, test.plan, test.last)
			if test.then != nil {
				test.then(v)
			}
			file := filepath.Join("testdata", "live", test.name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(s.screen()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(s.screen(), "\n")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

// TestLiveResumed: what an earlier process did is done in the view of the next one, too.
func TestLiveResumed(t *testing.T) {
	p := large()
	s := newScreen(t, 80, 24)
	v := newLive(s, p, s.size, true)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	v.Past([]engine.Record{{Event: engine.Started, At: at}, {Event: engine.StepBegan, Step: p.Steps[0].ID, At: at},
		{Event: engine.StepDone, Step: p.Steps[0].ID, At: at}})
	v.Record(engine.Record{Event: engine.Resumed, By: "me", At: at.Add(time.Hour)})
	if got := s.screen(); !strings.Contains(got, "wave-1   ● node-1-1\n") ||
		!strings.Contains(got, "0:00.0  resumed by me") {
		t.Errorf("%s", got)
	}
}

// TestLiveDisturbed: neither a key that the terminal shows nor another width spoils what is there.
func TestLiveDisturbed(t *testing.T) {
	p := small(t)
	s := newScreen(t, 140, 24)
	v := newLive(s, p, s.size, false)
	play(v, p, "prepare/probes")
	before := strings.Count(s.all(), "create ")
	if _, err := s.Write([]byte("^C")); err != nil {
		t.Fatal(err)
	}
	v.Say("interrupted")
	s.resize(60)
	v.Say("narrow")
	got := s.all()
	for text, want := range map[string]int{"^C": 0, "\ninterrupted\nnarrow\n────": 1,
		"elapsed  ": 1, "create ": before} {
		if n := strings.Count(got, text); n != want {
			t.Errorf("%q is there %d times, not %d:\n%s", text, n, want, got)
		}
	}
}
