package agent

import (
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

func TestPace(t *testing.T) {
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	p := pace{every: publishInterval}
	must := func(second int, want time.Duration) {
		t.Helper()
		if got := p.interval(at(second)); got != want {
			t.Errorf("after %d s reports come every %s, not %s", second, got, want)
		}
	}
	asked := func(number, millis, lasts int64) *v1alpha1.Asked {
		return &v1alpha1.Asked{Number: number, ReportMillis: millis, ForMillis: lasts}
	}
	must(0, publishInterval)
	p.plan(10*time.Second, at(0))
	must(0, 2500*time.Millisecond)
	must(5, 10*time.Second)
	if p.ask("node", nil, at(10)) || !p.ask("node", asked(1, 1000, 20000), at(10)) {
		t.Error("the first ask does not count")
	}
	must(10, time.Second)
	must(29, time.Second)
	must(30, 10*time.Second)
	if p.ask("node", asked(1, 1000, 20000), at(31)) {
		t.Error("the same ask counts again")
	}
	if !p.ask("all", asked(2, 2000, 10000), at(40)) || p.ask("node", asked(1, 1000, 20000), at(41)) {
		t.Error("an ask of one plan makes that of another new")
	}
	must(41, 2*time.Second)
	p.plan(10*time.Second, at(42)) // the paths changed meanwhile
	must(49, 2*time.Second)
	must(50, 10*time.Second)
	if p.ask("node", asked(3, 60000, 60000), at(60)) {
		t.Error("an ask makes reports come less often")
	}
	must(60, 10*time.Second)
	p.ask("node", asked(4, 0, 1<<50), at(60))
	must(60, leastAsked)
	must(60+119, leastAsked)
	must(60+120, 10*time.Second)
}

func TestSpread(t *testing.T) {
	early, late := 0, 0
	for range 1000 {
		switch got := spread(time.Second); {
		case got <= 0 || got > time.Second:
			t.Fatalf("%s is no part of a second", got)
		case got < time.Second/2:
			early++
		default:
			late++
		}
	}
	if early < 300 || late < 300 {
		t.Errorf("%d early and %d late: all report at once", early, late)
	}
	if spread(0) <= 0 {
		t.Error("a ticker does not take no time")
	}
}
