package cni

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/step/adoption"
)

//go:embed never_run.md
var neverDoc string

const neverID = "cni/never-run"

// Never reports versions, settings and strategies that Theseus was never run with.
func Never() check.Check {
	return check.Check{
		ID:    neverID,
		Title: "A version, a setting or a strategy that Theseus was never run with",
		Doc:   neverDoc,
		Needs: []string{"nodes", "daemonsets", "source"},
		Run:   never,
	}
}

// seen are the oldest and the newest minor release with which Theseus was run in the lab (docs/networks.md). It was run
// with no version of a network that is not among them.
var seen = map[string][2]string{
	"calico": {"v3.28", "v3.31"}, "flannel": {"v0.28", "v0.28"}, "weave": {"v2.6", "v2.6"},
	"cilium": {"v1.20", "v1.20"}, "kube-router": {"v1.5", "v1.5"},
	"canal": {"v3.31", "v3.31"},
}

func never(pass *check.Pass) []finding.Finding {
	if pass.Change.To == "" && !pass.InPlace() && pass.Change.Pool == "" {
		return nil // the change does not affect the network
	}
	var found []finding.Finding
	add := func(network *cni.Installation, message string, args ...any) {
		found = append(found, finding.Finding{
			ID: neverID, Severity: finding.Block, Subject: finding.Subject{Kind: "Network", Name: network.CNI},
			Message: fmt.Sprintf(message, args...),
			Fix:     "make the change on a similar cluster first, then accept this: --accept " + neverID + "=REASON",
		})
	}
	told := map[string]bool{}
	for _, network := range []*cni.Installation{pass.Source, pass.Target} {
		if network == nil {
			continue
		}
		minor := cluster.Minor(network.Version)
		bounds, known := seen[network.CNI]
		key := network.CNI + network.Version
		switch {
		case told[key]:
		case network.CNI == "kindnet":
			add(network, "%s", kindnetd(network))
		case network.CNI == "kube-router" && network.Version == "": // as upstream's own manifest has it
			add(network, "the image of kube-router has no version, and Theseus was only run with v1.5")
		case network.Version == "":
		case !known:
			add(network, "Theseus was never run with %s", network.Title())
		case minor != nil && beyond(minor, bounds):
			add(network, "Theseus was never run with %s %s, only with %s",
				network.CNI, network.Version, strings.Join(slices.Compact(bounds[:]), " to "))
		}
		told[key] = true
	}
	if pass.Target != nil {
		for _, setting := range pass.Target.NeverRun {
			add(pass.Target, "no change to %s %s was ever run", pass.Target.Title(), setting)
		}
	}
	source, upgraded := pass.Source, upgrades(pass)
	caps := source.Capabilities
	switch {
	case source.CNI == "calico" && onBPF(pass):
		add(source, "calico uses its eBPF data plane, with which no change was ever run")
	case source.CNI == "calico" && upgraded && caps.Encapsulation == "ipip":
		add(source, "no upgrade of a calico with IPIP encapsulation was ever run")
	case source.CNI == "cilium" && upgraded:
		add(source, "no upgrade of Cilium was ever run: its plan is made from its charts and its source")
	case source.CNI == "flannel" && caps.Encapsulation != "vxlan":
		add(source, "flannel has the encapsulation %s here, and Theseus was only run with flannel over VXLAN",
			caps.Encapsulation)
	case source.CNI == "kube-router" && caps.Encapsulation != "none":
		add(source, "kube-router uses IPIP tunnels here, and Theseus was only run on a kube-router without tunnels")
	}
	if nodes := parked(pass); len(nodes) > 0 {
		add(source, "running pods of %s would be moved on kernels that rename no interface in use; such a move was "+
			"only run on Linux 6.18 (%s)",
			cluster.Count(len(nodes), "node"), check.Names(nodes))
	}
	if pass.Change.Strategy == "surge" && (pass.Change.To == "flannel" ||
		slices.Contains([]string{"bridge", "canal", "kindnet", "kube-router"}, source.CNI)) {
		add(source, "no change from %s to %s by surge was ever run", source.CNI, pass.Change.To)
	}
	return found
}

// upgrades reports a change to another version of the present network. --strategy upgrade needs no --to.
func upgrades(pass *check.Pass) bool {
	return pass.InPlace() && (pass.Change.To != "" || pass.Change.Strategy == "upgrade")
}

// kindnetd says what a change from kindnet was run with: a program in the place of its daemon.
func kindnetd(network *cni.Installation) string {
	message := "Theseus was never run with kindnet's own daemon, only with a program that makes the same files, " +
		"routes and rules on nodes"
	if network.Capabilities.Policy == cni.PolicyKubernetes && network.PolicyAgent == nil {
		message += "; this kindnetd also enforces NetworkPolicy, which that program does not"
	}
	return message
}

// parked returns the nodes on whose kernels pods are parked while they are adopted, with these kernels.
func parked(pass *check.Pass) []string {
	var nodes []string
	for i := range pass.Snapshot.Nodes {
		node := &pass.Snapshot.Nodes[i]
		if kernel := node.Status.NodeInfo.KernelVersion; pass.Change.Strategy == "adopt" && adoption.Parks(kernel) {
			nodes = append(nodes, node.Name+" has "+kernel)
		}
	}
	return nodes
}

// beyond reports whether a minor release lies outside of the bounds.
func beyond(minor *version.Version, bounds [2]string) bool {
	return minor.LessThan(cluster.Minor(bounds[0])) || minor.GreaterThan(cluster.Minor(bounds[1]))
}

// onBPF reports whether any FelixConfiguration or the agent's environment turns Calico's eBPF data plane on.
func onBPF(pass *check.Pass) bool {
	for _, object := range pass.Snapshot.Calico("FelixConfiguration") {
		if on, _, _ := unstructured.NestedBool(object.Object, "spec", "bpfEnabled"); on {
			return true
		}
	}
	fleet := setting.Read(pass.Snapshot, nil)
	k, err := fleet.Catalogue().Find("calico/bpfEnabled")
	return err == nil && slices.ContainsFunc(append(fleet.Nodes(), ""), func(node string) bool {
		return fleet.Value(k, node).Value == "true"
	})
}
