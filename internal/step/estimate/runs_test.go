package estimate_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

var (
	journals = flag.String("journals", "",
		"folder with journals of runs (journal.jsonl) and their plans: compare these instead of those that are kept")
	update = flag.Bool("update", false, "keep what is compared, beside runs of other plans")
)

// kept has the parts of runs by their journals. Three runs with evictions were kept before chains were, and their
// journals are gone: calico-to-flannel-1f58b5, weave-to-calico-1c8d3e and weave-to-calico-93008d. Their chains follow
// from the lab's workload: of each of the two nodes 10 pods were evicted, of which three are web's, whose six are
// spread. The three members of db drain for 10 s, one after another: a part that took less than 20 s moved one of them,
// and none took the 30 s of three, so the other node had two. The turns of flannel-to-calico-5a98a1 follow from the
// lab's two processors: its agents moved two pods at a time.
const kept = "testdata/runs.json"

// run is what is kept of a run that went through.
type run struct {
	Plan  string `json:"plan"`
	Steps []took `json:"steps"`
}

type took struct {
	ID      string     `json:"id"`
	Seconds float64    `json:"seconds"`
	Parts   []measured `json:"parts"`
}

type measured struct {
	estimate.Part
	Seconds float64 `json:"seconds"`
}

// record is a line of a journal, as far as it counts.
type record struct {
	At     time.Time       `json:"at"`
	Event  string          `json:"event"`
	Step   string          `json:"step"`
	Action string          `json:"action"`
	Undo   bool            `json:"undo"`
	Result string          `json:"result"`
	Data   json.RawMessage `json:"data"`
}

type planned struct {
	Name  string      `json:"name"`
	Kind  string      `json:"kind"`
	Hash  string      `json:"hash"`
	Steps []step.Step `json:"steps"`

	Cluster struct {
		Nodes []string `json:"nodes"`
	} `json:"cluster"`
}

