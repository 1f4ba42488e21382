// Package weave is the driver of Weave Net as its own manifest deploys it: one DaemonSet that runs the router and
// weave-npc, which enforces NetworkPolicy. Nodes have no ranges of their own: they share one range and ask their peers
// for addresses, and the bridges of all nodes form one layer 2 network. It is supported as a source only; Install
// refuses.
package weave

import (
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Names that identify Weave Net's parts; they are fixed in its programs and scripts.
const (
	objects   = "weave-net" // its DaemonSet, ConfigMap, account and roles
	namespace = "kube-system"
	confName  = "10-weave.conflist"
	bridge    = "weave"
)

// Driver implements cni.Driver.
type Driver struct{}

var _ cni.Driver = Driver{}

// Name implements cni.Driver.
func (Driver) Name() string { return "weave" }

// Install implements cni.Driver: Weave Net as a target is not supported.
func (d Driver) Install(cni.Request) (*cni.Target, error) { return nil, d.NeverComes() }

// NeverComes implements cni.Outgoing.
func (Driver) NeverComes() *cni.Refusal {
	return &cni.Refusal{
		Message: "Weave Net is not supported as a target",
		Hint:    "Theseus moves clusters away from Weave Net; choose another target with --to",
	}
}

// Detect implements cni.Driver.
func (Driver) Detect(snapshot *cluster.Snapshot) *cni.Installation {
	if agent := agentIn(snapshot); agent != nil {
		return describe(snapshot, agent)
	}
	if snapshot.ConfigMap(namespace, objects) == nil {
		return nil
	}
	// The list of peers that the nodes maintain; it is not deleted with the DaemonSet.
	return &cni.Installation{
		CNI:          "weave",
		Agent:        step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: namespace, Name: objects},
		Capabilities: capabilities(settings{}),
		Problems: []string{"ConfigMap " + namespace + "/" + objects +
			" exists, but no DaemonSet runs Weave Net: it was removed, or is only partly installed"},
	}
}

// Residue implements cni.Driver. Chains, sets and rules are those of versions 2.5 to 2.8.
func (Driver) Residue(found *cni.Installation) step.Residue {
	return step.Residue{
		Links:        []string{bridge, "datapath", "vethwe-*", "vxlan-6784"}, // vethwepl* belong to pods
		Chains:       []string{"WEAVE", "WEAVE-*"},
		RuleComments: []string{"Block non-local access to Weave Net control port"},
		RuleLinks:    []string{bridge},
		IPSets:       []string{"weave-*", "weaver-*"},
		Routes:       found.PodCIDRs,
		ConfFiles:    []string{"10-weave.conf", confName},
		Binaries:     []string{"weave-net", "weave-ipam", "weave-plugin-*"},
		Paths:        []string{"/var/lib/weave", cni.Remembered("weave")},
	}
}
