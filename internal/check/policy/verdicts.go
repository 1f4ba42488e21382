// Package policy checks what a change does to NetworkPolicies.
package policy

import (
	_ "embed"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/theseus-cni/theseus/internal/check"
	"github.com/theseus-cni/theseus/internal/cni"
	"github.com/theseus-cni/theseus/internal/finding"
)

//go:embed verdict_changes.md
var verdictChangesDoc string

const id = "policy/verdict-changes"

// VerdictChanges finds policies that will not mean what they mean now.
func VerdictChanges() check.Check {
	return check.Check{
		ID:    id,
		Title: "A NetworkPolicy that means something else on the target",
		Doc:   verdictChangesDoc,
		Needs: []string{"source", "target", "networkpolicies", "pods"},
		Run:   verdicts,
	}
}

func verdicts(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	pods := byNamespace(pass)
	from, to := pass.Source.Capabilities.Policy, pass.Target.Capabilities.Policy
	for i := range pass.Snapshot.NetworkPolicies {
		policy := &pass.Snapshot.NetworkPolicies[i]
		selected := selects(policy, pods[policy.Namespace])
		switch {
		case enforces(to) && !enforces(from):
			found = append(found, begins(pass, policy, selected))
		case enforces(from) && !enforces(to):
			found = append(found, ends(pass, policy, selected))
		}
		if enforces(to) {
			found = append(found, ranges(pass, policy)...)
		}
	}
	return found
}

// enforces takes a dialect that nobody wrote down for none.
func enforces(dialect cni.PolicyDialect) bool { return dialect != "" && dialect != cni.PolicyNone }

func begins(pass *check.Pass, policy *networkingv1.NetworkPolicy, selected int) finding.Finding {
	f := about(policy)
	f.Evidence = map[string]any{"selectedPods": selected}
	f.Fix = fmt.Sprintf("kubectl -n %s describe networkpolicy %s: delete it if it is not meant, or accept this finding once it is known to be right",
		policy.Namespace, policy.Name)
	if selected == 0 {
		f.Severity = finding.Info
		f.Message = fmt.Sprintf("%s does not enforce it and %s will; it selects no pod now", pass.Source.CNI, pass.Target.CNI)
		return f
	}
	f.Severity = finding.Block
	f.Message = fmt.Sprintf("%s does not enforce it and %s will: the %d pods that it selects will only take and make the connections it allows (%s)",
		pass.Source.CNI, pass.Target.CNI, selected, directions(policy))
	return f
}

func ends(pass *check.Pass, policy *networkingv1.NetworkPolicy, selected int) finding.Finding {
	f := about(policy)
	f.Severity = finding.Block
	f.Message = fmt.Sprintf("%s enforces it and %s will not: what it denies to the %d pods that it selects will get through",
		pass.Source.CNI, pass.Target.CNI, selected)
	f.Evidence = map[string]any{"selectedPods": selected}
	f.Fix = "choose a target that enforces NetworkPolicy, or run a policy agent beside it"
	return f
}

// ranges finds address ranges that mean the present network's pods: pods will have other addresses.
func ranges(pass *check.Pass, policy *networkingv1.NetworkPolicy) []finding.Finding {
	if slices.Equal(pass.Source.PodCIDRs, pass.Target.PodCIDRs) {
		return nil
	}
	source, target := check.Prefixes(pass.Source.PodCIDRs...), check.Prefixes(pass.Target.PodCIDRs...)
	var found []finding.Finding
	for _, block := range blocks(policy) {
		if touches(block.CIDR, source) && !holds(block.CIDR, target) {
			f := about(policy)
			f.Severity = finding.Block
			f.Message = fmt.Sprintf("it allows %s, where the pods of %s are: pods on %s have addresses in %s and would be denied",
				block.CIDR, pass.Source.CNI, pass.Target.CNI, strings.Join(pass.Target.PodCIDRs, ", "))
			f.Evidence = map[string]any{"ipBlock": block.CIDR, "target": pass.Target.PodCIDRs}
			f.Fix = "allow the target's range beside it, or better select pods by label (podSelector, namespaceSelector)"
			found = append(found, f)
		}
		for _, except := range block.Except {
			if !touches(except, source) || holds(except, target) || !touches(block.CIDR, target) {
				continue
			}
			f := about(policy)
			f.Severity = finding.Block
			f.Message = fmt.Sprintf("it allows %s except %s, where the pods of %s are: pods on %s have addresses in %s and would be allowed",
				block.CIDR, except, pass.Source.CNI, pass.Target.CNI, strings.Join(pass.Target.PodCIDRs, ", "))
			f.Evidence = map[string]any{"ipBlock": block.CIDR, "except": except, "target": pass.Target.PodCIDRs}
			f.Fix = "add the target's range to except"
			found = append(found, f)
		}
	}
	return found
}

func blocks(policy *networkingv1.NetworkPolicy) []networkingv1.IPBlock {
	var found []networkingv1.IPBlock
	add := func(peers []networkingv1.NetworkPolicyPeer) {
		for _, peer := range peers {
			if peer.IPBlock != nil {
				found = append(found, *peer.IPBlock)
			}
		}
	}
	for _, rule := range policy.Spec.Ingress {
		add(rule.From)
	}
	for _, rule := range policy.Spec.Egress {
		add(rule.To)
	}
	return found
}

// touches reports whether a range has addresses of one of the others; holds, whether it has all of theirs.
func touches(text string, others []netip.Prefix) bool {
	for _, prefix := range check.Prefixes(text) {
		if slices.ContainsFunc(others, prefix.Overlaps) {
			return true
		}
	}
	return false
}

func holds(text string, others []netip.Prefix) bool {
	for _, prefix := range check.Prefixes(text) {
		for _, other := range others {
			if prefix.Addr().Is4() == other.Addr().Is4() && !check.Covers(prefix, other) {
				return false
			}
		}
	}
	return true
}

func byNamespace(pass *check.Pass) map[string][]labels.Set {
	sets := map[string][]labels.Set{}
	for i := range pass.Snapshot.Pods {
		if pod := &pass.Snapshot.Pods[i]; check.Moves(pod) {
			sets[pod.Namespace] = append(sets[pod.Namespace], pod.Labels)
		}
	}
	return sets
}

// selects counts the pods that a policy is about. A selector that cannot be read is about all of them.
func selects(policy *networkingv1.NetworkPolicy, pods []labels.Set) int {
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil || selector.Empty() {
		return len(pods)
	}
	count := 0
	for _, pod := range pods {
		if selector.Matches(pod) {
			count++
		}
	}
	return count
}

// directions names what a policy restricts; a policy that says nothing restricts ingress, and egress where
// it has rules for it.
func directions(policy *networkingv1.NetworkPolicy) string {
	types := policy.Spec.PolicyTypes
	if len(types) == 0 {
		types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(policy.Spec.Egress) > 0 {
			types = append(types, networkingv1.PolicyTypeEgress)
		}
	}
	var names []string
	for _, t := range types {
		names = append(names, strings.ToLower(string(t)))
	}
	return strings.Join(names, ", ")
}

func about(policy *networkingv1.NetworkPolicy) finding.Finding {
	return finding.Finding{ID: id, Subject: finding.Subject{Kind: "NetworkPolicy", Namespace: policy.Namespace, Name: policy.Name}}
}
