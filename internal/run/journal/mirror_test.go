package journal

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

func filled(t *testing.T, records []engine.Record) *Memory {
	t.Helper()
	m := &Memory{}
	for _, r := range records {
		if err := m.Append(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// TestMirrorRepairs opens a mirror over files in every state, and demands that the file ends as the primary.
func TestMirrorRepairs(t *testing.T) {
	records := sample(6)
	another := link(sample(6))
	another[0].Data = json.RawMessage(`{"plan":"h2"}`)
	tests := map[string]struct {
		file  []engine.Record
		tail  string
		aside bool
	}{
		"no file":        {},
		"empty":          {file: records[:0]},
		"behind":         {file: records[:3]},
		"cut off":        {file: records[:3], tail: `{"seq":4,`},
		"equal":          {file: records},
		"another plan":   {file: another, aside: true},
		"damaged inside": {file: records[:2], tail: "garbage\nmore\n", aside: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal")
			if name != "no file" {
				write(t, path, test.file)
				f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteString(test.tail); err != nil {
					t.Fatal(err)
				}
				f.Close()
			}
			var warnings []error
			m := NewMirrored(filled(t, records[:5]), path, "h1", func(err error) { warnings = append(warnings, err) })
			defer m.Close()
			if name == "equal" {
				m.primary = filled(t, records)
			}
			if _, err := m.Records(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := m.Append(t.Context(), records[5]); err != nil {
				t.Fatal(err)
			}
			wantFile(t, path, records)
			_, err := os.Stat(path + ".other-1")
			if aside := err == nil; aside != test.aside || aside != (len(warnings) == 1) {
				t.Errorf("moved aside: %v, want %v; warnings %v", aside, test.aside, warnings)
			}
		})
	}
}

// TestMirrorContradicts: records of this machine that the cluster lacks, or has otherwise, stop for a person, who is
// told of them; the file stays as it is.
func TestMirrorContradicts(t *testing.T) {
	records := sample(8)
	rewritten := sample(6)
	rewritten[5].Result = engine.ResultFailed
	rewritten = link(rewritten)
	for name, test := range map[string]struct {
		cluster []engine.Record
		want    string
	}{
		"restored from a backup": {records[:5],
			"the cluster lacks records that this machine has: its journal ends before record 6"},
		"restored to its start": {nil, "its journal ends before record 1"},
		"rewritten":             {rewritten, `record 6 is "acted act-2 failed" there, but "acted act-2 done"`},
		"rewritten and longer":  {append(slices.Clone(rewritten), records[6:]...), "record 6 is"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal")
			write(t, path, records)
			m := NewMirrored(filled(t, test.cluster), path, "h1", func(err error) { t.Errorf("a warning: %v", err) })
			defer m.Close()
			_, err := m.Records(t.Context())
			if !errors.Is(err, engine.ErrNeedsPerson) || engine.HintOf(err) == "" {
				t.Fatalf("not for a person, with a hint: %v", err)
			}
			if !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "only this machine has: ") ||
				!strings.Contains(err.Error(), "acted act-3 done") {
				t.Errorf("says: %v", err)
			}
			wantFile(t, path, records)
		})
	}
}

// TestMirrorContradictsLate: a copy that could not be read when the run began is compared as soon as it can be.
func TestMirrorContradictsLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "journal")
	records := sample(6)
	if err := os.WriteFile(filepath.Dir(path), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := NewMirrored(filled(t, records[:2]), path, "h1", nil)
	defer m.Close()
	if _, err := m.Records(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	write(t, path, records)
	if err := m.Append(t.Context(), records[2]); !errors.Is(err, engine.ErrNeedsPerson) {
		t.Errorf("%v", err)
	}
}

// TestMirrorFileFails takes the file away under a run: the primary holds, one warning comes, and the file
// catches up when it can be written again.
func TestMirrorFileFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "journal")
	records := sample(9)
	var warnings []string
	m := NewMirrored(&Memory{}, path, "h1", func(err error) { warnings = append(warnings, err.Error()) })
	defer m.Close()
	// A file where the folder should be.
	if err := os.WriteFile(filepath.Dir(path), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Records(t.Context()); err != nil {
		t.Fatal(err)
	}
	add := func(rs ...engine.Record) {
		for _, r := range rs {
			if err := m.Append(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(records[:2]...)
	if len(warnings) != 1 || !strings.Contains(warnings[0], "the cluster has all of them") {
		t.Fatalf("warnings: %q", warnings)
	}
	if err := os.Remove(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	add(records[2])
	wantFile(t, path, records[:3])
	_ = withFileSize(t, uint64(m.file.size)+10, func() error { add(records[3:6]...); return nil })
	if len(warnings) != 2 {
		t.Fatalf("warnings: %q", warnings)
	}
	add(records[6:]...)
	wantFile(t, path, records)
}

// TestMirrorPrimaryFails demands that nothing goes into the file that the primary does not have.
func TestMirrorPrimaryFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	records := sample(3)
	m := NewMirrored(filled(t, records), path, "h1", nil)
	defer m.Close()
	if _, err := m.Records(t.Context()); err != nil {
		t.Fatal(err)
	}
	wrong := records[2]
	wrong.Step = "other"
	if err := m.Append(t.Context(), wrong); !errors.Is(err, ErrTaken) {
		t.Fatalf("a record that the primary refuses: %v", err)
	}
	wantFile(t, path, records)
}

// TestCopyCompare: a copy, as it was when it was read, is compared with all fields of the cluster's records.
func TestCopyCompare(t *testing.T) {
	records := sample(8)
	edit := func(from, to string) func(string) string {
		return func(text string) string { return strings.Replace(text, from, to, 1) }
	}
	for name, test := range map[string]struct {
		cluster []engine.Record
		edit    func(string) string
		plan    string
		local   int
		differs int // the record that does, 0 for none
	}{
		"equal":          {cluster: records, local: 8},
		"behind":         {cluster: append(slices.Clone(records), records[7]), local: 8},
		"ahead":          {cluster: records[:5], local: 8, differs: 6},
		"another form":   {cluster: records, edit: edit(`{"seq":3,`, `{"seq": 3, `), local: 8},
		"edited":         {cluster: records, edit: edit(`"title":"back"`, `"title":"on"`), local: 8, differs: 3},
		"its first line": {cluster: records, edit: edit(`"by":"a@b/1"`, `"by":"b@b/1"`), local: 8, differs: 1},
		"no journal":     {cluster: records, edit: edit(`"action":"act-1"`, `"action":"act-9"`)},
		"damaged":        {cluster: records, edit: edit(`{"seq":3,`, `{"seq":4,`)},
		"cut off":        {cluster: records, edit: func(text string) string { return text[:len(text)-1] }, local: 7},
		"of other plans": {cluster: records, plan: "h2"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal")
			write(t, path, records)
			if test.edit != nil {
				text, err := os.ReadFile(path)
				if err == nil {
					err = os.WriteFile(path, []byte(test.edit(string(text))), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			kept, err := ReadCopy(path)
			if err == nil {
				err = os.WriteFile(path, nil, 0o600) // it is not read again
			}
			if err != nil {
				t.Fatal(err)
			}
			local, err := kept.Compare(cmp.Or(test.plan, "h1"), test.cluster)
			var contradicts *ContradictError
			errors.As(err, &contradicts)
			if len(local) != test.local || (contradicts != nil) != (test.differs > 0) ||
				contradicts != nil && contradicts.At != test.differs {
				t.Errorf("%d records, %v", len(local), err)
			}
		})
	}
	if kept, err := ReadCopy(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	} else if local, err := kept.Compare("h1", records); len(local) > 0 || err != nil {
		t.Errorf("of no file: %d records, %v", len(local), err)
	}
}
