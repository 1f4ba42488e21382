package check

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// Facts are the facts of the nodes by their names; nil for a node that nobody looked at.
func (p *Pass) Facts() map[string]*cluster.NodeFacts {
	facts := make(map[string]*cluster.NodeFacts, len(p.Snapshot.Facts))
	for i := range p.Snapshot.Facts {
		facts[p.Snapshot.Facts[i].Node] = &p.Snapshot.Facts[i]
	}
	return facts
}

// Moves reports whether a pod sits on the pod network and so has to be re-created by a change: pods of the
// host network stay, pods that have ended are no longer there, and Theseus' own are its own affair.
func Moves(pod *corev1.Pod) bool {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return !pod.Spec.HostNetwork && !ended && pod.Labels[v1alpha1.LabelManaged] == ""
}

// Prefixes parses address ranges and single addresses, and leaves out what is neither.
func Prefixes(texts ...string) []netip.Prefix {
	var found []netip.Prefix
	for _, text := range texts {
		text = strings.TrimSpace(text)
		if prefix, err := netip.ParsePrefix(text); err == nil {
			found = append(found, prefix.Masked())
		} else if address, err := netip.ParseAddr(text); err == nil {
			address = address.Unmap().WithZone("")
			found = append(found, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	return found
}

// Covers reports whether every address of inner is in outer.
func Covers(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// Matches reports whether a name is one of the patterns: a name, or a prefix that ends in *.
func Matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		prefix, open := strings.CutSuffix(pattern, "*")
		if name == pattern || open && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
