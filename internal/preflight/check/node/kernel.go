package node

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
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
	if release := cluster.Minor(pass.Target.Version); pass.Target.CNI == "cilium" && release != nil &&
		!release.LessThan(version.MustParseGeneric("1.19")) {
		n.least, n.source = "5.10", "https://docs.cilium.io/en/stable/operations/system_requirements/"
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
		equal := pass.Target.CNI == "cilium" && backported(facts.Kernel)
		if need.least != "" && older(facts, need.least) && !equal {
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
	if pass.Target.CNI == "cilium" {
		found = append(found, bpf(pass, need.least != "")...)
	}
	return found
}

// rhel is the kernel of RHEL 8 and its rebuilds, with its build.
var rhel = regexp.MustCompile(`^4\.18\.0-([0-9]+)\.[^-]*el8`)

// backported reports the kernel of RHEL 8.10 or later, which Cilium's requirements name as equal to 5.10.
func backported(kernel string) bool {
	parts := rhel.FindStringSubmatch(kernel)
	if parts == nil {
		return false
	}
	build, err := strconv.Atoi(parts[1])
	return err == nil && build >= 553
}

// bpf reports nodes whose kernels do not take Cilium's programs, or may refuse some. typed: the requirements of this
// version name the types of kernels (BTF), which was read for those of 1.19 and later.
func bpf(pass *check.Pass, typed bool) []finding.Finding {
	var without, untyped, locked []string
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		switch bpf := facts.Host.BPF; {
		case bpf == nil:
		case !bpf.Syscall:
			without = append(without, facts.Node)
		case !bpf.Types:
			untyped = append(untyped, facts.Node)
		case bpf.Lockdown == "confidentiality":
			locked = append(locked, facts.Node)
		}
	}
	var found []finding.Finding
	add := func(nodes []string, severity finding.Severity, fix, format string, args ...any) {
		if len(nodes) > 0 {
			found = append(found, finding.Finding{ID: "node/kernel", Severity: severity,
				Subject:  finding.Subject{Kind: "Node", Name: nodes[0]},
				Message:  fmt.Sprintf(format, args...) + " (" + check.Names(nodes) + ")",
				Evidence: map[string]any{"nodes": nodes}, Fix: fix})
		}
	}
	const boot = "boot a kernel of your distribution that has it, such as its default kernel"
	add(without, finding.Block, boot, "the kernels of %s have no system call bpf (CONFIG_BPF_SYSCALL), so Cilium's "+
		"agent cannot start there", cluster.Count(len(without), "node"))
	severity, who := finding.Block, "which Cilium requires"
	if !typed {
		severity, who = finding.Warn, "which Cilium requires from 1.19 on; whether older versions do is not known"
	}
	add(untyped, severity, boot, "the kernels of %s do not describe their types (CONFIG_DEBUG_INFO_BTF, "+
		"/sys/kernel/btf/vmlinux), %s", cluster.Count(len(untyped), "node"), who)
	add(locked, finding.Warn, "boot with lockdown=integrity, or try Cilium on one such node first",
		"the kernels of %s are in lockdown mode confidentiality, in which BPF programs cannot read the kernel's "+
			"memory; Cilium was never run there", cluster.Count(len(locked), "node"))
	return found
}

// older reports whether a node's kernel is older than a version. A version that cannot be parsed does not count as
// older.
func older(facts *cluster.NodeFacts, least string) bool {
	release, _, _ := strings.Cut(facts.Kernel, "-")
	v, err := version.ParseGeneric(release)
	return err == nil && v.LessThan(version.MustParseGeneric(least))
}
