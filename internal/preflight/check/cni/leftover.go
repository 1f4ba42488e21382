// Package cni checks which networks are in a cluster, and what they left there.
package cni

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed leftover.md
var leftoverDoc string

// Leftover finds networks that are there beside the one to be replaced, whole or in part.
func Leftover() check.Check {
	return check.Check{
		ID:    "cni/leftover",
		Title: "Another network is already in the cluster, completely or in part",
		Doc:   leftoverDoc,
		Needs: []string{"nodes", "daemonsets", "source"},
		Run:   leftovers,
	}
}

func leftovers(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for _, network := range pass.Found {
		if network.CNI == pass.Source.CNI {
			found = append(found, problems(network)...)
		} else {
			found = append(found, second(pass, network))
		}
	}
	present := func(name string) bool {
		return slices.ContainsFunc(pass.Found, func(n *cni.Installation) bool { return n.CNI == name }) || pass.Source.CNI == name
	}
	for _, trace := range traces() {
		if !present(trace.cni) && !runs(pass.Snapshot, trace.cni) {
			found = append(found, trace.find(pass)...)
		}
	}
	return found
}

func problems(network *cni.Installation) []finding.Finding {
	var found []finding.Finding
	for _, problem := range network.Problems {
		found = append(found, finding.Finding{
			ID: "cni/leftover", Severity: finding.Block, Subject: finding.Subject{Kind: "Network", Name: network.CNI},
			Message: network.CNI + " is not whole: " + problem + "; what it does now cannot be told, so it cannot be replaced safely",
			Fix:     "bring it back into order, then take the snapshot again; nothing of it may be removed while pods have its addresses",
		})
	}
	return found
}

func second(pass *check.Pass, network *cni.Installation) finding.Finding {
	f := finding.Finding{
		ID: "cni/leftover", Severity: finding.Block, Subject: finding.Subject{Kind: "Network", Name: network.CNI},
		Evidence: map[string]any{"agent": network.Agent.String(), "source": pass.Source.CNI},
	}
	notWhole := ""
	if len(network.Problems) > 0 {
		notWhole = "; " + network.CNI + " is not whole: " + strings.Join(network.Problems, "; ")
	}
	if together := cmp.Or(pass.Source.Untried, network.Untried); together != "" {
		if pass.Change.To == "" {
			f.Severity = finding.Warn
		}
		f.Message = fmt.Sprintf("two networks are installed, %s and %s: %s%s", pass.Source.CNI, network.CNI, together, notWhole)
		f.Fix = "leave both as they are, unless you know that one of them serves no pod. To change the network, " + cni.Elsewhere
		return f
	}
	if network.CNI == pass.Change.To {
		f.Message = fmt.Sprintf("%s is installed beside %s already: a change was begun and not finished%s", network.CNI, pass.Source.CNI, notWhole)
		f.Fix = "if Theseus began it: theseus status, then theseus resume or theseus rollback; if not, take it back. " + lastly
		return f
	}
	f.Message = fmt.Sprintf("two networks are installed, %s and %s: which of them serves a pod depends on the node%s", pass.Source.CNI, network.CNI, notWhole)
	f.Fix = "see which of them serves each node (theseus snapshot --nodes, or ls /etc/cni/net.d there), and decide which one stays. Then the other can go. " + lastly
	return f
}

// lastly is the order in which a network goes without cutting its pods off, or leaving nodes to a plugin without its agent.
const lastly = "Its file goes out of /etc/cni/net.d first, on every node; then its pods, one by one (theseus check --only cni/half-way names them); its agent last"

// trace is what a network that is no longer there leaves in the API.
type trace struct {
	cni        string
	group      string // of its objects, or what it ends in
	annotation string // a prefix, on nodes
}

func traces() []trace {
	return []trace{
		{"calico", "projectcalico.org", "projectcalico.org/"},
		{"flannel", "", "flannel.alpha.coreos.com/"},
		{"cilium", "cilium.io", "network.cilium.io/"},
		{"kube-router", "", "kube-router.io/"},
	}
}

func (tr trace) find(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	if kinds := tr.kinds(pass); len(kinds) > 0 {
		f := finding.Finding{
			ID: "cni/leftover", Severity: finding.Warn, Subject: finding.Subject{Kind: "Network", Name: tr.cni},
			Message:  fmt.Sprintf("%s does not run, but objects of it are left (%s)", tr.cni, strings.Join(kinds, ", ")),
			Evidence: map[string]any{"kinds": kinds},
			Fix: "look at them (kubectl get crd -o name | grep " + tr.group + " names their kinds), and keep a copy. With a definition all its objects go, so delete one only " +
				"when nothing in the cluster reads them",
		}
		if tr.cni == pass.Change.To {
			f.Message += ": its new installation would take them for its own settings"
		}
		found = append(found, f)
	}
	if nodes := tr.nodes(pass.Snapshot.Nodes); len(nodes) > 0 {
		found = append(found, finding.Finding{
			ID: "cni/leftover", Severity: finding.Info, Subject: finding.Subject{Kind: "Network", Name: tr.cni},
			Message:  fmt.Sprintf("%s does not run, but its annotations (%s*) are on %s: links and rules of it may be left there too", tr.cni, tr.annotation, cluster.Count(len(nodes), "node")),
			Evidence: map[string]any{"nodes": nodes},
			Fix:      "theseus snapshot --nodes shows what is left there; a node that is drained and restarted keeps none of it",
		})
	}
	return found
}

// runs says whether a workload runs an image of a network: not its agent, which is no trace, but a part of it that serves another.
func runs(snapshot *cluster.Snapshot, network string) bool {
	of := func(template *corev1.PodTemplateSpec) bool {
		return slices.ContainsFunc(template.Spec.Containers, func(c corev1.Container) bool {
			return strings.Contains(cluster.ImageOf(c.Image).Name, network)
		})
	}
	for i := range snapshot.DaemonSets {
		if of(&snapshot.DaemonSets[i].Spec.Template) {
			return true
		}
	}
	for i := range snapshot.Deployments {
		if of(&snapshot.Deployments[i].Spec.Template) {
			return true
		}
	}
	return false
}

// kinds are those of which objects are left, each once.
func (tr trace) kinds(pass *check.Pass) []string {
	var kinds []string
	for _, object := range pass.Snapshot.Other {
		if tr.group != "" && strings.HasSuffix("."+object.GroupVersionKind().Group, "."+tr.group) && !slices.Contains(kinds, object.GetKind()) {
			kinds = append(kinds, object.GetKind())
		}
	}
	slices.Sort(kinds)
	return kinds
}

func (tr trace) nodes(nodes []corev1.Node) []string {
	var names []string
	for i := range nodes {
		for key := range nodes[i].Annotations {
			if strings.HasPrefix(key, tr.annotation) {
				names = append(names, nodes[i].Name)
				break
			}
		}
	}
	return names
}
