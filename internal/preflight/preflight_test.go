package preflight

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// fixed is a check that always finds the same.
func fixed(id string, found ...finding.Finding) check.Check {
	for i := range found {
		found[i].ID = id
	}
	return check.Check{ID: id, Title: "Title of " + id, Doc: "Text of " + id + ".",
		Run: func(*check.Pass) []finding.Finding { return found }}
}

// sample are checks with every kind of outcome.
func sample() []check.Check {
	lacking, also := fixed("d/lacking"), fixed("f/also-lacking")
	lacking.Needs, also.Needs = []string{"pods"}, []string{"pods"}
	broken := fixed("e/broken")
	broken.Run = func(*check.Pass) []finding.Finding { panic("oh") }
	return []check.Check{
		fixed("b/two",
			finding.Finding{Severity: finding.Warn, Subject: finding.Subject{Kind: "Pod", Namespace: "z", Name: "p"},
				Message: "later"},
			finding.Finding{Severity: finding.Block, Subject: finding.Subject{Kind: "Pod", Namespace: "a", Name: "p"},
				Message: "it <stands>", Fix: "kubectl fix"}),
		fixed("a/one", finding.Finding{Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: "n"},
			Message: "m", Evidence: map[string]any{"k": 1}}),
		fixed("a/three",
			finding.Finding{Severity: finding.Info, Subject: finding.Subject{Kind: "Node", Name: "n"}, Message: "i"}),
		fixed("c/fine"), lacking, broken, also,
	}
}

func run(options Options) finding.Result {
	snapshot := &cluster.Snapshot{Sources: []cluster.Source{{Resource: "pods", Missing: "forbidden"}}}
	return Run(sample(), &check.Pass{Snapshot: snapshot}, options)
}

// lines is a result in short.
func lines(result finding.Result) string {
	var text strings.Builder
	for _, f := range result.Findings {
		text.WriteString(string(f.Severity) + " " + f.ID + " " + f.Subject.String())
		if f.Accepted != "" {
			text.WriteString(" accepted: " + f.Accepted)
		}
		text.WriteString("\n")
	}
	for _, n := range result.NotChecked {
		text.WriteString("not checked " + n.ID + ": " + n.Why + "\n")
	}
	return text.String()
}

func TestRun(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		blocks  bool
		want    string
	}{
		"order, missing evidence, a broken check": {Options{}, true, `block b/two Pod/a/p
warn a/one Node/n
warn b/two Pod/z/p
info a/three Node/n
not checked d/lacking: pods: forbidden
not checked e/broken: the check crashed, which is a bug in Theseus: oh
not checked f/also-lacking: pods: forbidden
`},
		"only a topic": {Options{Only: []string{"a"}}, false, "warn a/one Node/n\ninfo a/three Node/n\n"},
		"only an id":   {Options{Only: []string{"c/fine"}}, false, ""},
		"skip": {Options{Only: []string{"a/one"}, Skip: map[string]string{"a": "known"}}, false,
			"not checked a/one: skipped: known\n"},
		"accept": {Options{Only: []string{"b"}, Accept: map[string]string{"b/two": "read it"}}, false,
			"block b/two Pod/a/p accepted: read it\nwarn b/two Pod/z/p accepted: read it\n"},
	} {
		t.Run(name, func(t *testing.T) {
			result := run(test.options)
			if diff := cmp.Diff(test.want, lines(result)); diff != "" {
				t.Error(diff)
			}
			if result.Blocks() != test.blocks {
				t.Errorf("blocks: %v", result.Blocks())
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"fine":      {Options{Only: []string{"a", "b/two"}, Skip: map[string]string{"c/fine": "x"}}, ""},
		"no check":  {Options{Only: []string{"a/on"}}, `there is no check "a/on"`},
		"no accept": {Options{Accept: map[string]string{"zz": "x"}}, `there is no check "zz"`},
		"no reason": {Options{Skip: map[string]string{"a/one": " "}}, "a/one: a reason is required"},
	} {
		err := test.options.Validate(sample())
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

// TestCatalogue holds that checks are named, explained, and cope with a pass that has nothing in it.
func TestCatalogue(t *testing.T) {
	checks := All()
	for i, c := range checks {
		if i > 0 && checks[i-1].ID >= c.ID {
			t.Errorf("%s is not in its place", c.ID)
		}
		if c.Title == "" || !strings.Contains(c.Doc, "**Impact.**") || !strings.Contains(c.Doc, "**Fix.**") {
			t.Errorf("%s: it lacks a title, or its page lacks the impact or the fix", c.ID)
		}
	}
	result := Run(checks, &check.Pass{Snapshot: &cluster.Snapshot{}}, Options{})
	if len(result.NotChecked) != len(checks) || len(result.Findings) > 0 {
		t.Errorf("without evidence, all is to be not checked:\n%s", lines(result))
	}
}
