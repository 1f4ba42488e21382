package tally

import (
	"testing"
	"time"
)

// during returns the spans of a client that sends a fine request every 100 ms between pairs of times.
func during(ms ...int) (s Spans) {
	for i := 0; i < len(ms); i += 2 {
		for at0 := ms[i]; at0 <= ms[i+1]; at0 += 100 {
			s = s.add(at(at0))
		}
	}
	return s
}

func TestHole(t *testing.T) {
	for _, test := range []struct {
		name     string
		spans    Spans
		from, to int // milliseconds
		want     int
	}{
		{"nothing was ever fine", nil, 0, 9000, 9000},
		{"all of the time", during(0, 9000), 0, 9000, 0},
		{"a hole", during(0, 2000, 6000, 9000), 0, 9000, 4000},
		{"the longer of two", during(0, 1000, 2500, 4000, 7000, 9000), 0, 9000, 3000},
		{"at the end", during(0, 5000), 0, 9000, 4000},
		{"at the beginning", during(3000, 9000), 0, 9000, 3000},
		{"only what is asked for counts", during(0, 1000, 6000, 9000), 5000, 8000, 1000},
		{"another client covers it", during(0, 2000, 6000, 9000).union(during(1000, 7000)), 0, 9000, 0},
		{"another client covers a part of it", during(0, 2000, 6000, 9000).union(during(3500, 4500)), 0, 9000, 1500},
		{"a span within another", during(0, 9000).union(during(2000, 3000)), 0, 9000, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.spans.Hole(at(test.from), at(test.to)); got != time.Duration(test.want)*time.Millisecond {
				t.Errorf("a hole of %v, want %d ms; spans %v", got, test.want, test.spans)
			}
		})
	}
}