// read finds the runs of a folder: each journal whose plan lies in the folder too.
func read(t *testing.T, dir string) []run {
	t.Helper()
	plans, logs := map[string]planned{}, map[string][]record{}
	err := filepath.WalkDir(dir, func(file string, _ fs.DirEntry, err error) error {
		ext := filepath.Ext(file)
		if err != nil || ext != ".yaml" && ext != ".jsonl" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if ext == ".jsonl" {
			for lines := bufio.NewScanner(bytes.NewReader(text)); ; {
				lines.Buffer(nil, 64<<20)
				for lines.Scan() {
					var r record
					if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
						return err
					}
					logs[file] = append(logs[file], r)
				}
				return lines.Err()
			}
		}
		var p planned
		if bytes.Contains(text, []byte("\nkind: Plan\n")) {
			err = yaml.Unmarshal(text, &p)
			plans[p.Hash] = p
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var runs []run
	for file, records := range logs {
		var start struct{ Plan string }
		if len(records) == 0 || json.Unmarshal(records[0].Data, &start) != nil {
			continue
		}
		p, known := plans[start.Plan]
		last := records[len(records)-1]
		if !known || last.Event != "finished" || last.Result != "done" {
			t.Logf("%s: left out: %d records, the last is %q %s; its plan is there: %t",
				file, len(records), last.Event, last.Result, known)
			continue
		}
		runs = append(runs, timed(p, records))
	}
	slices.SortFunc(runs, func(a, b run) int { return strings.Compare(a.Plan, b.Plan) })
	return runs
}

// timed is what the parts of a run's steps took. A part ends with its last action, and begins where the one before it
// ended.
func timed(p planned, records []record) run {
	done, pods := map[string]time.Time{}, map[string][]estimate.Pod{}
	type times struct{ began, asked, answered, done time.Time }
	steps := map[string]*times{}
	at := func(id string) *times {
		if steps[id] == nil {
			steps[id] = &times{}
		}
		return steps[id]
	}
	for _, r := range records {
		switch r.Event {
		case "step-began":
			at(r.Step).began = r.At
		case "acted":
			done[r.Action] = r.At
		case "gate-answer":
			at(r.Step).answered = r.At
		case "step-done":
			at(r.Step).done = r.At
		}
	}
	moved := map[string][]estimate.Pod{}
	for _, r := range records {
		var did struct {
			Pods []struct{ State, Namespace, Name, Workload string }
		}
		if r.Event == "acted" && json.Unmarshal(r.Data, &did) == nil {
			for _, pod := range did.Pods {
				if of := strings.Split(pod.Workload, "/"); len(of) == 3 { // evicted
					moved[r.Action] = append(moved[r.Action],
						estimate.Pod{Name: pod.Name, Owner: cluster.Owner{Kind: of[0], Namespace: of[1], Name: of[2]}})
				} else if pod.State == "moved" { // adopted
					moved[r.Action] = append(moved[r.Action],
						estimate.Pod{Name: pod.Name, Owner: cluster.Owner{Namespace: pod.Namespace}})
				}
			}
		}
	}
	for _, s := range p.Steps {
		for _, a := range s.Actions {
			evict, evicts := a.Do.(step.Evict)
			switch {
			case evicts && (evict.Pods.LeaveEnding || len(evict.Pods.Names) > 0):
				// the others wait for those that are ending
				pods[evict.Pods.Node] = append(pods[evict.Pods.Node], moved[a.ID]...)
			case a.Op() == step.OpNode && a.Verb() == step.VerbAdopt && len(moved[a.ID]) > len(pods[a.Node()]):
				pods[a.Node()] = moved[a.ID]
			}
		}
	}
	r := run{Plan: p.Name}
	for i, parts := range estimate.Parts(p.Steps, len(p.Cluster.Nodes), pods) {
		s := p.Steps[i]
		when := at(s.ID)
		one := took{ID: s.ID, Seconds: rounded(when.done.Sub(when.began))}
		before, n := when.began, 0
		for _, part := range parts {
			end := when.answered
			for first := true; part.Kind != "gate" && n < len(s.Actions) &&
				(first || s.Actions[n].Together); n, first = n+1, false {
				if t := done[s.Actions[n].ID]; first || t.After(end) {
					end = t
				}
			}
			one.Parts = append(one.Parts, measured{part, rounded(end.Sub(before))})
			before = end
		}
		r.Steps = append(r.Steps, one)
	}
	return r
}

// The most by which an estimate may be wrong: of a run, of a step that takes longer than long, and of all parts of a
// kind together where those take longer.
const (
	ofRun, ofStep, ofKind = 1.5, 2, 1.5
	long                  = 20 * time.Second
)

// TestRuns compares what runs took with what is said of them.
func TestRuns(t *testing.T) {
	var runs []run
	text, err := os.ReadFile(kept)
	if err == nil {
		err = json.Unmarshal(text, &runs)
	}
	if err != nil {
		t.Fatal(err)
	}
	if *journals != "" {
		before := runs
		runs = read(t, *journals)
		if *update {
			keep(t, before, runs)
		}
	}
	if len(runs) == 0 {
		t.Fatal("there is no run to compare with")
	}
	kinds := map[string]*sums{}
	for _, r := range runs {
		all := sums{}
		for _, s := range r.Steps {
			one := sums{n: 1}
			one.took = s.took()
			for _, p := range s.Parts {
				if p.elsewhere() {
					continue
				}
				if kinds[p.Kind] == nil {
					kinds[p.Kind] = &sums{}
				}
				kinds[p.Kind].add(sums{1, seconds(p.Seconds), p.Takes()})
				one.said += p.Takes()
			}
			t.Logf("%-24s %-36s %s", r.Plan, s.ID, one)
			if max(one.took, one.said) > long && one.off() > ofStep {
				t.Errorf("%s: step %s: %s", r.Plan, s.ID, one)
				for _, p := range s.Parts {
					t.Logf("  %s of %d, %d pods: %.1f s, said %s", p.Kind, p.N, p.Pods, p.Seconds, p.Takes())
				}
			}
			all.add(one)
		}
		t.Logf("%-24s %s", r.Plan, all)
		if all.off() > ofRun {
			t.Errorf("%s: %s", r.Plan, all)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		t.Logf("%-28s %s", kind, kinds[kind])
		if k := kinds[kind]; max(k.took, k.said) > long && k.off() > ofKind {
			t.Errorf("all %s: %s", kind, k)
		}
	}
}

// keep writes runs, and those before of other plans: a line for each run's name, and one for each of its steps.
func keep(t *testing.T, before, runs []run) {
	t.Helper()
	for _, r := range before {
		if !slices.ContainsFunc(runs, func(other run) bool { return other.Plan == r.Plan }) {
			runs = append(runs, r)
		}
	}
	slices.SortFunc(runs, func(a, b run) int { return strings.Compare(a.Plan, b.Plan) })
	var text bytes.Buffer
	line := func(before string, value any, after string) {
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(before + string(data) + after)
	}
	for i, r := range runs {
		line([]string{"[", ",\n"}[min(i, 1)]+`{"plan":`, r.Plan, `,"steps":[`)
		for j, s := range r.Steps {
			line([]string{"\n", ",\n"}[min(j, 1)], s, "")
		}
		text.WriteString("]}")
	}
	text.WriteString("]\n")
	if err := os.WriteFile(kept, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// elsewhere says whether a part takes what somebody else's machines take.
func (m measured) elsewhere() bool { return strings.HasPrefix(m.Kind, "hook/") }

// took is what the step took by itself.
func (s took) took() time.Duration {
	sum := seconds(s.Seconds)
	for _, p := range s.Parts {
		if p.elsewhere() {
			sum -= seconds(p.Seconds)
		}
	}
	return sum
}

// rounded are seconds with two digits behind the point.
func rounded(d time.Duration) float64 { return math.Round(d.Seconds()*100) / 100 }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// sums are what n of something took, and what was said.
type sums struct {
	n          int
	took, said time.Duration
}

func (s *sums) add(other sums) {
	s.n, s.took, s.said = s.n+other.n, s.took+other.took, s.said+other.said
}

// off is by which factor what was said is wrong.
func (s sums) off() float64 {
	return max(float64(s.took)/float64(s.said), float64(s.said)/float64(s.took))
}

func (s sums) String() string {
	return fmt.Sprintf("%3d took %5.1f s, said %5.1f s, off by %.2f", s.n, s.took.Seconds(), s.said.Seconds(), s.off())
}
