// Package ipam checks whether there are enough addresses for pods, and whether Calico's IPAM records are consistent.
package ipam

import (
	_ "embed"
	"fmt"
	"math"
	"net/netip"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed exhaustion.md
var exhaustionDoc string

const (
	id = "ipam/exhaustion"
	// blockBits is the default size of Calico's blocks.
	blockBits = 26
	// full is the fraction of addresses in use above which a range counts as nearly full.
	full = 0.9
)

// Exhaustion reports ranges that have too few addresses, now or during a change.
func Exhaustion() check.Check {
	return check.Check{
		ID:    id,
		Title: "Too few addresses for pods, now or while both networks are live",
		Doc:   exhaustionDoc,
		Needs: []string{"source", "nodes", "pods"},
		Lacks: func(pass *check.Pass) string {
			if pass.Source.CNI == "calico" {
				return pass.MissingCalico("ipamblocks")
			}
			return ""
		},
		Run: exhaustion,
	}
}

func exhaustion(pass *check.Pass) []finding.Finding {
	pods := map[string]int{} // by node
	all := 0
	for i := range pass.Snapshot.Pods {
		if pod := &pass.Snapshot.Pods[i]; check.Moves(pod) {
			pods[pod.Spec.NodeName]++
			all++
		}
	}
	found := blocks(pass)
	if pass.Source.Capabilities.CIDRSource == "node" {
		found = append(found, onNodes(pass, pods)...)
	}
	if pass.Target != nil && pass.Target.Capabilities.CIDRSource == "pool" && !pass.InPlace() {
		found = append(found, pool(pass, pods, all)...)
	}
	return found
}

// onNodes checks the range of each node. A change needs one more address there, for its probe pod.
func onNodes(pass *check.Pass, pods map[string]int) []finding.Finding {
	var found []finding.Finding
	for i := range pass.Snapshot.Nodes {
		node := &pass.Snapshot.Nodes[i]
		for _, prefix := range check.Prefixes(node.Spec.PodCIDR) {
			usable := size(prefix) - 3 // the network's own, the bridge's, the broadcast
			used := float64(pods[node.Name])
			if used+1 <= usable*full || used == 0 {
				continue
			}
			f := finding.Finding{
				ID: id, Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: node.Name},
				Message: fmt.Sprintf("%.0f of the %.0f addresses of its range %s are in use: new pods there may get "+
					"none and hang in ContainerCreating",
					used, usable, prefix),
				Evidence: map[string]any{"range": prefix.String(), "usable": usable, "used": used},
				Fix: "move some pods to other nodes: kubectl cordon " + shell.Word(node.Name) +
					", restart a workload that can be restarted, then kubectl uncordon " + shell.Word(node.Name),
			}
			if used+1 > usable {
				f.Severity = finding.Block
				f.Message = fmt.Sprintf("all %.0f addresses of its range %s are in use: the probe pod of the present "+
					"network would get none", usable, prefix)
			}
			found = append(found, f)
		}
	}
	return found
}

// pool checks the target's ranges: they need an address for every pod, and for each node's probe pod and tunnel.
func pool(pass *check.Pass, pods map[string]int, all int) []finding.Finding {
	nodes := len(pass.Snapshot.Nodes)
	bits := targetBlock(pass.Manifest)
	var addresses, available, wanted float64
	for _, prefix := range check.Prefixes(pass.Target.PodCIDRs...) {
		if prefix.Addr().Is4() {
			addresses += size(prefix)
			available += math.Exp2(float64(max(bits-prefix.Bits(), 0)))
		}
	}
	if addresses == 0 {
		return nil
	}
	perBlock := math.Exp2(float64(32 - bits))
	for i := range pass.Snapshot.Nodes {
		wanted += math.Ceil(float64(pods[pass.Snapshot.Nodes[i].Name]+2) / perBlock)
	}
	need := float64(all + 2*nodes)
	f := finding.Finding{
		ID: id, Severity: finding.Block, Subject: finding.Subject{Kind: "Network", Name: pass.Target.CNI},
		Evidence: map[string]any{"ranges": pass.Target.PodCIDRs, "addresses": addresses, "needed": need,
			"blockSize": bits, "blocks": available, "blocksNeeded": wanted},
		Fix: "plan with a larger range: theseus plan --pod-cidr RANGE",
	}
	switch {
	case need > addresses:
		f.Message = fmt.Sprintf(
			"the target's ranges have %.0f addresses, but %s and %s need %.0f: the last pods would get none",
			addresses, cluster.Count(all, "pod"), cluster.Count(nodes, "node"), need)
	case wanted > available:
		f.Message = fmt.Sprintf("the target's ranges contain %.0f blocks of /%d, but the nodes need %.0f: nodes "+
			"without a block borrow single addresses, each a separate route, or get none if strictAffinity is set",
			available, bits, wanted)
		f.Fix += ", or a smaller block size (CALICO_IPV4POOL_BLOCK_SIZE) before the first installation"
	case need > addresses*full || wanted > available*full:
		f.Severity = finding.Warn
		f.Message = fmt.Sprintf("the target's ranges are nearly full from the start: %.0f of %.0f addresses, %.0f of "+
			"%.0f blocks", need, addresses, wanted, available)
	default:
		return nil
	}
	return []finding.Finding{f}
}

