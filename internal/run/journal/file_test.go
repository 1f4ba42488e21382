package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/canonical"
	"github.com/theseus-cni/theseus/internal/step"
)

// sample are n records as a run writes them: a first one, then intents with inverses and outcomes.
func sample(n int) []engine.Record {
	at := time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.UTC)
	start, _ := json.Marshal(engine.Start{Plan: "h1", Theseus: "v0", Steps: 1})
	all := []engine.Record{
		{Seq: 1, At: at, Event: engine.Started, Data: start, By: "a@b/1"},
		{Seq: 2, At: at, Event: engine.StepBegan, Step: "s"},
	}
	for len(all) < n {
		id := fmt.Sprintf("act-%d", len(all)/2)
		var back step.Operation = step.Patch{Merge: json.RawMessage(`{"metadata":{"labels":{"x":null}}}`)}
		if len(all)/2%2 == 0 {
			back = step.Apply{Object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
				"kind": "Node", "n": int64(3)}}}
		}
		all = append(all,
			engine.Record{Seq: len(all) + 1, At: at, Event: engine.Intended, Step: "s", Action: id,
				Before:  json.RawMessage(`{"z":1,"a":[true,null,"x<y"],"pi":3.25,"big":9007199254740993}`),
				Inverse: &step.Action{ID: id + "/undo", Do: back, Title: "back"}},
			engine.Record{Seq: len(all) + 2, At: at, Event: engine.Acted, Step: "s",
				Action: id, Result: engine.ResultDone})
	}
	return link(all[:n])
}

// link chains records, as a run does.
func link(records []engine.Record) []engine.Record {
	head := "h1"
	for i := range records {
		head, _ = engine.Link(head, records[i]) // plain data
		records[i].Chain = head
	}
	return records
}

// plain makes records comparable: every number and key order as JSON says it.
func plain(t *testing.T, records []engine.Record) []string {
	t.Helper()
	var out []string
	for _, r := range records {
		data, err := canonical.JSON(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(data))
	}
	return out
}

func write(t *testing.T, path string, records []engine.Record) {
	t.Helper()
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, r := range records {
		if err := f.Append(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func wantFile(t *testing.T, path string, want []engine.Record) *File {
	t.Helper()
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	got, _ := f.Records(t.Context())
	if diff := cmp.Diff(plain(t, want), plain(t, got)); diff != "" {
		t.Fatalf("the file holds (-want +got):\n%s", diff)
	}
	return f
}

func TestFileKeepsRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "journal.jsonl")
	records := sample(7)
	write(t, path, records[:4])
	write(t, path, records[4:])
	f := wantFile(t, path, records)
	if err := f.Append(t.Context(), records[6]); err != nil {
		t.Errorf("the last record again: %v", err)
	}
	other := records[6]
	other.Result = engine.ResultFailed
	if err := f.Append(t.Context(), other); !errors.Is(err, ErrTaken) || engine.HintOf(err) == "" {
		t.Errorf("another record in the last one's place: %v", err)
	}
	if err := f.Append(t.Context(), engine.Record{Seq: 9}); err == nil {
		t.Error("a hole was accepted")
	}
	wantFile(t, path, records)
}

// TestFileCutAnywhere cuts a file at every byte, as a crash may: every whole line is kept, the rest dropped,
// and writing goes on from there to the same file.
func TestFileCutAnywhere(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	records := sample(5)
	write(t, whole, records)
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(data) + 1 {
		for _, tail := range []string{"", "\x00\x00\x00\n"} { // the second is what some file systems leave
			path := filepath.Join(dir, "cut")
			if err := os.WriteFile(path, append(data[:n:n], tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			lines := strings.Count(string(data[:n]), "\n")
			f := wantFile(t, path, records[:lines])
			if want := int64(n+len(tail)) - f.size; f.Dropped() != want {
				t.Fatalf("cut at %d: %d bytes dropped, want %d", n, f.Dropped(), want)
			}
			if n%16 != 0 && n != len(data) { // every append waits for the disk
				continue
			}
			for _, r := range records[lines:] {
				if err := f.Append(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			if again, _ := os.ReadFile(path); string(again) != string(data) {
				t.Fatalf("cut at %d and written on, the file is\n%s", n, again)
			}
		}
	}
}

func TestFileDamaged(t *testing.T) {
	records := sample(4)
	for name, damage := range map[string]func([]string) []string{
		"a line that is no JSON": func(l []string) []string { l[1] = "{]"; return l },
		"a missing line":         func(l []string) []string { return append(l[:1:1], l[2:]...) },
		"a doubled line":         func(l []string) []string { return append(l[:2:2], l[1:]...) },
	} {
		path := filepath.Join(t.TempDir(), "journal")
		write(t, path, records)
		data, _ := os.ReadFile(path)
		lines := damage(strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"))
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenFile(path)
		if !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "line 2") && !strings.Contains(err.Error(),
			"line 3") || engine.HintOf(err) == "" {
			t.Errorf("%s: %v, hint %q", name, err, engine.HintOf(err))
		}
	}
}

// TestFileDiskFull bounds the size of files of this process, which makes writes fall short just as a full
// disk does: half a line is written, then the error comes. The file must be as before, and work again after.
func TestFileDiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	records := sample(6)
	write(t, path, records[:3])
	f := wantFile(t, path, records[:3])
	half := f.size + 40
	failed := withFileSize(t, uint64(half), func() error { return f.Append(t.Context(), records[3]) })
	if !errors.Is(failed, syscall.EFBIG) {
		t.Fatalf("over the bound: %v", failed)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != f.size {
		t.Fatalf("the file has %d bytes, %d were whole (%v)", info.Size(), f.size, err)
	}
	for _, r := range records[3:] {
		if err := f.Append(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	wantFile(t, path, records)
	full := fileError(path, &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC})
	if !strings.Contains(full.Error(), "no space left") || !strings.Contains(engine.HintOf(full), "free disk space") {
		t.Errorf("full disk: %v, hint %q", full, engine.HintOf(full))
	}
}
