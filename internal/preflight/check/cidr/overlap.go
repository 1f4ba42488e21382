// Package cidr checks the address ranges of pods: overlaps, address families, and masquerading.
package cidr

import (
	_ "embed"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/step"
)

//go:embed overlap.md
var overlapDoc string

// Overlap reports addresses in use within the target's pod range, and ranges of this cluster that a peered network
// also uses.
func Overlap() check.Check {
	return check.Check{
		ID:    overlapID,
		Title: "The target's pod range is in use, or a peered network has a range of the cluster",
		Doc:   overlapDoc,
		Needs: []string{"nodes"},
		Lacks: func(pass *check.Pass) string {
			if len(pass.Change.Peered) == 0 || pass.Target != nil || pass.Change.To != "" {
				if why := (check.Check{Needs: []string{"target"}}).Missing(pass); why != "" {
					return why
				}
				if len(check.Prefixes(pass.Target.PodCIDRs...)) == 0 {
					return "the range of the target's pods is unknown (--pod-cidr)"
				}
			}
			if why := (check.Check{Needs: []string{"services"}}).Missing(pass); why != "" && len(overlap(pass)) == 0 {
				return why // overlaps are reported in any case
			}
			return ""
		},
		Run: overlap,
	}
}

const overlapID = "cidr/overlap"

// use is a range in use.
type use struct {
	prefix  netip.Prefix
	what    string
	subject finding.Subject
}

func overlap(pass *check.Pass) []finding.Finding {
	own, beside := uses(pass), peered(pass)
	found := comparePeered(own, beside)
	if pass.Target == nil || pass.Change.Strategy == "adopt" ||
		pass.Source != nil && pass.Source.CNI == pass.Target.CNI && pass.Change.Pool == "" {
		return found // the target takes over the range intentionally
	}
	type pair struct {
		target  netip.Prefix
		subject finding.Subject
	}
	fix := "theseus plan --pod-cidr RANGE (or --pool RANGE), with a private range that nothing " +
		"in or around the cluster uses"
	if pass.Target.Capabilities.CIDRSource == "node" {
		fix = "no other range is possible: its pods' addresses come from the nodes' own ranges (spec.podCIDR), " +
			"which do not change; a second cluster with other ranges can take over the workloads (theseus mirror)"
	}
	seen := map[pair]bool{} // a subject is reported once for each of the target's ranges
	for _, target := range check.Prefixes(pass.Target.PodCIDRs...) {
		for _, u := range append(own, beside...) {
			if !target.Overlaps(u.prefix) || seen[pair{target, u.subject}] {
				continue
			}
			seen[pair{target, u.subject}] = true
			found = append(found, finding.Finding{
				ID: overlapID, Severity: finding.Block, Subject: u.subject,
				Message: fmt.Sprintf("the target's pods would get addresses of %s, which contains %s %s: "+
					"traffic to one of the two would reach the other", target, u.what, text(u.prefix)),
				Evidence: map[string]any{"target": target.String(), "inUse": text(u.prefix)},
				Fix:      fix,
			})
		}
	}
	return found
}

// peered returns the ranges of peered networks that the user names.
func peered(pass *check.Pass) []use {
	var all []use
	for _, given := range pass.Change.Peered {
		name, cidr, _ := strings.Cut(given, "=")
		for _, prefix := range check.Prefixes(cidr) {
			all = append(all,
				use{prefix, "the network " + name + " with", finding.Subject{Kind: "PeeredNetwork", Name: name}})
		}
	}
	return all
}

// comparePeered compares the ranges of peered networks with all ranges of this cluster: pods, Services, nodes.
func comparePeered(own, beside []use) []finding.Finding {
	var found []finding.Finding
	for _, other := range beside {
		var names, ranges []string
		for _, u := range own {
			if u.prefix.Overlaps(other.prefix) && u.subject.Kind != "Route" { // a route to a peered network is expected
				names = append(names, u.subject.String())
				ranges = append(ranges, u.what+" "+text(u.prefix))
			}
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		names = slices.Compact(names)
		found = append(found, finding.Finding{
			ID: overlapID, Severity: finding.Block, Subject: other.subject,
			Message: fmt.Sprintf("its range %s overlaps %d ranges of this cluster (%s): %s. Such an address "+
				"always leads to the caller's own cluster, and the other one cannot be reached",
				other.prefix, len(names), check.Names(names), ranges[0]),
			Evidence: map[string]any{"range": other.prefix.String(), "subjects": names[:min(len(names), 20)],
				"count": len(names)},
			Fix: "give the network that does not exist yet another range; two existing networks can be " +
				"joined only through address translation",
		})
	}
	return found
}

func text(prefix netip.Prefix) string {
	if prefix.IsSingleIP() {
		return prefix.Addr().String()
	}
	return prefix.String()
}

func uses(pass *check.Pass) []use {
	var all []use
	add := func(subject finding.Subject, what string, texts ...string) {
		for _, prefix := range check.Prefixes(texts...) {
			all = append(all, use{prefix, what, subject})
		}
	}
	if pass.Source != nil {
		add(finding.Subject{Kind: "Network", Name: pass.Source.CNI}, "the pods of the present network",
			pass.Source.PodCIDRs...)
	}
	around(pass, add)
	facts := pass.Facts()
	for i := range pass.Snapshot.Nodes {
		node := &pass.Snapshot.Nodes[i]
		nodeUses(pass, node, facts[node.Name], add)
	}
	for _, text := range serviceRanges(pass) {
		add(finding.Subject{Kind: "ServiceRange", Name: text}, "the cluster's Services", text)
	}
	for i := range pass.Snapshot.Services {
		s := &pass.Snapshot.Services[i]
		subject := finding.Subject{Kind: "Service", Namespace: s.Namespace, Name: s.Name}
		add(subject, "the Service's address", append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...)...)
		add(subject, "the Service's external address", s.Spec.ExternalIPs...)
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			add(subject, "the Service's load balancer", ingress.IP)
		}
	}
	return all
}

