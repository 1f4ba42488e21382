package load

import (
	_ "embed"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed felix.md
var felixDoc string

const (
	// slowest is the time in seconds that Tigera's "Recommended Prometheus metrics" says is exceeded in extremely large
	// clusters. It recommends a baseline of one's own, and no other number.
	slowest = 10.0
	// slow is Theseus' own bound: a kubelet's probe of a new pod times out after one second by default.
	slow = 1.0

	applies, failures = "felix.int_dataplane_apply_time_seconds_count", "felix.int_dataplane_failures"
	applyP50          = "felix.int_dataplane_apply_time_seconds.p50"
	applyP99          = "felix.int_dataplane_apply_time_seconds.p99"
)

// Felix reports nodes on which Felix is slow to apply rules and routes, or fails to.
func Felix() check.Check {
	lacks, part := lacking(hasFelix, applies, "Felix", "its metrics are off by default: kubectl patch "+
		"felixconfiguration default --type merge -p '{\"spec\":{\"prometheusMetricsEnabled\":true}}' turns them on, "+
		"on port 9091 of every node")
	return check.Check{
		ID:    "load/felix",
		Title: "Felix is slow to apply rules and routes, or fails to",
		Doc:   felixDoc,
		Needs: []string{"nodes", "daemonsets"},
		Lacks: lacks,
		Part:  part,
		Run:   felix,
	}
}

// hasFelix reports whether a DaemonSet runs Calico's agent.
func hasFelix(pass *check.Pass) bool {
	for i := range pass.Snapshot.DaemonSets {
		if slices.ContainsFunc(pass.Snapshot.DaemonSets[i].Spec.Template.Spec.Containers,
			func(c corev1.Container) bool { return c.Name == "calico-node" }) {
			return true
		}
	}
	return false
}

func felix(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		if facts.Host == nil || facts.Host.Load == nil {
			continue
		}
		load := facts.Host.Load
		failed := load.Counters[failures]
		p99 := load.Gauges[applyP99]
		f := finding.Finding{ID: "load/felix", Severity: finding.Warn,
			Subject: finding.Subject{Kind: "Node", Name: facts.Node},
			Evidence: map[string]any{"p50Seconds": load.Gauges[applyP50], "p99Seconds": p99,
				"appliesSinceStart": load.Counters[applies].Boot, "failures": failed.Sample,
				"failuresSinceStart": failed.Boot},
			Fix: "give calico-node more processor time (its CPU request), and find what changes so often; the log of " +
				"calico-node on this node names what it waits for"}
		switch {
		case failed.Sample > 0:
			f.Message = fmt.Sprintf("Felix failed to apply rules or routes %d times while the agent looked, in "+
				"%.0f s: new pods and changed policies have no effect until a retry succeeds", failed.Sample,
				load.Seconds)
			f.Fix = "the log of calico-node on this node names the command that fails"
		case p99 >= slowest:
			f.Message = fmt.Sprintf("Felix needs %.1f s for the slowest 1 %% of its updates (median %.2f s): new pods "+
				"wait so long for the network, and changed policies for their effect", p99, load.Gauges[applyP50])
		case p99 >= slow:
			f.Severity = finding.Info
			f.Message = fmt.Sprintf("Felix needs %.1f s for the slowest 1 %% of its updates (median %.2f s): a "+
				"change that moves many pods at once waits for these", p99, load.Gauges[applyP50])
		default:
			continue
		}
		found = append(found, f)
	}
	return found
}
