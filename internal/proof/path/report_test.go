package path

import (
	"testing"
	"time"
)

// TestReports: regular reports are bounded up to 500 nodes, and come often enough beyond; news are not late in a large
// cluster, and gates ask where two reports would take long.
func TestReports(t *testing.T) {
	for _, test := range []struct {
		nodes                       int
		every, compared, news, asks time.Duration
	}{
		{0, time.Second, time.Second, time.Second, 0},
		{1, time.Second, time.Second, time.Second, 0},
		{25, time.Second, time.Second, time.Second, 0},
		{49, 1960 * time.Millisecond, 1960 * time.Millisecond, time.Second, 0},
		{50, 2 * time.Second, 2 * time.Second, time.Second, time.Second / 2},
		{100, 4 * time.Second, 4 * time.Second, 2 * time.Second, time.Second / 2},
		{250, 10 * time.Second, 10 * time.Second, 5 * time.Second, 1250 * time.Millisecond},
		{500, 20 * time.Second, 10 * time.Second, 10 * time.Second, 2500 * time.Millisecond},
		{5000, 20 * time.Second, 10 * time.Second, 10 * time.Second, 10 * time.Second},
		{16000, 20 * time.Second, 10 * time.Second, 10 * time.Second, 10 * time.Second},
	} {
		every := ReportEvery(test.nodes)
		if every != test.every || News(every) != test.news {
			t.Errorf("%d nodes report every %s, and tell news within %s", test.nodes, every, News(every))
		}
		if got := ComparedEvery(test.nodes); got != test.compared {
			t.Errorf("%d nodes that are compared report every %s", test.nodes, got)
		}
		if rate := float64(test.nodes) / every.Seconds(); rate > 25 && test.nodes <= 500 {
			t.Errorf("%d nodes write %.1f reports a second", test.nodes, rate)
		}
		if asks := test.asks > 0; Asks(test.nodes) != asks || asks && AskedEvery(test.nodes, test.nodes) != test.asks {
			t.Errorf("%d nodes are asked: %t, and answer within %s", test.nodes, Asks(test.nodes),
				AskedEvery(test.nodes, test.nodes))
		}
	}
}
