package plan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/step"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs; if that is meant, run the test with -update:\n%s", path, diff)
	}
}

func TestGolden(t *testing.T) {
	p := mustMake(t, flannelToCalico(t))
	text, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "plan.yaml", text)
	golden(t, "runbook.txt", []byte(plan.Runbook(p)))
}

func TestRoundTrip(t *testing.T) {
	p := mustMake(t, flannelToCalico(t))
	text, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := plan.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	rewritten, err := plan.Write(again)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, rewritten) {
		t.Errorf("reading and writing changes the plan:\n%s", cmp.Diff(string(text), string(rewritten)))
	}
}

// TestFileForms: every kind of plan is read as it was written, in one pass.
func TestFileForms(t *testing.T) {
	for _, change := range scaled {
		t.Run(change.name, func(t *testing.T) {
			p := mustMake(t, change.on(t, 8, 2))
			p.Steps[0].Why = "type:\n\t    // a \\ b: \U0001F600  " +
				strings.Repeat("\n\t    // - # words, it's \"long\"\nsteps: []\n", 9)
			p.Reason = "because:\nsteps: []\n"
			p.Hash = plan.Hash(p)
			text, err := plan.Write(p)
			if err != nil {
				t.Fatal(err)
			}
			if _, known := document.JSON(text); !known {
				t.Errorf("it is left to YAML's own reader")
			}
			again, err := plan.Read(text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(p, again); diff != "" {
				t.Errorf("another plan is read:\n%s", diff)
			}
			wantOutline(t, p, text)
			rewritten, err := plan.Write(again)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(text), string(rewritten)); diff != "" {
				t.Errorf("it is written in another way then:\n%s", diff)
			}
		})
	}
}

// wantOutline demands that the outline of a plan's text says what the plan says.
func wantOutline(t *testing.T, p *plan.Plan, text []byte) {
	t.Helper()
	want := &plan.Outline{Name: p.Name, Hash: p.Hash, From: p.From(), To: p.To(), OnNodes: p.OnNodes(),
		Steps: slices.Clone(p.Steps)}
	for i := range want.Steps {
		s := &want.Steps[i]
		s.Before, s.Actions, s.After, s.Undo = nil, nil, nil, nil
	}
	got, err := plan.DecodeOutline(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("another outline is read:\n%s", diff)
	}
	if diff := cmp.Diff(want, plan.OutlineOf(p)); diff != "" {
		t.Errorf("the outline of the plan differs:\n%s", diff)
	}
}

