package document

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

// longList is a List of Secrets, which are not kept, made while it is read. It measures what is alive meanwhile.
type longList struct {
	left, every int64 // bytes to go, and between two measurements
	next        int64
	rest        string
	item, tail  string
	peak        uint64
}

func newLongList(form string, size int64) *longList {
	padding := strings.Repeat("QUFB", 1000)
	l := &longList{left: size, every: size / 8, next: size}
	switch form {
	case "json":
		l.rest = `{"apiVersion":"v1","kind":"List","items":[` +
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"first"}}`
		l.item = `,{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"n"},"data":{"a":"` +
			padding + `"}}` + "\n"
		l.tail = `]}`
	default:
		l.rest = "apiVersion: v1\nitems:\n"
		l.item = "- apiVersion: v1\n  kind: Secret\n  metadata: {name: s, namespace: n}\n" +
			"  data:\n    a: " + padding + "\n"
		l.tail = "kind: List\n"
	}
	return l
}

func (l *longList) Read(p []byte) (int, error) {
	if l.rest == "" && l.left <= 0 {
		l.rest, l.tail = l.tail, ""
		if l.rest == "" {
			return 0, io.EOF
		}
	}
	if l.rest == "" {
		l.rest = l.item
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	if l.left -= int64(n); l.left < l.next {
		l.next -= l.every
		l.peak = max(l.peak, alive())
	}
	return n, nil
}

// alive is what a garbage collection leaves, in bytes.
func alive() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestBoundedMemory holds that a List is read object by object, however long it is.
func TestBoundedMemory(t *testing.T) {
	for _, form := range []string{"json", "yaml"} {
		before := alive()
		list := newLongList(form, 2<<20)
		if err := New("test").Add("in", list, false); err != nil {
			t.Fatal(err)
		}
		if grown := int64(list.peak) - int64(before); grown > 512<<10 {
			t.Errorf("%s: %d KiB are alive in the middle of a List of 2 MiB", form, grown>>10)
		}
	}
}

// BenchmarkList reads a List of 200 MB whose objects are not kept, and reports what is alive at most.
func BenchmarkList(b *testing.B) {
	const size = 200_000_000
	for _, form := range []string{"json", "yaml"} {
		b.Run(fmt.Sprintf("%s-200MB", form), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				list := newLongList(form, size)
				if err := New("test").Add("in", list, false); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(list.peak)/(1<<20), "MiB-alive")
			}
		})
	}
}
