package config

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/mirror/splice"
)

var update = flag.Bool("update", false, "rewrite golden files")

// scenario is what a golden file says is asked for.
type scenario struct {
	From    []string          `json:"from"`
	Name    string            `json:"name"`
	State   string            `json:"state"`
	To      string            `json:"to"`
	Surge   bool              `json:"surge"`
	Answers map[string]string `json:"answers"`
}

func (s scenario) options() Options {
	return Options{Name: s.Name, State: s.State, Network: s.To, Surge: s.Surge, Answers: s.Answers}
}

func read(t testing.TB, names ...string) []*splice.File {
	t.Helper()
	var files []*splice.File
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		file, err := splice.Parse(name, text)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// TestGolden holds conversions to golden files: each has the options, then what became of them: the error, or the open
// questions, or what is made and why. test/kops, test/capi and test/kubeadm let those judge what is made for them.
func TestGolden(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil || len(archive.Files) == 0 || archive.Files[0].Name != "options.yaml" {
				t.Fatal("the first file is not options.yaml", err)
			}
			var s scenario
			if err := yaml.UnmarshalStrict(archive.Files[0].Data, &s); err != nil {
				t.Fatal(err)
			}
			got := &txtar.Archive{Comment: archive.Comment, Files: archive.Files[:1]}
			for _, file := range archive.Files {
				if strings.HasPrefix(file.Name, "kops-") { // what a version of kops says of it, written by hand
					got.Files = append(got.Files, file)
				}
			}
			got.Files = append(got.Files, outcome(read(t, s.From...), s.options())...)
			text := txtar.Format(got)
			if *update {
				if err := os.WriteFile(name, text, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(text, want) {
				t.Errorf("differs from the golden file (-update rewrites it):\n%s",
					diff.Diff("want", want, "got", text))
			}
		})
	}
}

func outcome(files []*splice.File, options Options) []txtar.File {
	result, err := Convert(files, options)
	if err != nil {
		hint := ""
		if h, ok := err.(interface{ Hint() string }); ok {
			hint = h.Hint()
		}
		return []txtar.File{{Name: "error", Data: fmt.Appendf(nil, "%v\nhint: %s\n", err, hint)}}
	}
	var questions, changes strings.Builder
	for _, q := range result.Questions {
		fmt.Fprintf(&questions, "%s:%d %s=%s\n    %s\n", q.File, q.Line, q.ID, strings.Join(q.Answers, "|"), q.Text)
	}
	if questions.Len() > 0 {
		return []txtar.File{{Name: "questions", Data: []byte(questions.String())}}
	}
	for _, c := range result.Changes {
		fmt.Fprintf(&changes, "%s:%d %s %s: %q -> %q: %s\n", c.File, c.Line, c.Object, c.Path, c.From, c.To, c.Why)
	}
	for _, note := range result.Notes {
		fmt.Fprintf(&changes, "note: %s\n", note)
	}
	return []txtar.File{{Name: "changes", Data: []byte(changes.String())}, {Name: "output.yaml", Data: result.Text}}
}

// TestNamesTable holds names that kops derives, for clusters with names of all lengths; test/kops compares them with
// kops' own.
func TestNamesTable(t *testing.T) {
	var table []map[string]string
	for n := 1; n <= 63; n++ {
		cluster := strings.Repeat("blue-north", 7)[:n] + "x.prod.example.com"
		names := derive(cluster, nil, nil, [][2]string{{"shop", "writer"}})
		row := map[string]string{"cluster": cluster}
		for _, name := range names {
			switch {
			case strings.HasPrefix(name.Old, "masters.") && strings.HasPrefix(name.What, "IAM"):
				row["role"] = name.Old
			case strings.HasPrefix(name.Old, "writer.shop."):
				row["account"] = name.Old
			case strings.HasPrefix(name.Old, "api-") && name.What == "load balancer":
				row["resource"] = name.Old
			}
		}
		table = append(table, row)
	}
	text, err := yaml.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "names.yaml")
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(text, want) {
		t.Errorf("differs from %s (-update rewrites it): %v", file, err)
	}
}