// TestDecodeAsYAML holds that what a person did to a file is taken as YAML's own reader takes it.
func TestDecodeAsYAML(t *testing.T) {
	text, err := plan.Write(mustMake(t, flannelToCalico(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, from, to string
		taken          bool
	}{
		{"as it was", "", "", true},
		{"with a comment", "steps:\n", "# the steps\nsteps:\n", true},
		{"in another form", "steps:\n", "accepts: []\nsteps:\n", false},
		{"with a marker", "apiVersion:", "---\napiVersion:", true},
		{"with a second document", "workloads:", "---\nworkloads:", true},
		{"with an alias", "strategy: recreate", "strategy: &s recreate\nreason: *s", false},
		{"a number for text", "strategy: recreate", "strategy: 1.10", false},
		{"true for text", "strategy: recreate", "strategy: yes", false},
		{"text for a list", "steps:\n", "steps: none\nwaves:\n", false},
		{"no duration", "estimate: ", "estimate: x", false},
		{"no time", "madeAt: \"2", "madeAt: \"x", false},
		{"a field twice", "strategy: recreate", "strategy: recreate\nstrategy: recreate", false},
		{"a field of a step twice", "  title: ", "  title: a\n  title: ", false},
		{"a field that nobody knows", "strategy: recreate", "strategy: recreate\nspeed: fast", false},
		{"a field of a step that nobody knows", "  title: ", "  speed: 1\n  title: ", false},
		{"bad indentation", "  title: ", "   title: ", false},
		{"nothing", string(text), "null\n", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			edited := strings.Replace(string(text), test.from, test.to, 1)
			if edited == string(text) && test.from != "" {
				t.Fatal("the edit changes nothing")
			}
			got, err := plan.Decode([]byte(edited))
			if (err == nil) != test.taken {
				t.Fatal(err)
			}
			if !test.taken {
				return
			}
			asJSON, err := yaml.YAMLToJSONStrict([]byte(edited))
			if err != nil {
				t.Fatal(err)
			}
			want, err := plan.Decode(asJSON)
			if err != nil || plan.Hash(got) != plan.Hash(want) {
				t.Errorf("another plan than that of YAML's reader: %v", err)
			}
		})
	}
}

// TestFoldIsExact: whatever steps are, a plan's file holds exactly these.
func TestFoldIsExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, change := range scaled {
		made := mustMake(t, change.on(t, 8, 2))
		for range 6 {
			p := *made
			p.Steps = nil
			for i := range made.Steps {
				p.Steps = append(p.Steps, mutated(random, made.Steps[i], made.Cluster.Nodes))
			}
			p.Hash = plan.Hash(&p)
			text, err := plan.WriteJSON(&p)
			if err != nil {
				t.Fatal(err)
			}
			again, err := plan.Decode(text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(p.Steps, again.Steps); diff != "" {
				t.Fatalf("%s: other steps are read:\n%s", change.name, diff)
			}
		}
	}
}

// mutated is a step with some of its parts removed, repeated, moved, or given to other nodes; placeholders in its texts
// too.
func mutated(random *rand.Rand, s step.Step, nodes []string) step.Step {
	s.Actions, s.Before, s.Undo = slices.Clone(s.Actions), slices.Clone(s.Before), slices.Clone(s.Undo)
	n := len(s.Actions)
	if n == 0 {
		return s
	}
	i, j, node := random.IntN(n), random.IntN(n), nodes[random.IntN(len(nodes))]
	switch random.IntN(12) {
	case 0:
		s.Actions = slices.Delete(s.Actions, i, i+1)
	case 1:
		s.Actions[i], s.Actions[j] = s.Actions[j], s.Actions[i]
	case 2:
		s.Actions = append(s.Actions, s.Actions[i])
	case 3:
		s.Actions[i].Together = !s.Actions[i].Together
	case 4:
		if do, is := s.Actions[i].Do.(step.Node); is {
			do.NodeName = node
			s.Actions[i].Do = do
		}
	case 5:
		s.Title, s.Actions[i].Title = "on {node} of {wave}: {nodes}", "{node} and "+node
	case 6:
		s.Wave, s.Node = "wave-99", node
	case 7:
		s.Node, s.ID = node, s.ID+"/"+node
	case 8:
		slices.Reverse(s.Actions)
	case 9:
		s.Before = append(s.Before, step.Condition{Is: step.NodesAmong{Nodes: nodes}},
			step.Condition{Is: step.NodesAmong{Nodes: []string{node}}})
	case 10:
		s.Undo = append(s.Undo, s.Actions...)
	case 11:
		s.Actions[i].Do = step.Hook{NodeName: s.Actions[i].Node(),
			Args: json.RawMessage(`{"a":"` + node + `","b":["{nodes}"],"forEach":"nodes"}`)}
	}
	return s
}

func TestReadRefuses(t *testing.T) {
	text, err := plan.Write(mustMake(t, flannelToCalico(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, from, to, words string }{
		{"edited title", "title: Remove flannel", "title: Keep flannel", "was edited"},
		{"edited argument", `- 10.96.0.0/16`, `- 10.97.0.0/16`, "was edited"},
		{"unknown field", "strategy: recreate", "strategy: recreate\nspeed: fast",
			`written by another version of theseus: unknown field "speed"`},
		{"other kind", "kind: Plan\n", "kind: Snapshot\n", "no plan, but a Snapshot of theseus.dev/v1alpha1"},
		{"not YAML", "apiVersion:", "\t", "no plan"},
		{"empty", string(text), "", "no plan, but an empty file"},
		{"text", string(text), "hello\n", "no plan, but something that cannot be read as one"},
		{"no kind", string(text), "a: b\n", "no plan: apiVersion and kind are missing"},
		{"format of before", "format: 2\n", "", "its format is 1, and this version reads format 2"},
		{"other procedure", "- {procedure: move,", "- {procedure: adopt,", `there is no procedure "adopt"`},
		{"cut short", string(text)[strings.Index(string(text), "\nsteps:"):], "\n", "was edited, or cut short"},
	} {
		t.Run(test.name, func(t *testing.T) {
			edited := []byte(strings.Replace(string(text), test.from, test.to, 1))
			if string(edited) == string(text) {
				t.Fatal("the edit changes nothing")
			}
			forms := [][]byte{edited}
			if asJSON, err := yaml.YAMLToJSON(edited); err == nil && len(edited) > 0 {
				forms = append(forms, asJSON)
			}
			for _, form := range forms {
				_, err := plan.Read(form)
				var refused *plan.Refusal
				if !errors.As(err, &refused) {
					t.Fatalf("not refused: %v", err)
				}
				if !strings.Contains(refused.Message, test.words) || refused.Hint == "" {
					t.Errorf("the refusal does not say %q: %q", test.words, refused.Message)
				}
			}
		})
	}
}

// FuzzRead holds that no file makes the reader panic, and that what it takes is a plan that keeps the rules.
func FuzzRead(f *testing.F) {
	text, err := os.ReadFile("testdata/plan.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("apiVersion: theseus.dev/v1alpha1\nkind: Plan\nsteps: [{id: a, actions: [{op: apply}]}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := plan.Read(data); err == nil && plan.Verify(p) != nil {
			t.Error("a plan that breaks a rule was taken")
		}
		if o, err := plan.DecodeOutline(data); err == nil && o == nil {
			t.Error("no outline, and no error")
		}
	})
}