func nodeUses(pass *check.Pass, node *corev1.Node, facts *cluster.NodeFacts,
	add func(finding.Subject, string, ...string)) {
	subject := finding.Subject{Kind: "Node", Name: node.Name}
	for _, address := range node.Status.Addresses {
		add(subject, "the node's address", address.Address)
	}
	var target cni.Capabilities
	if pass.Target != nil {
		target = pass.Target.Capabilities
	}
	if target.CIDRSource != "node" {
		add(subject, "the node's pod range", append([]string{node.Spec.PodCIDR}, node.Spec.PodCIDRs...)...)
	}
	if facts == nil {
		return
	}
	for _, link := range facts.Links {
		if !step.Matches(target.HostLinks, link.Name) {
			add(subject, "the node's link "+link.Name, link.Addresses...)
		}
	}
	if facts.Host == nil || facts.Host.Traces == nil {
		return
	}
	for _, to := range facts.Host.Traces.Reached {
		add(finding.Subject{Kind: "Route", Name: to}, "a network that nodes such as "+node.Name+" have a route to,", to)
	}
}

// around adds the ranges in objects of networks and load balancers.
func around(pass *check.Pass, add func(finding.Subject, string, ...string)) {
	for i := range pass.Snapshot.Other {
		object := &pass.Snapshot.Other[i]
		subject := finding.Subject{Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName()}
		spec, _, _ := unstructured.NestedMap(object.Object, "spec")
		switch group := object.GroupVersionKind().Group; {
		case object.GetKind() == "IPPool" && strings.HasSuffix(group, "projectcalico.org"):
			if disabled, _, _ := unstructured.NestedBool(spec, "disabled"); disabled {
				cidr, _, _ := unstructured.NestedString(spec, "cidr")
				add(subject, "the range of a disabled pool, which tells Calico about a network outside of the cluster,",
					cidr)
			}
		case object.GetKind() == "BGPConfiguration" && strings.HasSuffix(group, "projectcalico.org"):
			for _, field := range []string{"serviceClusterIPs", "serviceExternalIPs", "serviceLoadBalancerIPs"} {
				add(subject, "addresses of Services that BGP announces,", cidrsOf(spec, field)...)
			}
		case object.GetKind() == "IPAddressPool" && group == "metallb.io":
			addresses, _, _ := unstructured.NestedStringSlice(spec, "addresses")
			for _, one := range addresses {
				add(subject, "addresses that MetalLB assigns,", ends(one)...)
			}
		case object.GetKind() == "CiliumLoadBalancerIPPool":
			add(subject, "addresses that Cilium assigns to Services,",
				append(cidrsOf(spec, "blocks"), cidrsOf(spec, "cidrs")...)...)
		}
	}
}

// cidrsOf returns the fields cidr of a list of objects.
func cidrsOf(spec map[string]any, field string) []string {
	list, _, _ := unstructured.NestedSlice(spec, field)
	var all []string
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		if cidr, _ := fields["cidr"].(string); cidr != "" {
			all = append(all, cidr)
		}
		if from, to := fields["start"], fields["stop"]; from != nil && to != nil {
			all = append(all, ends(fmt.Sprintf("%v-%v", from, to))...)
		}
	}
	return all
}

// ends returns the prefixes of "a-b", the largest that fit.
func ends(text string) []string {
	first, last, isRange := strings.Cut(text, "-")
	from, err1 := netip.ParseAddr(strings.TrimSpace(first))
	to, err2 := netip.ParseAddr(strings.TrimSpace(last))
	if !isRange || err1 != nil || err2 != nil || from.BitLen() != to.BitLen() {
		return []string{text}
	}
	var all []string
	for from.IsValid() && from.Compare(to) <= 0 {
		prefix := netip.PrefixFrom(from, from.BitLen())
		for bits := from.BitLen() - 1; bits >= 0; bits-- {
			wider := netip.PrefixFrom(from, bits)
			if wider.Masked().Addr() != from || lastOf(wider).Compare(to) > 0 {
				break
			}
			prefix = wider
		}
		all = append(all, prefix.String())
		from = lastOf(prefix).Next()
	}
	return all
}

// lastOf returns the last address of a prefix.
func lastOf(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// serviceRanges returns the ranges of Services, from the ServiceCIDRs or the flags of the API server.
func serviceRanges(pass *check.Pass) []string {
	var ranges []string
	for _, object := range pass.Snapshot.OtherOf("networking.k8s.io", "ServiceCIDR") {
		cidrs, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "cidrs")
		ranges = append(ranges, cidrs...)
	}
	for i := range pass.Snapshot.Pods {
		pod := &pass.Snapshot.Pods[i]
		if len(ranges) > 0 || pod.Labels["component"] != "kube-apiserver" {
			continue
		}
		for _, container := range pod.Spec.Containers {
			for _, argument := range append(container.Command, container.Args...) {
				if value, ok := strings.CutPrefix(argument, "--service-cluster-ip-range="); ok {
					ranges = append(ranges, strings.Split(value, ",")...)
				}
			}
		}
	}
	return ranges
}
