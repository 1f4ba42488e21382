package cni

import (
	_ "embed"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

//go:embed autodetection.md
var autodetectionDoc string

// Autodetection reports a Calico that would mistake the other network's link for the node's own.
func Autodetection() check.Check {
	return check.Check{
		ID:    "cni/autodetection",
		Title: "Calico would mistake the other network's link for the node's own",
		Doc:   autodetectionDoc,
		Needs: []string{"source", "target", "nodes"},
		Lacks: func(pass *check.Pass) string {
			if pass.OneNetwork() {
				return "" // no other network has links
			}
			if pass.Target.CNI != "calico" {
				if _, ok := methodOf(running(pass)); !ok {
					return "it is unknown how " + pass.Target.CNI + " finds the node's address"
				}
				return ""
			}
			if _, ok := methodOf(pass.Manifest); !ok {
				return "the target's manifest is not in the input (--manifest)"
			}
			return ""
		},
		Run: autodetection,
	}
}

// running returns the agent of the present network, in the form of a manifest.
func running(pass *check.Pass) []unstructured.Unstructured {
	set := pass.Snapshot.DaemonSet(pass.Source.Agent.Namespace, pass.Source.Agent.Name)
	if set == nil {
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
	if err != nil {
		return nil
	}
	object := unstructured.Unstructured{Object: fields}
	object.SetKind("DaemonSet")
	return []unstructured.Unstructured{object}
}

// leaving reports a present Calico that may restart while the target's links exist.
func leaving(pass *check.Pass) []finding.Finding {
	m, _ := methodOf(running(pass))
	link, ok := m.among(pass.Target.Capabilities.HostLinks)
	if !ok {
		return nil
	}
	return []finding.Finding{{
		ID: "cni/autodetection", Severity: finding.Block, Subject: m.subject,
		Message: fmt.Sprintf(
			"the method %q can select %s, a link of %s, when an agent of the present network restarts: "+
				"its routes and tunnels would lead into the other network", m.text, link, pass.Target.CNI),
		Evidence: map[string]any{"method": m.text, "link": link},
		Fix: "before the change, and wait for the rollout: kubectl -n " + shell.Word(m.subject.Namespace) +
			" set env " + shell.Word("daemonset/"+m.subject.Name) +
			" IP_AUTODETECTION_METHOD=kubernetes-internal-ip",
	}}
}

func autodetection(pass *check.Pass) []finding.Finding {
	if pass.OneNetwork() {
		return nil
	}
	if pass.Target.CNI != "calico" {
		return leaving(pass)
	}
	m, _ := methodOf(pass.Manifest)
	if err := m.check(); err != nil {
		return []finding.Finding{{
			ID: "cni/autodetection", Severity: finding.Block, Subject: m.subject,
			Message: fmt.Sprintf("the method %q cannot be parsed (%v): calico-node does not start with it",
				m.text, err),
			Fix: "set IP_AUTODETECTION_METHOD=kubernetes-internal-ip in the manifest",
		}}
	}
	if len(pass.Snapshot.Facts) == 0 {
		return byName(pass, m)
	}
	var found []finding.Finding
	facts := pass.Facts()
	for i := range pass.Snapshot.Nodes {
		node := &pass.Snapshot.Nodes[i]
		if seen := facts[node.Name]; seen != nil {
			found = append(found, onNode(pass, m, node, seen)...)
		}
	}
	return found
}

// byName judges only by the names of the source's links.
func byName(pass *check.Pass, m method) []finding.Finding {
	name, ok := m.among(pass.Source.Capabilities.HostLinks)
	if !ok {
		return nil
	}
	return []finding.Finding{{
		ID: "cni/autodetection", Severity: m.severity(), Subject: m.subject,
		Message: fmt.Sprintf("the method %q can select %s, a link of %s: the target's tunnels would run inside the "+
			"network that will be removed",
			m.text, name, pass.Source.CNI),
		Evidence: map[string]any{"method": m.text, "link": name},
		Fix:      "set IP_AUTODETECTION_METHOD=kubernetes-internal-ip in the manifest",
	}}
}

// onNode judges by the links of a node.
func onNode(pass *check.Pass, m method, node *corev1.Node, facts *cluster.NodeFacts) []finding.Finding {
	link, address := m.pick(facts.Links, node)
	f := finding.Finding{
		ID: "cni/autodetection", Severity: m.severity(), Subject: finding.Subject{Kind: "Node", Name: node.Name},
		Evidence: map[string]any{"method": m.text, "link": link, "address": address.String()},
		Fix:      "set IP_AUTODETECTION_METHOD=kubernetes-internal-ip in the manifest",
	}
	switch {
	case link == "":
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("the method %q finds no link on this node: calico-node does not start there", m.text)
	case step.Matches(pass.Source.Capabilities.HostLinks, link):
		f.Message = fmt.Sprintf("the method %q selects %s, a link of %s: the target's tunnels would run inside the "+
			"network that will be removed",
			m.text, link, pass.Source.CNI)
	case !isInternal(node, address):
		f.Severity = finding.Warn
		f.Message = fmt.Sprintf("the method %q selects %s (%s), which is not the node's internal address: "+
			"other nodes may not reach it",
			m.text, link, address)
	default:
		return nil
	}
	return []finding.Finding{f}
}

func isInternal(node *corev1.Node, address netip.Addr) bool {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && a.Address == address.String() {
			return true
		}
	}
	return false
}
