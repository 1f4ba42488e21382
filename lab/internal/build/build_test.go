package build

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// repository writes the files of a small repository.
func repository(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func small() map[string]string {
	return map[string]string{
		"lab/components/coredns/go.mod":  "module example.test/coredns\n\ngo 1.26\n",
		"lab/components/coredns/go.sum":  "",
		"lab/components/coredns/main.go": "package main\n\nfunc main() { println(1) }\n",
		"lab/go.mod":                     "module example.test/lab\n\ngo 1.26\n",
		"lab/cmd/pause/main.go":          "package main\n\nfunc main() { println(1) }\n",
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPathsChangeWithPrograms builds one program of each sort, again without a change, and with one.
func TestPathsChangeWithPrograms(t *testing.T) {
	for name, file := range map[string]string{
		"coredns": "lab/components/coredns/main.go",
		"pause":   "lab/cmd/pause/main.go",
	} {
		t.Run(name, func(t *testing.T) {
			dir := repository(t, small())
			var progress bytes.Buffer
			cache := New(dir, t.TempDir(), &progress)
			binary := func() string {
				t.Helper()
				path, err := cache.Binary(context.Background(), name)
				if err != nil {
					t.Fatal(err)
				}
				if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
					t.Fatalf("%s is no program: %v", path, err)
				}
				return path
			}
			first := binary()
			built := strings.Count(progress.String(), "built coredns")
			if again := binary(); again != first {
				t.Errorf("the path changed from %s to %s although nothing did", first, again)
			}
			if again := strings.Count(progress.String(), "built coredns"); again != built {
				t.Errorf("it was built again although nothing changed:\n%s", &progress)
			}
			write(t, dir, file, "package main\n\nfunc main() { println(2) }\n")
			if changed := binary(); changed == first {
				t.Error("the path is the same although the program changed")
			}
			if _, err := os.Stat(first); err != nil {
				t.Errorf("the program that a running lab uses is gone: %v", err)
			}
		})
	}
}

func TestWhatCannotBeBuilt(t *testing.T) {
	dir := repository(t, small())
	write(t, dir, "lab/cmd/pause/main.go", "package main\n\nfunc main() { nothing() }\n")
	cache := New(dir, t.TempDir(), &bytes.Buffer{})
	for name, want := range map[string]string{
		"paws":        `there is no program "paws"`,
		"pause":       "undefined: nothing",
		"flannel-cni": "hash the component",
	} {
		path, err := cache.Binary(context.Background(), name)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q and the error %v; want one that says %q", name, path, err, want)
		}
	}
}

func TestOneBuildsAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(context.Background(), path, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var progress bytes.Buffer
	if _, err := lock(ctx, path, &progress); err == nil {
		t.Fatal("two hold the lock")
	}
	if !strings.Contains(progress.String(), "waiting for another build") {
		t.Errorf("said %q; want that it waits", &progress)
	}
	unlock()
	again, err := lock(context.Background(), path, &bytes.Buffer{})
	if err != nil {
		t.Fatalf("the lock was not given back: %v", err)
	}
	again()
}

func TestPruneKeepsTheNewest(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	if err := Prune(dir); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range left {
		names = append(names, filepath.Base(path))
	}
	if got := strings.Join(names, ""); got != "cdef" {
		t.Errorf("left %q, want the newest four", got)
	}
}
