package guard

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// Cost says what a plan installs, and how much it sends, as lines for people. Paths that policy denies and those to the
// outside are not among the probes, which is little.
func Cost(p *kind.Plan) string {
	nodes := len(p.Cluster.Nodes)
	perSecond, perNode := rate(p)
	b := &strings.Builder{}
	fmt.Fprintf(b, "theseus guard installs in namespace theseus-system, on each of %s: an agent, a prober of the "+
		"host network and a probe pod (%d pods in all)\n",
		cluster.Count(nodes, "node"), 3*nodes)
	fmt.Fprintf(b, "the probes send about %s packets a second of 64 bytes, at most %s from one node; everything but "+
		"the journal is removed at the end\n",
		cluster.Thousands(perSecond), cluster.Thousands(perNode))
	return b.String()
}

// rate is how many probes are sent a second in the cluster, and from one node at most.
func rate(p *kind.Plan) (all, most int64) {
	t := path.Topology{Old: map[string]string{}, Services: map[string]string{path.Old: "192.0.2.1"},
		NodePorts: map[string]int{path.Old: 30000}, DNS: "192.0.2.1:53",
		Ports: path.Ports{UDP: manifest.PortUDP, TCP: manifest.PortTCP, Denied: manifest.PortDenied,
			HostOffset: manifest.HostOffset},
		Intervals: path.Intervals{Fast: time.Duration(p.Change.ProbeIntervalMillis) * time.Millisecond}}
	for _, node := range p.Cluster.Nodes {
		t.Nodes = append(t.Nodes, path.Node{Name: node, Address: "192.0.2.1"})
		t.Old[node] = "192.0.2.1"
	}
	sum, of := 0.0, map[string]float64{}
	for _, one := range path.Build(t) {
		if one.IntervalMillis > 0 {
			perSecond := 1000 / float64(one.IntervalMillis)
			sum += perSecond
			of[one.Source.Node] += perSecond
		}
	}
	highest := 0.0
	for _, perSecond := range of {
		highest = max(highest, perSecond)
	}
	return int64(math.Round(sum)), int64(math.Round(highest))
}