// targetBlock returns the block size in the manifest.
func targetBlock(manifest []unstructured.Unstructured) int {
	for _, object := range manifest {
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		for _, container := range containers {
			fields, _ := container.(map[string]any)
			variables, _, _ := unstructured.NestedSlice(fields, "env")
			for _, variable := range variables {
				pair, _ := variable.(map[string]any)
				value, _ := pair["value"].(string)
				if n, err := strconv.Atoi(value); err == nil && pair["name"] == "CALICO_IPV4POOL_BLOCK_SIZE" &&
					n > 0 && n <= 32 {
					return n
				}
			}
		}
	}
	return blockBits
}

func size(prefix netip.Prefix) float64 {
	return math.Exp2(float64(prefix.Addr().BitLen() - prefix.Bits()))
}

// usage is how much of a pool of Calico is in use.
type usage struct {
	pool      unstructured.Unstructured
	prefix    netip.Prefix
	allocated int
	blocks    int
}

// released returns the fix for stale records: Calico's own controllers release them
// (kube-controllers/pkg/controllers/node/ipam.go), and know better than a snapshot what is still in use.
func released(snapshot *cluster.Snapshot) string {
	return "let calico-kube-controllers release them: it does so 15 minutes after it first saw them unused (or " +
		"after leakGracePeriod, if kubectl get " + snapshot.CalicoResource("kubecontrollersconfigurations") +
		" default -o yaml has one). Check that it runs, and its log: " +
		"kubectl -n kube-system logs deployment/calico-kube-controllers. Only if it cannot: calicoctl ipam check -o " +
		"REPORT, then calicoctl ipam release --from-report=REPORT"
}

// blocks checks the blocks of a present Calico: how full its pools are, and which records are stale.
func blocks(pass *check.Pass) []finding.Finding {
	pools := poolsOf(pass)
	addresses := map[netip.Addr]bool{}
	for i := range pass.Snapshot.Pods {
		for _, ip := range pass.Snapshot.Pods[i].Status.PodIPs {
			if address, err := netip.ParseAddr(ip.IP); err == nil {
				addresses[address] = true
			}
		}
	}
	nodes := map[string]bool{}
	for i := range pass.Snapshot.Nodes {
		nodes[pass.Snapshot.Nodes[i].Name] = true
	}
	var orphans, leaked []string
	for _, object := range pass.Snapshot.Calico("IPAMBlock") {
		b, ok := readBlock(&object)
		if !ok {
			continue
		}
		if b.node != "" && !nodes[b.node] {
			orphans = append(orphans, b.prefix.String()+" of "+b.node)
		}
		for _, pod := range b.pods {
			if !addresses[pod.address] {
				leaked = append(leaked, pod.address.String()+" of "+pod.name)
			}
		}
		for i := range pools {
			if check.Covers(pools[i].prefix, b.prefix) {
				pools[i].allocated += b.allocated
				pools[i].blocks++
			}
		}
	}
	var found []finding.Finding
	for _, pool := range pools {
		found = append(found, pool.judge()...)
	}
	found = append(found, stale(orphans, "blocks belong to nodes that no longer exist: their addresses are lost to "+
		"the pool", released(pass.Snapshot))...)
	return append(found, stale(leaked, "addresses are held for pods that do not have them: they are lost to the pool",
		released(pass.Snapshot))...)
}

func stale(what []string, follows, fix string) []finding.Finding {
	if len(what) == 0 {
		return nil
	}
	const most = 20
	return []finding.Finding{{
		ID: id, Severity: finding.Warn, Subject: finding.Subject{Kind: "Network", Name: "calico"},
		Message:  fmt.Sprintf("%d %s (%s, ...)", len(what), follows, what[0]),
		Evidence: map[string]any{"count": len(what), "first": what[:min(most, len(what))]},
		Fix:      fix,
	}}
}

func poolsOf(pass *check.Pass) []usage {
	var pools []usage
	for _, object := range pass.Snapshot.Calico("IPPool") {
		text, _, _ := unstructured.NestedString(object.Object, "spec", "cidr")
		disabled, _, _ := unstructured.NestedBool(object.Object, "spec", "disabled")
		for _, prefix := range check.Prefixes(text) {
			if !disabled {
				pools = append(pools, usage{pool: object, prefix: prefix})
			}
		}
	}
	return pools
}

func (u usage) judge() []finding.Finding {
	bits := u.prefix.Addr().BitLen() - 6
	if n, ok, _ := unstructured.NestedInt64(u.pool.Object, "spec", "blockSize"); ok {
		bits = int(n)
	}
	available := math.Exp2(float64(max(bits-u.prefix.Bits(), 0)))
	f := finding.Finding{
		ID: id, Severity: finding.Warn, Subject: finding.Subject{Kind: "IPPool", Name: u.pool.GetName()},
		Evidence: map[string]any{"range": u.prefix.String(), "addresses": size(u.prefix), "allocated": u.allocated,
			"blocks": available, "blocksTaken": u.blocks},
		Fix: "add a second IPPool with another range; a pool cannot be enlarged",
	}
	switch used := float64(u.allocated) / size(u.prefix); {
	case used >= 1:
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("all %.0f addresses of %s are in use: no new pod gets one", size(u.prefix), u.prefix)
	case used >= full:
		f.Message = fmt.Sprintf("%d of %.0f addresses of %s are in use: recreated pods need new ones while "+
			"the old ones are still held",
			u.allocated, size(u.prefix), u.prefix)
	case float64(u.blocks) >= available:
		f.Message = fmt.Sprintf(
			"all %.0f blocks of %s are taken, with %d of %.0f addresses: a new node gets no block of its own",
			available, u.prefix, u.allocated, size(u.prefix))
	default:
		return nil
	}
	return []finding.Finding{f}
}
