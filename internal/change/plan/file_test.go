package plan_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/document"
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

// TestFileForms: Write prints every kind of plan as YAML's own writer would, and all of it is read in one pass.
func TestFileForms(t *testing.T) {
	for _, change := range scaled {
		t.Run(change.name, func(t *testing.T) {
			p := mustMake(t, change.on(t, 8, 2))
			p.Steps[0].Why = "type:\n\t    // a \\ b: \U0001F600  " + strings.Repeat("\n\t    // - # words, it's \"long\"\nsteps: []\n", 9)
			p.Reason = "because:\nsteps: []\n"
			p.Hash = plan.Hash(p)
			text, err := plan.Write(p)
			if err != nil {
				t.Fatal(err)
			}
			want, err := yaml.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(text)); diff != "" {
				t.Errorf("it is written in another way:\n%s", diff)
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
		})
	}
}

// TestDecodeAsYAML holds that what a person did to a file is taken as YAML's own reader takes it, and refused in its words.
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
		{"a number for text", "strategy: recreate", "strategy: 1.10", true},
		{"true for text", "strategy: recreate", "strategy: yes", true},
		{"text for a list", "steps:\n", "steps: none\nwaves:\n", false},
		{"no duration", "estimate: ", "estimate: x", false},
		{"no time", "madeAt: \"2", "madeAt: \"x", false},
		{"a field twice", "strategy: recreate", "strategy: recreate\nstrategy: recreate", false},
		{"a field of a step twice", "  title: ", "  title: a\n  title: ", false},
		{"a field that nobody knows", "strategy: recreate", "strategy: recreate\nspeed: fast", false},
		{"a field of a step that nobody knows", "  title: ", "  speed: 1\n  title: ", false},
		{"bad indentation", "  title: ", "   title: ", false},
		{"nothing", string(text), "null\n", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			edited := strings.Replace(string(text), test.from, test.to, 1)
			if edited == string(text) && test.from != "" {
				t.Fatal("the edit changes nothing")
			}
			var want plan.Plan
			refusal := yaml.UnmarshalStrict([]byte(edited), &want)
			got, err := plan.Decode([]byte(edited))
			if (err == nil) != test.taken || (refusal == nil) != test.taken {
				t.Fatalf("%v; YAML's reader: %v", err, refusal)
			}
			if test.taken && plan.Hash(got) != plan.Hash(&want) {
				t.Error("another plan than that of YAML's reader")
			}
			if !test.taken && !strings.HasSuffix(refusal.Error(), err.Error()) {
				t.Errorf("%q; YAML's reader: %q", err, refusal)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	text, err := plan.Write(mustMake(t, flannelToCalico(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, from, to, words string }{
		{"edited title", "title: Remove flannel", "title: Keep flannel", "was edited"},
		{"edited argument", `- 10.96.0.0/16`, `- 10.97.0.0/16`, "was edited"},
		{"unknown field", "strategy: recreate", "strategy: recreate\nspeed: fast", `written by another version of theseus: unknown field "speed"`},
		{"other kind", "kind: Plan\n", "kind: Snapshot\n", "no plan, but a Snapshot of theseus.dev/v1alpha1"},
		{"not YAML", "apiVersion:", "\t", "no plan"},
		{"empty", string(text), "", "no plan, but an empty file"},
		{"text", string(text), "hello\n", "no plan, but something that cannot be read as one"},
		{"no kind", string(text), "a: b\n", "no plan: apiVersion and kind are missing"},
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
	})
}
