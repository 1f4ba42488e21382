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
)

//go:embed never_run.md
var neverDoc string

const neverID = "cni/never-run"

// Never finds what Theseus was never run with.
func Never() check.Check {
	return check.Check{
		ID:    neverID,
		Title: "A version, a setting or a strategy that Theseus was never run with",
		Doc:   neverDoc,
		Needs: []string{"nodes", "daemonsets", "source"},
		Run:   never,
	}
}

// seen are the oldest and the newest minor release that Theseus was run with in the lab (docs/networks.md).
var seen = map[string][2]string{
	"calico": {"v3.28", "v3.31"}, "flannel": {"v0.28", "v0.28"}, "weave": {"v2.6", "v2.6"},
}

func never(pass *check.Pass) []finding.Finding {
	if pass.Change.To == "" && !pass.InPlace() && pass.Change.Pool == "" {
		return nil // nothing of the network is changed
	}
	var found []finding.Finding
	add := func(network *cni.Installation, message string, args ...any) {
		found = append(found, finding.Finding{
			ID: neverID, Severity: finding.Block, Subject: finding.Subject{Kind: "Network", Name: network.CNI},
			Message: fmt.Sprintf(message, args...),
			Fix:     "make the change on a cluster like this one first, then say so: --accept " + neverID + "=REASON",
		})
	}
	told := map[string]bool{}
	for _, network := range []*cni.Installation{pass.Source, pass.Target} {
		if network == nil {
			continue
		}
		minor := cluster.Minor(network.Version)
		bounds, known := seen[network.CNI]
		if key := network.CNI + network.Version; known && minor != nil && !told[key] && beyond(minor, bounds) {
			told[key] = true
			add(network, "Theseus was never run with %s %s: it was with %s", network.CNI, network.Version, strings.Join(slices.Compact(bounds[:]), " to "))
		}
	}
	source, upgraded := pass.Source, pass.InPlace() && pass.Change.To != ""
	caps := source.Capabilities
	switch {
	case source.CNI == "calico" && onBPF(pass):
		add(source, "calico is on its eBPF data plane, which no change was ever run with")
	case source.CNI == "calico" && upgraded && caps.Encapsulation == "ipip":
		add(source, "no upgrade of a calico that encapsulates by IPIP was ever run")
	case source.CNI == "flannel" && caps.Encapsulation != "vxlan":
		add(source, "flannel does not carry packets by VXLAN here (%s), and Theseus was never run with it so", caps.Encapsulation)
	}
	if pass.Change.Strategy == "surge" && (source.CNI == "bridge" || pass.Change.To == "flannel") {
		add(source, "no change from %s to %s by surge was ever run", source.CNI, pass.Change.To)
	}
	return found
}

// beyond says whether a minor release lies outside of those from the first bound to the second.
func beyond(minor *version.Version, bounds [2]string) bool {
	return minor.LessThan(cluster.Minor(bounds[0])) || minor.GreaterThan(cluster.Minor(bounds[1]))
}

// onBPF says whether Calico's eBPF data plane is on anywhere, by an object of Felix' or by the agent's environment.
func onBPF(pass *check.Pass) bool {
	for _, object := range pass.Snapshot.Calico("FelixConfiguration") {
		if on, _, _ := unstructured.NestedBool(object.Object, "spec", "bpfEnabled"); on {
			return true
		}
	}
	fleet := setting.Read(pass.Snapshot, nil)
	k, err := fleet.Catalogue().Find("calico/bpfEnabled")
	return err == nil && slices.ContainsFunc(append(fleet.Nodes(), ""), func(node string) bool { return fleet.Value(k, node).Value == "true" })
}
