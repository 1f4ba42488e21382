package cni

import (
	_ "embed"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/check"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/finding"
)

//go:embed autodetection.md
var autodetectionDoc string

// Autodetection finds a target that would take the other network's link for the node's own.
func Autodetection() check.Check {
	return check.Check{
		ID:    "cni/autodetection",
		Title: "The target would take the other network's link for the node's own",
		Doc:   autodetectionDoc,
		Needs: []string{"source", "target", "nodes"},
		Lacks: func(pass *check.Pass) string {
			if pass.Target.CNI != "calico" {
				return "it is not known how " + pass.Target.CNI + " finds the node's address"
			}
			if _, ok := methodOf(pass.Manifest); !ok {
				return "the target's manifest is not in the input (--manifest)"
			}
			return ""
		},
		Run: autodetection,
	}
}

func autodetection(pass *check.Pass) []finding.Finding {
	m, _ := methodOf(pass.Manifest)
	if err := m.check(); err != nil {
		return []finding.Finding{{
			ID: "cni/autodetection", Severity: finding.Block, Subject: m.subject,
			Message: fmt.Sprintf("the method %q cannot be read (%v): calico-node does not start with it", m.text, err),
			Fix:     "set IP_AUTODETECTION_METHOD=kubernetes-internal-ip in the manifest",
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

// byName judges by the names of the source's links alone.
func byName(pass *check.Pass, m method) []finding.Finding {
	for _, pattern := range pass.Source.Capabilities.HostLinks {
		name := strings.TrimSuffix(pattern, "*")
		if name != pattern {
			name += "0" // some link of that prefix
		}
		if m.byAddress() || !m.takes(name) {
			continue
		}
		return []finding.Finding{{
			ID: "cni/autodetection", Severity: m.severity(), Subject: m.subject,
			Message: fmt.Sprintf("the method %q can pick %s, a link of %s: the target's tunnels would run inside of the network that is to go",
				m.text, name, pass.Source.CNI),
			Evidence: map[string]any{"method": m.text, "link": name},
			Fix:      "set IP_AUTODETECTION_METHOD=kubernetes-internal-ip in the manifest",
		}}
	}
	return nil
}

// onNode judges by the links that are there.
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
	case check.Matches(pass.Source.Capabilities.HostLinks, link):
		f.Message = fmt.Sprintf("the method %q picks %s, a link of %s: the target's tunnels would run inside of the network that is to go",
			m.text, link, pass.Source.CNI)
	case !isInternal(node, address):
		f.Severity = finding.Warn
		f.Message = fmt.Sprintf("the method %q picks %s (%s), which is not the node's internal address: other nodes may not reach it",
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
