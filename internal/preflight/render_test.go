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
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/finding"
)

var update = flag.Bool("update", false, "write the expected files and docs/checks anew")

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
	result := run(Options{Accept: map[string]string{"a/one": "ticket 42"}})
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

// TestSchema holds the JSON to its schema.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile("../../docs/findings.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	for _, result := range []finding.Result{{}, run(Options{}), run(Options{Accept: map[string]string{"b": "x"}})} {
		var written bytes.Buffer
		if err := JSON(&written, result); err != nil {
			t.Fatal(err)
		}
		var value any
		if err := json.Unmarshal(written.Bytes(), &value); err != nil {
			t.Fatal(err)
		}
		for _, problem := range violations("$", schema, value) {
			t.Error(problem)
		}
	}
	for _, bad := range []string{`{}`, `{"summary":{},"findings":[]}`, `{"summary":{"block":1.5,"warn":0,"info":0,"notChecked":0},"findings":[]}`,
		`{"summary":{"block":0,"warn":0,"info":0,"notChecked":0},"findings":[{"id":"X","severity":"odd","subject":{},"message":1}],"more":1}`} {
		var value any
		if err := json.Unmarshal([]byte(bad), &value); err != nil {
			t.Fatal(err)
		}
		if len(violations("$", schema, value)) == 0 {
			t.Errorf("the schema lets through %s", bad)
		}
	}
}

// violations checks a value against the words of JSON Schema that our schema uses.
func violations(at string, schema map[string]any, value any) []string {
	switch schema["type"] {
	case "object":
		return objectViolations(at, schema, value)
	case "array":
		list, ok := value.([]any)
		if !ok {
			return []string{at + " is no list"}
		}
		var found []string
		for i, element := range list {
			found = append(found, violations(fmt.Sprintf("%s[%d]", at, i), schema["items"].(map[string]any), element)...)
		}
		return found
	case "integer":
		if n, ok := value.(float64); !ok || n != float64(int(n)) {
			return []string{at + " is no integer"}
		}
	case "string":
		text, ok := value.(string)
		if !ok {
			return []string{at + " is no string"}
		}
		if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(text) {
			return []string{at + " is not as " + pattern}
		}
		if allowed, ok := schema["enum"].([]any); ok && !slices.Contains(allowed, any(text)) {
			return []string{at + " is none of those allowed"}
		}
	default:
		return []string{fmt.Sprintf("%s: the schema has the type %v", at, schema["type"])}
	}
	return nil
}

func objectViolations(at string, schema map[string]any, value any) []string {
	object, ok := value.(map[string]any)
	if !ok {
		return []string{at + " is no object"}
	}
	var found []string
	properties, closed := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := object[name.(string)]; !ok {
			found = append(found, at+" lacks "+name.(string))
		}
	}
	for name, field := range object {
		property, known := properties[name].(map[string]any)
		switch {
		case known:
			found = append(found, violations(at+"."+name, property, field)...)
		case closed:
			found = append(found, at+" has "+name)
		}
	}
	return found
}

// TestDocs holds docs/checks to what the checks say of themselves.
func TestDocs(t *testing.T) {
	const dir = "../../docs/checks"
	index := "# The checks\n\nEach has a page, which is what `theseus explain ID` prints.\n\n"
	pages := map[string]bool{"README.md": true}
	for _, c := range All() {
		index += fmt.Sprintf("- [%s](%s): %s\n", c.ID, PageName(c.ID), c.Title)
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
