package node

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed kernel.md
var kernelDoc string

// Kernel reports nodes whose kernels lack a module or version that the target needs.
func Kernel() check.Check {
	return check.Check{
		ID:    "node/kernel",
		Title: "A node's kernel lacks what the target needs",
		Doc:   kernelDoc,
		Needs: []string{"target", "nodes", "host"},
		Run:   kernel,
	}
}

// needs is what a network requires of a kernel.
type needs struct {
	least   string // version
	modules []string
	source  string
}

// needsOf returns what a target requires, by its own documentation.
func needsOf(pass *check.Pass) needs {
	var n needs
	switch encapsulation := pass.Target.Capabilities.Encapsulation; encapsulation {
	case "vxlan", "ipip", "geneve", "wireguard":
		n.modules = append(n.modules, encapsulation)
	}
	if pass.Target.CNI != "calico" {
		return n
	}
	n.source = "https://docs.tigera.io/calico/latest/getting-started/kubernetes/requirements"
	if n.least = "5.10"; onNFTables(pass) {
		n.least, n.source = "5.13", "https://docs.tigera.io/calico/latest/getting-started/kubernetes/nftables"
		n.modules = append(n.modules, "nf_tables")
		return n
	}
	n.modules = append(n.modules, "ip_set", "xt_set")
	return n
}

// onNFTables reports whether Felix will write native nftables rules: because it is told to, or because kube-proxy does.
func onNFTables(pass *check.Pass) bool {
	if to := pass.Change.Dataplane; to != "" {
		return to == "nftables"
	}
	for _, object := range slices.Concat(pass.Manifest, pass.Snapshot.Calico("FelixConfiguration")) {
		if mode, _, _ := unstructured.NestedString(object.Object, "spec",
			"nftablesMode"); object.GetKind() == "FelixConfiguration" && mode == "Enabled" {
			return true
		}
	}
	proxy, err := pass.KubeProxy()
	return err == nil && proxy.Mode == "nftables"
}

func kernel(pass *check.Pass) []finding.Finding {
	need := needsOf(pass)
	lacking := map[string][]string{} // nodes, by what they lack
	var old []string
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		for _, module := range need.modules {
			if facts.Host.Modules[module] == "absent" {
				lacking[module] = append(lacking[module], facts.Node)
			}
		}
		if need.least != "" && older(facts, need.least) {
			old = append(old, facts.Node+" has "+facts.Kernel)
		}
	}
	var found []finding.Finding
	for _, module := range need.modules {
		if nodes := lacking[module]; len(nodes) > 0 {
			found = append(found, finding.Finding{
				ID: "node/kernel", Severity: finding.Block, Subject: finding.Subject{Kind: "Node", Name: nodes[0]},
				Message: fmt.Sprintf(
					"the kernels of %s lack %s, which %s needs (%s): its agent never becomes ready there",
					cluster.Count(len(nodes), "node"), module, pass.Target.CNI, check.Names(nodes)),
				Evidence: map[string]any{"module": module, "nodes": nodes},
				Fix: "install the package with the module on these nodes (linux-modules-extra on Ubuntu, " +
					"kernel-modules-extra on Fedora and RHEL), or boot a kernel that has it",
			})
		}
	}
	if len(old) > 0 {
		found = append(found, finding.Finding{
			ID: "node/kernel", Severity: finding.Warn, Subject: finding.Subject{Kind: "Network", Name: pass.Target.CNI},
			Message: fmt.Sprintf("%s requires kernel %s or later, but the kernel is older on %s (%s)",
				pass.Target.CNI, need.least, cluster.Count(len(old), "node"), check.Names(old)),
			Evidence: map[string]any{"least": need.least, "nodes": old, "source": need.source},
			Fix:      "boot a newer kernel there before the change, or try the target on one such node first",
		})
	}
	return found
}

// older reports whether a node's kernel is older than a version. A version that cannot be parsed does not count as
// older.
func older(facts *cluster.NodeFacts, least string) bool {
	release, _, _ := strings.Cut(facts.Kernel, "-")
	v, err := version.ParseGeneric(release)
	return err == nil && v.LessThan(version.MustParseGeneric(least))
}
