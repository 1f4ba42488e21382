// Package cni checks which networks are in a cluster, whether two of them can run together, and their leftovers.
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

// Leftover reports networks in addition to the one to be replaced, complete or in part.
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
		return slices.ContainsFunc(pass.Found, func(n *cni.Installation) bool { return n.Runs(name) }) ||
			pass.Source.Runs(name)
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
			Message: network.CNI + " is incomplete: " + problem +
				"; its state is unknown, so it cannot be replaced safely",
			Fix: "repair it, then take the snapshot again; do not remove any part of it while pods have its addresses",
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
		notWhole = "; " + network.CNI + " is incomplete: " + strings.Join(network.Problems, "; ")
	}
	if together := cmp.Or(pass.Source.Untried, network.Untried); together != "" {
		if pass.Change.To == "" {
			f.Severity = finding.Warn
		}
		f.Message = fmt.Sprintf("two networks are installed, %s and %s: %s%s",
			pass.Source.CNI, network.CNI, together, notWhole)
		f.Fix = "leave both as they are, unless you know that one of them serves no pod. To change the network, " +
			cni.Elsewhere
		return f
	}
	if network.CNI == pass.Change.To {
		f.Message = fmt.Sprintf("%s is already installed next to %s: a change was begun and not finished%s",
			network.CNI, pass.Source.CNI, notWhole)
		f.Fix = "if Theseus began it: theseus status, then theseus resume or theseus rollback; if not, undo it. " +
			lastly(pass)
		return f
	}
	f.Message = fmt.Sprintf("two networks are installed, %s and %s: which one serves a pod depends on the node%s",
		pass.Source.CNI, network.CNI, notWhole)
	f.Fix = "find out which one serves each node (theseus snapshot --nodes, or ls " + confFolder(pass) +
		" there), decide which one stays, and remove the other. " + lastly(pass)
	return f
}

// lastly is the order in which a network is removed without cutting off its pods, and without leaving nodes to a plugin
// whose agent is gone.
func lastly(pass *check.Pass) string {
	return "Move its file out of " + confFolder(pass) + " first, on every node; then recreate its pods, one by one " +
		"(theseus check --only cni/half-way names them); remove its agent last"
}

// trace is what a removed network leaves in the API.
type trace struct {
	cni        string
	group      string // of its objects, or the end of that name
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
			Message: fmt.Sprintf("%s does not run, but its objects still exist (%s)",
				tr.cni, strings.Join(kinds, ", ")),
			Evidence: map[string]any{"kinds": kinds},
			Fix: "look at them (kubectl get crd -o name | grep " + tr.group +
				" names their kinds), and keep a copy. Deleting a CRD deletes all its " +
				"objects, so delete one only if nothing in the cluster reads them",
		}
		if tr.cni == pass.Change.To {
			f.Message += ": a new installation would use them as its settings"
		}
		found = append(found, f)
	}
	if nodes := tr.nodes(pass.Snapshot.Nodes); len(nodes) > 0 {
		found = append(found, finding.Finding{
			ID: "cni/leftover", Severity: finding.Info, Subject: finding.Subject{Kind: "Network", Name: tr.cni},
			Message: fmt.Sprintf("%s does not run, but its annotations (%s*) are on %s: its links and "+
				"rules may still exist there too",
				tr.cni, tr.annotation, cluster.Count(len(nodes), "node")),
			Evidence: map[string]any{"nodes": nodes},
			Fix:      "theseus snapshot --nodes shows what is left there; draining and restarting a node removes it",
		})
	}
	return found
}

// runs reports whether a workload runs an image of a network: not its agent, which is not a trace, but a part of it
// that another network uses.
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

// kinds returns the kinds of which objects exist, each once.
func (tr trace) kinds(pass *check.Pass) []string {
	var kinds []string
	for _, object := range pass.Snapshot.Other {
		if tr.group != "" && strings.HasSuffix("."+object.GroupVersionKind().Group, "."+tr.group) &&
			!slices.Contains(kinds, object.GetKind()) {
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
