package preflight

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

var update = flag.Bool("update", false, "rewrite the expected files and docs/checks")

// golden compares with a file, or writes it.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is stale (go test ./internal/preflight -update writes it):\n%s", file, diff)
	}
}

func TestRenderers(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	result := run(Options{Now: now, Accept: map[string]string{"a/one": "ticket 42"},
		Accepted: []v1alpha1.AcceptedFinding{
			{ID: "b/two", Subject: "Pod/z/*", Reason: "ticket 43", Until: "2026-11-21"},
			{ID: "b/two", Subject: "Pod/a/p", Reason: "ticket 44", Until: "2026-11-20"},
		}})
	for name, write := range map[string]func(io.Writer) error{
		"text.txt":    func(w io.Writer) error { return Text(w, result, Style{}) },
		"color.txt":   func(w io.Writer) error { return Text(w, result, Style{Color: true}) },
		"fine.txt":    func(w io.Writer) error { return Text(w, run(Options{Only: []string{"c"}}), Style{}) },
		"result.json": func(w io.Writer) error { return JSON(w, result) },
		"fine.json":   func(w io.Writer) error { return JSON(w, finding.Result{}) },
		"sarif.json":  func(w io.Writer) error { return SARIF(w, result, sample(), "v1") },
		"junit.xml":   func(w io.Writer) error { return JUnit(w, result, sample()) },
		"list.txt":    func(w io.Writer) error { return List(w, sample()) },
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got); err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", name), got.Bytes())
			switch filepath.Ext(name) {
			case ".json":
				if !json.Valid(got.Bytes()) {
					t.Error("not JSON")
				}
			case ".xml":
				if err := xml.Unmarshal(got.Bytes(), new(junitSuites)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestSchema holds the JSON to its schema, and the schema to what it is to refuse.
func TestSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../docs/findings.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	decode := func(text []byte) any {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	lapsed := Options{Accepted: []v1alpha1.AcceptedFinding{{ID: "b", Reason: "x", Until: "2026-01-01"}},
		Now: time.Now()}
	for _, result := range []finding.Result{{}, {Networks: []finding.Network{{Name: "flannel", Version: "v1",
		Agent: "DaemonSet/a/b", Problems: []string{"ill"}}}},
		run(Options{}), run(Options{Accept: map[string]string{"b": "x"}}), run(lapsed)} {
		var written bytes.Buffer
		if err := JSON(&written, result); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(decode(written.Bytes())); err != nil {
			t.Errorf("%v\n%s", err, written.Bytes())
		}
	}
	const none = `{"summary":{"block":0,"warn":0,"info":0,"notChecked":0},"findings":[`
	for _, bad := range []string{`{}`, `{"summary":{},"findings":[],"notChecked":[]}`,
		none + `]}`, none + `],"notChecked":[],"more":1}`,
		none + `{"id":"X","severity":"warn","subject":{"kind":"k","name":"n"},"message":"m"}],"notChecked":[]}`,
		none + `{"id":"a/b","severity":"odd","subject":{"kind":"k","name":"n"},"message":"m"}],"notChecked":[]}`,
		none + `{"id":"a/b","severity":"warn","subject":{"kind":"k"},"message":"m"}],"notChecked":[]}`} {
		if schema.Validate(decode([]byte(bad))) == nil {
			t.Errorf("the schema lets through %s", bad)
		}
	}
}

// TestDocs holds docs/checks to what the checks say of themselves.
func TestDocs(t *testing.T) {
	const dir = "../../docs/checks"
	index := "# The checks\n\nEach check has a page, which `theseus explain ID` prints. List the findings that " +
		"you accept in a file for\n" +
		"`--accepted FILE`. After its last day, an entry no longer applies:\n\n" +
		"    apiVersion: theseus.dev/v1alpha1\n    kind: AcceptedFindings\n    accepted:\n" +
		"    - {id: workload/single-replica, subject: Deployment/shop/*, reason: \"restart agreed, ticket " +
		"42\", until: 2026-12-31}\n\n"
	pages := map[string]bool{"README.md": true}
	for _, c := range All() {
		line := fmt.Sprintf("- [%s](%s): %s\n", c.ID, PageName(c.ID), c.Title)
		if len(line) > maxColumns+len("\n") {
			line = strings.Replace(line, "): ", "):\n  ", 1)
		}
		index += line
		pages[PageName(c.ID)] = true
		golden(t, filepath.Join(dir, PageName(c.ID)), []byte(Page(c)))
	}
	golden(t, filepath.Join(dir, "README.md"), []byte(index))
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !pages[entry.Name()] {
			t.Errorf("docs/checks/%s is the page of no check", entry.Name())
		}
	}
}
