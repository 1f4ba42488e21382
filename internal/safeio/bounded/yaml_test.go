package bounded

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// bomb is a text whose aliases repeat one long value: 349 kB that were 3.4 GB.
func bomb() []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\ndata:\n  a: &a %s\n",
		strings.Repeat("x", 100_000))
	for i := range 34_000 / 4 {
		fmt.Fprintf(&text, "  k%d: *a\n", i)
	}
	return text.Bytes()
}

func TestBounds(t *testing.T) {
	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), ", "))
	}
	for name, c := range map[string]struct{ text, want string }{
		"one long value":   {string(bomb()), "aliases add more than 4 MiB"},
		"values of values": {laughs, "aliases add more than 4 MiB"},
		"many aliases": {"a: &a x\nb: [" + strings.Repeat("*a, ", MaxAliases+1) + "x]\n",
			"more than 10000 aliases"},
		"itself": {"a: &a [*a]\n", "contains itself"},
		"depth":  {strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), "nested more than 1000 deep"},
		"values": {"a: [" + strings.Repeat(",x", MaxValues)[1:] + "]\n", "more than 2000000 values"},
		"bytes":  {"a: " + strings.Repeat("x", MaxBytes), "larger than 64 MiB"},
		"merged": {"a: &a {k: " + strings.Repeat("x", 1<<20) + "}\nb: [" + strings.Repeat("{<<: *a}, ", 9) +
			"]\n", "aliases add more than 4 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := new(Budget).ToJSON([]byte(c.text))
			if !errors.Is(err, ErrBound) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.200v, want %q", err, c.want)
			}
		})
	}
}

func TestAliasesWork(t *testing.T) {
	got, err := new(Budget).ToJSON([]byte("a: &a {k: yes}\nb: *a\nc:\n  <<: *a\n  d: 1\n"))
	if want := `{"a":{"k":true},"b":{"k":true},"c":{"d":1,"k":true}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

// A budget is of an input: what one of its documents used, the next lacks.
func TestBudgetIsOfAnInput(t *testing.T) {
	text := []byte("a: &a " + strings.Repeat("x", 1<<20) + "\nb: *a\n")
	var b Budget
	for i := range 3 {
		if _, err := b.ToJSON(text); err != nil {
			t.Fatalf("document %d: %v", i, err)
		}
	}
	if _, err := b.ToJSON(text); !errors.Is(err, ErrBound) {
		t.Errorf("four documents that add 1 MiB each: %v", err)
	}
}

func TestReadAll(t *testing.T) {
	if text, err := ReadAll(strings.NewReader("abc"), 3); err != nil || string(text) != "abc" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := ReadAll(strings.NewReader("abcd"), 3); !errors.Is(err, ErrBound) {
		t.Error(err)
	}
}

func FuzzToJSON(f *testing.F) {
	f.Add([]byte("a: &a {k: yes}\nb: *a\nc:\n  <<: *a\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("? &a b\n: *a\n--- |\n *x &y\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		json, err := new(Budget).ToJSON(text)
		if most := 6 * (len(text)*nodeCost + 2*MaxExpanded); err == nil && len(json) > most {
			t.Errorf("%d bytes became %d", len(text), len(json))
		}
	})
}

// BenchmarkBomb fails if the bomb takes a second, or allocates 200 MiB.
func BenchmarkBomb(b *testing.B) {
	text := bomb()
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	defer func() {
		runtime.ReadMemStats(&after)
		each, bytes := b.Elapsed()/time.Duration(b.N), (after.TotalAlloc-before.TotalAlloc)/uint64(b.N)
		if each > time.Second || bytes > 200<<20 {
			b.Errorf("a bomb takes %v and %d MiB", each, bytes>>20)
		}
	}()
	for b.Loop() {
		if _, err := new(Budget).ToJSON(text); !errors.Is(err, ErrBound) {
			b.Fatal(err)
		}
	}
}
