package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestLiveNames follows names by the records of a run: there in waves, one wave back.
func TestLiveNames(t *testing.T) {
	var moves []zone.Move
	for i := range 3 {
		name := fmt.Sprintf("s%d.example.org.", i)
		set := func(address string) []zone.RRSet {
			return []zone.RRSet{{Name: name, Type: zone.A, TTL: 300, Values: []string{address}}}
		}
		moves = append(moves, zone.Move{Zone: "example.org.",
			Unit: zone.Unit{Name: name, Before: set("192.0.2.1"), After: set("192.0.2.2")}})
	}
	setup := mirror.Setup{Original: "blue", Mirror: "green", Freeze: mirror.FreezeArgs{Namespaces: []string{"shop"}},
		Switch: mirror.Switch{Command: "true"}, Names: shift.New([]*zone.Zone{{Name: "example.org."}}, moves,
			shift.Options{First: 1, Growth: 2}, "test", time.Unix(1, 0))}
	snapshot := &cluster.Snapshot{}
	draft, err := mirror.Propose(&kind.Request{Snapshot: snapshot, Options: plan.Options{Now: time.Unix(1, 0)}},
		setup, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Seal(snapshot, draft)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	v := newLive(&out, p, func() (int, int) { return 80, 24 }, true)
	acted := func(id string) {
		v.Record(engine.Record{Event: engine.Acted, Action: id, Result: engine.ResultDone, At: time.Unix(1, 0)})
	}
	shows := func(lines ...string) {
		t.Helper()
		block := strings.Join(v.block(80, 20), "\n")
		for _, line := range lines {
			if !strings.Contains(block, line) {
				t.Errorf("%q is not in\n%s", line, block)
			}
		}
	}
	shows("original   3  s0 s1 s2", "mirror     0")
	acted("over/lower/swap-1")
	shows("original   3  s0 s1 s2")
	acted("over/wave-1/swap-1")
	shows("original   2  s1 s2", "mirror     1  s0")
	acted("over/wave-2/swap-1")
	v.Record(engine.Record{Event: engine.GateAnswer, Step: "over/wave-2",
		Verdict: &engine.Verdict{Sent: 1200, Lost: 1}, At: time.Unix(2, 0)})
	shows("original   0", "mirror     3  s0 s1 s2", "gates    1,200 requests, 1 failed")
	acted("home/wave-1/swap-1")
	shows("original   1  s0", "mirror     2  s1 s2")
}
