package probe

import (
	"math"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// TestSendsItsRate: the schedules of paths send what path.RateOf says, by node and in all, with each budget.
func TestSendsItsRate(t *testing.T) {
	const over = 100 * time.Second
	for _, budget := range []string{"small", "normal", "fine"} {
		fast, _ := path.Budget(budget)
		topology := path.Topology{Old: map[string]string{}, Services: map[string]string{path.Old: "192.0.2.1"},
			NodePorts: map[string]int{path.Old: 30000}, DNS: "192.0.2.1:53", FullSize: 1422,
			Denied: map[string]bool{path.Old: true}, NodesOutside: map[string]bool{path.Old: true},
			Outside:   []path.Responder{{Name: "x", Protocol: v1alpha1.TCPConnect, Host: "x", Address: "192.0.2.1:1"}},
			Ports:     path.Ports{UDP: 1, TCP: 2, Denied: 3, HostOffset: 10},
			Intervals: path.Intervals{Fast: fast}}
		for _, node := range []string{"a", "b", "c"} {
			topology.Nodes = append(topology.Nodes, path.Node{Name: node, Address: "192.0.2.1"})
			topology.Old[node] = "192.0.2.1"
		}
		delete(topology.Old, "c") // so that one node sends less
		paths := path.Build(topology)
		base := time.Unix(1_800_000_000, 0)
		all, from := 0.0, map[string]float64{}
		for _, one := range paths {
			s := newSchedule(base, base, (&line{path: one}).interval())
			for !s.due.After(base.Add(over)) {
				all, from[one.Source.Node] = all+1, from[one.Source.Node]+1
				s.advance(s.due)
			}
		}
		most := 0.0
		for _, n := range from {
			most = max(most, n)
		}
		rate, one := path.RateOf(paths), float64(len(paths))
		if math.Abs(all-rate.All*over.Seconds()) > one || math.Abs(most-rate.Most*over.Seconds()) > one ||
			most == all {
			t.Errorf("%s: %.0f probes in %s, %.0f from one node; said %+v", budget, all, over, most, rate)
		}
	}
}
