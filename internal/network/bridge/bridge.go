// Package bridge is the driver of the plain bridge network: on every node, a static CNI configuration (from a cloud's
// image, or written by hand; old kubelets called it "kubenet") makes the plugins bridge and host-local attach pods to a
// bridge with addresses from Node.spec.podCIDR. It runs no workload in the cluster, so the API does not show it: Detect
// needs the facts that agents report about nodes. Routes between the nodes belong to a cloud's route controller or a
// person, and are left in place. It is supported as a source only; Install refuses.
package bridge

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Driver implements cni.Driver.
type Driver struct{}

var _ cni.Driver = Driver{}

// Name implements cni.Driver.
func (Driver) Name() string { return "bridge" }

// Install implements cni.Driver: a bridge as a target is not supported.
func (d Driver) Install(cni.Request) (*cni.Target, error) { return nil, d.NeverComes() }

// NeverComes implements cni.Outgoing.
func (Driver) NeverComes() *cni.Refusal {
	return &cni.Refusal{
		Message: "the plain bridge network is not supported as a target",
		Hint:    "Theseus moves clusters away from it; choose another target with --to",
	}
}

// Detect implements cni.Driver. It finds nothing without the nodes' facts.
func (Driver) Detect(snapshot *cluster.Snapshot) *cni.Installation {
	nodes := serving(snapshot)
	if len(nodes) == 0 {
		return nil
	}
	if router, _ := cni.Router(snapshot); router != nil {
		return nil // its agents route between the nodes
	}
	router := cni.Firewall(snapshot)
	for _, set := range cni.Writers(snapshot) {
		if set != router && cni.NamedBy(set) != "" {
			return nil // that network's agent wrote the files, and routes between the nodes
		}
	}
	first := nodes[0].conf
	found := &cni.Installation{
		CNI: "bridge",
		Capabilities: cni.Capabilities{
			CIDRSource: "node", KeptFirst: 2, KeptLast: 1, Encapsulation: "none", MTU: smallestMTU(nodes),
			HostLinks: []string{linkOf(first)}, ConfName: first.File,
			Policy: cni.PolicyNone, SwitchedPerNode: true, KeepsSources: !first.IPMasq,
		},
		Data: []string{addressesOf(first)},
	}
	found.Capabilities.Attachment, found.Capabilities.Unattached = attachment(nodes)
	found.Capabilities.Chained = cni.Chained(first.Plugins)
	found.PodCIDRs, found.Problems = ranges(snapshot, nodes)
	for _, node := range nodes[1:] {
		if c := node.conf; c.File != first.File || c.Network != first.Network || linkOf(c) != linkOf(first) ||
			addressesOf(c) != addressesOf(first) {
			found.Problems = append(found.Problems,
				fmt.Sprintf("node %s has %s with the network %q on %s, and node %s has %s with %q on %s",
					nodes[0].Node, first.File, first.Network, linkOf(first), node.Node, c.File, c.Network, linkOf(c)))
		}
	}
	cni.BesideFirewall(snapshot, router, found)
	runs, rights := cni.FirewallParts(router)
	found.Parts = append(runs, rights...)
	for _, set := range cni.Writers(snapshot) {
		if set == router {
			continue // regardless of its file
		}
		found.Problems = append(found.Problems, "DaemonSet "+set.Namespace+"/"+set.Name+
			" writes to the folder of CNI configurations: it may have written "+first.File+
			", and may write it again")
	}
	return found
}

// Residue implements cni.Driver. Many networks share the plugins themselves, so they stay.
func (Driver) Residue(found *cni.Installation) step.Residue {
	residue := step.Residue{Links: found.Capabilities.HostLinks, ConfFiles: []string{found.Capabilities.ConfName},
		Paths: slices.Clone(found.Data)}
	for _, addresses := range found.Data {
		residue.Paths = append(residue.Paths, cni.Remembered(path.Base(addresses)))
	}
	cni.FirewallResidue(found, &residue)
	return residue
}

// served is a node whose runtime uses the plugins bridge and host-local for pods.
type served struct {
	*cluster.NodeFacts
	conf cluster.Conf
}

func serving(snapshot *cluster.Snapshot) []served {
	var found []served
	for i := range snapshot.Facts {
		facts := &snapshot.Facts[i]
		if conf, ok := facts.Serving(); ok && conf.Plugins[0] == "bridge" && conf.IPAM == "host-local" &&
			conf.Bridge != cni.RouterBridge {
			found = append(found, served{facts, conf})
		}
	}
	return found
}

// linkOf is the name of the bridge; the plugin's default is cni0.
func linkOf(c cluster.Conf) string {
	if c.Bridge == "" {
		return "cni0"
	}
	return c.Bridge
}

// addressesOf is where host-local stores allocated addresses.
func addressesOf(c cluster.Conf) string {
	return path.Join(cmp.Or(c.DataDir, "/var/lib/cni/networks"), c.Network)
}

// attachment says how pods are attached to the bridge, or why running pods cannot be detached from it.
func attachment(nodes []served) (how *step.Attachment, why string) {
	for _, n := range nodes {
		for _, plugin := range n.conf.Plugins[1:] {
			if plugin != "portmap" {
				return nil, n.conf.File + " of node " + n.Node + " chains the plugin " + plugin +
					", and no other network would do for a pod what that plugin did"
			}
		}
		if n.conf.IPMasq {
			return nil, n.conf.File + " of node " + n.Node +
				" masquerades each pod with rules of its own (ipMasq), which would also masquerade the pod on " +
				"another network"
		}
	}
	first := nodes[0].conf
	return &step.Attachment{Conf: []string{first.File}, Bridge: linkOf(first), Reservations: addressesOf(first)}, ""
}

// ranges returns the nodes' own ranges in the API, and problems with them.
func ranges(snapshot *cluster.Snapshot, nodes []served) (cidrs, problems []string) {
	by := map[string]cluster.Conf{}
	for _, n := range nodes {
		by[n.Node] = n.conf
	}
	var others []string
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		conf, ok := by[node.Name]
		switch {
		case !ok:
			others = append(others, node.Name)
		case !slices.Equal(conf.Subnets, cni.RangesOf(node)):
			problems = append(problems, fmt.Sprintf("%s of node %s gives out %s, and the API says %s (spec.podCIDRs)",
				conf.File, node.Name, list(conf.Subnets), list(cni.RangesOf(node))))
		}
	}
	if len(others) > 0 {
		problems = append(problems, fmt.Sprintf("%d of %d nodes are served by another network, or were not inspected: "+
			"%s", len(others), len(snapshot.Nodes),
			strings.Join(others[:min(len(others), 5)], ", ")))
	}
	return cni.NodeRanges(snapshot), problems
}
