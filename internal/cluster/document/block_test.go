package document

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
)

// agree holds what block makes of a text to what the whole parser makes of it, and reports whether block knew it.
func agree(t *testing.T, text string) bool {
	t.Helper()
	var b block
	got, ok := b.json(nil, []byte(text))
	if !ok {
		return false
	}
	want, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%q: %s, and it is no YAML: %v", text, got, err)
	}
	var left, right any
	if err := json.Unmarshal(got, &left); err != nil {
		t.Fatalf("%q: %s: %v", text, got, err)
	}
	if err := json.Unmarshal(want, &right); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(left, right) {
		t.Fatalf("%q:\ngot  %s\nwant %s", text, got, want)
	}
	return true
}

func TestBlock(t *testing.T) {
	for _, text := range []string{
		"a: b\n", "a:\n- b\n- c: d\n  e:\n  - f\ng: 1\n",
		"a:\n  - b\n  -\n    c: d\n", "- - a\n  - b\n- {}\n- []\n", "a: {b: 1, c: [x, y]}\n",
		"a: |\n  b\n\n    c \n\td: e\n", "a: |\n  b\n\n    c \n  \td: e\n\nf: g\n",
		"a: |-\n  b\n\n\nc: |+\n  d\n\n\n", "a: |\n  #!/bin/sh\n  x\n\n", "- |\n  x\n- y\n",
		"a: 'it''s'\nb: \"q\\\"\\n\"\n", "a: \"x: y\"\nb: 'x\n  y'\n", "a: x\n  y\n  z\nb: c\n", "a:\n\n  b\nc:\nd:\n",
		"a: https://x.y:1/z\nb: 10.0.0.0/8\nc: 1.2.3.4\nd: a#b\n",
		"a: 1\nb: -1\nc: 0x1f\nd: 010\ne: 1e3\nf: .5\ng: 1_000\nh: 0.5\ni: 123456789012345678901\nj: 5e9\n",
		"a: true\nb: True\nc: yes\nd: no\ne: y\nf: ~\ng: null\nh: NULL\n",
		"a: 100m\nb: 16Gi\nc: 2024-01-02T03:04:05Z\nd: 2024-01-02\ne: 5b9c7d8f6\nf: v1.2\n", "f:metadata:\n  .: {}\n" +
			"  k:{\"type\":\"Ready\"}:\n    f:x: {}\n", "a: \u00e4\u4e2d\n", "  a: b\n  c:\n    - d\n",
		"a: =\nb: -x\n", "a: \"\"\nb: ''\n", "a: \"b\n  \\ \\ c\"\n", "a: \"b\\\\\n  c\"\n",
		"a: \"\\U0001F600\"\n", "a: \"\\u0041\\ \"\n",
	} {
		if !agree(t, text) {
			t.Logf("left to the whole parser: %q", text)
		}
	}
	for _, text := range []string{
		"", "a", "a: b", "a: &x b\nc: *x\n", "<<: {a: b}\n", "a: b\na: c\n", "a: b # c\n", "# a\nb: c\n", "a: >\n  b\n",
		"a: !!str 1\n", "? a\n: b\n", "a: b: c\n", "a\tb: c\n", "a: [b,\n  c]\n", "a: |2\n   b\n", "a: 'b\n\n  c'\n",
		"a:\n    b: c\n  d: e\n", "a: \"b\\x41\"\n", "a: \"b\\\n  c\"\n", "a: \"b\\ \n  c\"\n", "a: \"\\ \\\"\n",
		"a: \"\\ \" \"b\"\n", "a: \"\\u12\"\n", "a: b\n  # c\n", "a: 'b'\n" +
			"  # 'c'\n", "a:\n# b\n- c\n", "a:\n- b\n# c\n", "- b\n# c\n", "a: |\n  b\n # c\n", "1: a\n", "yes: a\n",
		"---\na: b\n", "a: b\n...\nc: d\n", "a: \u2028\n", "a: \x01\n", "a: \xff\n", "a : b\n: c\n", "- a\nb: c\n",
	} {
		if agree(t, text) && text != "a\n" {
			t.Errorf("%q is not as kubectl prints it", text)
		}
	}
}

// TestBlockReadsClusters holds that block knows all of what kubectl prints; else reading is slow.
func TestBlockReadsClusters(t *testing.T) {
	s := clustertest.Reflectors(20)
	for _, object := range []any{s.Nodes, s.Pods, s.Deployments, s.Services, s.NetworkPolicies, s.Budgets, s.Other} {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if !agree(t, string(text)) {
			t.Errorf("%T is left to the whole parser", object)
		}
	}
	known, all := 0, 0
	for i, text := range fixtures(t) {
		if i%10 != 0 {
			continue // the whole parser is slow
		}
		all++
		if agree(t, text) {
			known++
		}
	}
	t.Logf("%d of %d documents of fixtures are known", known, all)
}

// TestBlockReadsFolds holds that block knows text that is printed on several lines, wherever these are parted.
func TestBlockReadsFolds(t *testing.T) {
	for length := range 100 {
		for _, rest := range []string{
			"type:\n\n\t    // Known are: \"Available\"\n\t    //  +list", "a \\ b  \\  c\n\td \\\\ e",
			"it's  two: 'spaces'", "# a: b # c", "- a --- b - c", "smile \U0001F600  \U0001F600 \ufeff",
		} {
			text := strings.Repeat("x", length) + " " + rest + strings.Repeat(" "+rest, 3)
			printed, err := yaml.Marshal(map[string]any{"a": []string{text},
				"b": map[string]string{"c": text}, "d": text})
			if err != nil {
				t.Fatal(err)
			}
			if !agree(t, string(printed)) {
				t.Fatalf("left to the whole parser:\n%s", printed)
			}
		}
	}
}

// fixtures are the documents of YAML that are there for tests.
func fixtures(t testing.TB) []string {
	var files []string
	for _, pattern := range []string{"../../preflight/check/*/testdata/*/*.yaml", "../../network/*/testdata/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	var documents []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, strings.Split(string(text), "---\n")...)
	}
	return documents
}

// FuzzBlock holds that block and the whole parser make the same of every text that block knows.
func FuzzBlock(f *testing.F) {
	for i, text := range fixtures(f) {
		if i%10 == 0 {
			f.Add(text)
		}
	}
	f.Add("a: 'b\n  c'\nd:\n- |-\n  e\n- \"f\\n\"\n")
	f.Add("f: |\n \t\t\t\t\n")
	f.Fuzz(func(t *testing.T, text string) { agree(t, text) })
}

// BenchmarkBlock compares block with the whole parser on pods as kubectl prints them.
func BenchmarkBlock(b *testing.B) {
	text, err := yaml.Marshal(clustertest.Cluster(5).Pods)
	if err != nil {
		b.Fatal(err)
	}
	for _, whole := range []bool{false, true} {
		b.Run(fmt.Sprintf("whole=%t", whole), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			var one block
			var out []byte
			for b.Loop() {
				if whole {
					out, err = yaml.YAMLToJSON(text)
				} else {
					out, _ = one.json(out[:0], text)
				}
			}
			if err != nil || len(out) == 0 {
				b.Fatal(err)
			}
		})
	}
}
