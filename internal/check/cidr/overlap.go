// Package cidr checks address ranges.
package cidr

import (
	_ "embed"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/check"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/finding"
)

//go:embed overlap.md
var overlapDoc string

// Overlap finds addresses in use that lie in the target's pod range.
func Overlap() check.Check {
	return check.Check{
		ID:    "cidr/overlap",
		Title: "The target's pod range holds addresses that are in use",
		Doc:   overlapDoc,
		Needs: []string{"target", "nodes", "services"},
		Lacks: func(pass *check.Pass) string {
			if len(check.Prefixes(pass.Target.PodCIDRs...)) == 0 {
				return "the range of the target's pods is not known (--pod-cidr)"
			}
			return ""
		},
		Run: overlap,
	}
}

// use is a range that somebody has.
type use struct {
	prefix  netip.Prefix
	what    string
	subject finding.Subject
}

func overlap(pass *check.Pass) []finding.Finding {
	if pass.Change.Strategy == "adopt" || pass.Source != nil && pass.Source.CNI == pass.Target.CNI {
		return nil // the target takes over the range on purpose
	}
	var found []finding.Finding
	type pair struct {
		target  netip.Prefix
		subject finding.Subject
	}
	seen := map[pair]bool{} // a subject is named once for each of the target's ranges
	uses := uses(pass)
	for _, target := range check.Prefixes(pass.Target.PodCIDRs...) {
		for _, u := range uses {
			if !target.Overlaps(u.prefix) || seen[pair{target, u.subject}] {
				continue
			}
			seen[pair{target, u.subject}] = true
			found = append(found, finding.Finding{
				ID: "cidr/overlap", Severity: finding.Block, Subject: u.subject,
				Message: fmt.Sprintf("the target's pods would get addresses of %s, which holds %s %s: "+
					"traffic to one of the two would go to the other", target, u.what, text(u.prefix)),
				Evidence: map[string]any{"target": target.String(), "inUse": text(u.prefix)},
				Fix:      "theseus plan --pod-cidr RANGE, with a private range that nothing in or around the cluster uses",
			})
		}
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
		add(finding.Subject{Kind: "Network", Name: pass.Source.CNI}, "the pods of the present network", pass.Source.PodCIDRs...)
	}
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

func nodeUses(pass *check.Pass, node *corev1.Node, facts *cluster.NodeFacts, add func(finding.Subject, string, ...string)) {
	subject := finding.Subject{Kind: "Node", Name: node.Name}
	for _, address := range node.Status.Addresses {
		add(subject, "the node's address", address.Address)
	}
	if pass.Target.Capabilities.CIDRSource != "node" {
		add(subject, "the node's pod range", append([]string{node.Spec.PodCIDR}, node.Spec.PodCIDRs...)...)
	}
	if facts == nil {
		return
	}
	for _, link := range facts.Links {
		if !check.Matches(pass.Target.Capabilities.HostLinks, link.Name) {
			add(subject, "the node's link "+link.Name, link.Addresses...)
		}
	}
}

// serviceRanges finds the ranges of Services wherever they are written down.
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
