package adopt

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// named is how many pods a reason names.
const named = 3

// misfit says in one sentence which running pods of a network have addresses that another one could not carry, which
// gives the pods of each node addresses of that node's own range; empty where each could keep its address.
func misfit(snapshot *cluster.Snapshot, source, target cni.Installation) string {
	ranges := map[string]netip.Prefix{}
	for i := range snapshot.Nodes {
		if own, err := netip.ParsePrefix(snapshot.Nodes[i].Spec.PodCIDR); err == nil {
			ranges[snapshot.Nodes[i].Name] = own.Masked()
		}
	}
	var all []string
	pods := 0
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		address, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil || pod.Spec.HostNetwork || pod.Namespace == v1alpha1.Namespace ||
			pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		pods++
		if why := unfit(address, ranges[pod.Spec.NodeName], target.Capabilities); why != "" {
			all = append(all, fmt.Sprintf("%s/%s (%s on %s, %s)", pod.Namespace, pod.Name,
				address, pod.Spec.NodeName, why))
		}
	}
	if len(all) == 0 {
		return ""
	}
	more := ""
	if len(all) > named {
		more = fmt.Sprintf("; and %d more", len(all)-named)
	}
	return fmt.Sprintf("%s assigns pods addresses from their node's range, but %d of %s on %s have others: %s%s",
		target.CNI, len(all), cluster.Count(pods, "pod"), source.CNI,
		strings.Join(all[:min(len(all), named)], "; "), more)
}

// unfit says why a pod cannot keep its address on a network that gives it one of its node's range; empty where it can.
func unfit(address netip.Addr, own netip.Prefix, target cni.Capabilities) string {
	switch {
	case !own.IsValid():
		return "which has no range"
	case !own.Contains(address):
		return "whose range is " + own.String()
	}
	first, last := address, address
	for range target.KeptFirst {
		first = first.Prev()
	}
	for range target.KeptLast {
		last = last.Next()
	}
	if !own.Contains(first) || !own.Contains(last) {
		return "which is an address of the network's own"
	}
	return ""
}
