package guard

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/policy"
	"github.com/theseus-cni/theseus/internal/network/sample"
	"github.com/theseus-cni/theseus/internal/step"
)

// pairs chooses connections between running pods that the policies allow, and as many that they deny. unevaluated are
// the policies that the model leaves out: no pair has a pod about which one of them may decide.
func pairs(r *kind.Request, p *kind.Plan, most int) (chosen []step.Pair, unevaluated []string, err error) {
	const without = "leave out --sample-policies"
	found := r.Drivers.Detect(r.Snapshot)
	if len(found) != 1 {
		return nil, nil, kind.Refuse(without, "%s were found that Theseus knows, so it cannot tell what policies allow",
			cluster.Count(len(found), "network"))
	}
	if found[0].Capabilities.Policy == cni.PolicyNone {
		return nil, nil, kind.Refuse(without, "%s enforces no policies, so there are none to sample", found[0].CNI)
	}
	for _, resource := range []string{"networkpolicies", "pods", "namespaces"} {
		if has, why := r.Snapshot.Has(resource); !has {
			return nil, nil, kind.Refuse("theseus rights look says which rights are missing",
				"policies cannot be sampled without the %s: %s", resource, why)
		}
	}
	profile := policy.ProfileOf(found[0])
	model := policy.Build(r.Snapshot, profile, profile)
	for _, gap := range model.Unevaluated() {
		unevaluated = append(unevaluated, gap.Policy.String()+": "+gap.What)
	}
	all := sample.Pairs(sample.Options{Model: model, Pods: r.Snapshot.Pods, Most: most,
		From: func(pod *corev1.Pod) bool {
			return pod.UID != "" && slices.Contains(p.Cluster.Nodes, pod.Spec.NodeName)
		},
		To: func(pod *corev1.Pod, _ policy.Port) bool { return pod.UID != "" }})
	if len(all) == 0 && len(unevaluated) > 0 {
		hint, text := without, strings.Join(unevaluated, "; ")
		if strings.Contains(text, "(forbidden)") {
			hint = "theseus rights operate prints the rights that are missing; or " + without
		}
		return nil, nil, kind.Refuse(hint, "no pair of pods was found about which only policies decide that Theseus "+
			"evaluates (%s)", text)
	} else if len(all) == 0 {
		return nil, nil, kind.Refuse("a pair needs two Ready pods with addresses of their own, and a TCP port in the "+
			"ports of a container; or "+without, "no pair of pods was found whose policies could be sampled")
	}
	for _, pair := range all {
		chosen = append(chosen, pair.Pair)
	}
	return chosen, unevaluated, nil
}
