// Package policy checks the effect of a change on network policies.
package policy

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/policy"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed verdict_changes.md
var verdictChangesDoc string

const id = "policy/verdict-changes"

// VerdictChanges reports connections between pods about which policies will decide differently than now.
func VerdictChanges() check.Check {
	return check.Check{
		ID:    id,
		Title: "A NetworkPolicy has another effect on the target",
		Doc:   verdictChangesDoc,
		Needs: []string{"source", "target", "networkpolicies", "namespaces", "pods"},
		Lacks: ownPolicies,
		Run:   verdicts,
	}
}

// ownPolicies returns which of the source's own policies are missing in the input: without them every verdict is a
// guess.
func ownPolicies(pass *check.Pass) string {
	var kinds []string
	switch pass.Source.Capabilities.Policy {
	case cni.PolicyCalico:
		kinds = []string{"globalnetworkpolicies.", "networkpolicies."}
	case cni.PolicyCilium:
		kinds = []string{"ciliumclusterwidenetworkpolicies.", "ciliumnetworkpolicies."}
	}
	for _, kind := range kinds {
		there := slices.ContainsFunc(groups(pass.Source.Capabilities.Policy), func(group string) bool {
			byKind, _ := pass.Snapshot.Has(kind + group)
			byGroup, _ := pass.Snapshot.Has(group)
			return byKind || byGroup
		})
		if !there {
			return kind + groups(pass.Source.Capabilities.Policy)[0] +
				": not in the input (kubectl get, or theseus snapshot, adds them)"
		}
	}
	return ""
}

func groups(dialect cni.PolicyDialect) []string {
	if dialect == cni.PolicyCalico {
		return []string{"crd.projectcalico.org", "projectcalico.org"}
	}
	return []string{"cilium.io"}
}

func verdicts(pass *check.Pass) []finding.Finding {
	source, target := pass.Source, pass.Target
	same := pass.InPlace() && source.Capabilities.Encapsulation == target.Capabilities.Encapsulation
	if same && source.Version == target.Version {
		return nil // the same agents apply the same policies to the same pods
	}
	model := policy.Build(withOwn(pass), policy.ProfileOf(source), policy.ProfileOf(target))
	differences := model.Differences()
	witnesses := make([]policy.Witness, len(differences))
	probes := model.Probes()
	for _, probe := range slices.Backward(probes) {
		for _, i := range probe.Shows {
			witnesses[i] = probe.Witness
		}
	}
	var found []finding.Finding
	for i := range differences {
		found = append(found, changed(pass, &differences[i], witnesses[i], len(probes)))
	}
	if same {
		// There is one network, which interprets everything else as before. Which kinds it evaluates may change.
		return append(found, gaps(model.Unevaluated())...)
	}
	return append(append(found, idle(pass, model)...), gaps(model.Gaps())...)
}

// withOwn is the snapshot with the policies of the target's manifest, which only the target enforces.
func withOwn(pass *check.Pass) *cluster.Snapshot {
	if pass.OneNetwork() {
		return pass.Snapshot
	}
	with := *pass.Snapshot
	with.Other = slices.Clip(with.Other)
	for i := range pass.Manifest {
		kind := pass.Manifest[i].GroupVersionKind()
		if slices.ContainsFunc(cluster.PolicyKinds(), func(k cluster.PolicyKind) bool {
			return k.Is(kind.Group, kind.Kind)
		}) {
			with.Other = append(with.Other, pass.Manifest[i])
		}
	}
	return &with
}

// changed reports one policy's difference. Its witness is in the smallest set of connections that show all differences.
func changed(pass *check.Pass, d *policy.Difference, w policy.Witness, probes int) finding.Finding {
	f := finding.Finding{ID: id, Severity: finding.Block, Subject: d.Policy}
	f.Message = fmt.Sprintf("%s: %s to %s, %s, %s now and %s (%s of %s; %s at the other end at most; %s)",
		reason(pass, d), podName(w.From), podName(w.To), w.Port, said("is ", w.Before), said("will be ", w.After),
		d.Direction, cluster.Count(d.Pods, "pod"), cluster.Count(d.Peers, "pod"), d.Ports)
	f.Evidence = map[string]any{
		"direction": d.Direction.String(), "change": string(d.Change), "pods": d.Pods,
		"peers": d.Peers, "ports": d.Ports.String(),
		"witness": map[string]any{"from": podName(w.From), "to": podName(w.To), "port": w.Port.String(),
			"before": string(w.Before), "after": string(w.After)},
		"probes": probes,
	}
	if len(d.Deviations) > 0 {
		f.Evidence["deviations"] = d.Deviations
	}
	f.Fix = fix(pass, d)
	return f
}

// reason returns why the verdict differs: the first cause that applies.
func reason(pass *check.Pass, d *policy.Difference) string {
	source, target := pass.Source.CNI, pass.Target.CNI
	switch {
	case d.Only == policy.After:
		return fmt.Sprintf("%s does not enforce it, but %s will", source, target)
	case d.Only == policy.Before:
		return fmt.Sprintf("%s enforces it, but %s will not", source, target)
	case len(d.Deviations) > 0:
		return "networks interpret it differently (" + strings.Join(says(d.Deviations), "; ") + ")"
	case d.Addresses:
		return fmt.Sprintf("it names addresses, but pods will have others (%s instead of %s)",
			strings.Join(pass.Target.PodCIDRs, ", "), strings.Join(pass.Source.PodCIDRs, ", "))
	}
	return fmt.Sprintf("%s and %s evaluate it in a different order among the other policies", source, target)
}

func says(ids []string) []string {
	var texts []string
	for _, d := range policy.Deviations() {
		if slices.Contains(ids, d.ID) {
			texts = append(texts, d.CNI+": "+d.Says)
		}
	}
	return texts
}

func fix(pass *check.Pass, d *policy.Difference) string {
	switch {
	case d.Only == policy.After:
		return describe(d.Policy) + ": delete it if it is not intended, or accept this finding if it is correct"
	case d.Only == policy.Before && policy.ProfileOf(pass.Target).Dialect == policy.None:
		return "choose a target that enforces NetworkPolicy, or run an additional policy agent"
	case d.Only == policy.Before:
		return describe(d.Policy) + ": before the change, rewrite it as a policy that " + pass.Target.CNI + " enforces"
	case slices.Contains(d.Deviations, policy.DeviatesExclusion):
		return "add {key: kubernetes.io/metadata.name, operator: Exists} to the matchExpressions of each " +
			"namespaceSelector that only excludes"
	case d.OwnNode():
		return describe(d.Policy) + ": if its pods need their own nodes, or must not reach them, write that in its " +
			"egress rules, by the addresses of the nodes (on Cilium: toEntities host)"
	case d.Addresses:
		return "select pods by label (podSelector, namespaceSelector), or add the target's range, also in except"
	case len(d.Deviations) > 0:
		return "list each port, by number"
	}
	return describe(d.Policy) + ": compare its order and tier with those of the other policies"
}

func describe(subject finding.Subject) string {
	if subject.Namespace == "" {
		return "kubectl describe " + shell.Words(strings.ToLower(subject.Kind), subject.Name)
	}
	return "kubectl -n " + shell.Word(subject.Namespace) + " describe " +
		shell.Words(strings.ToLower(subject.Kind), subject.Name)
}

func podName(pod interface {
	GetNamespace() string
	GetName() string
}) string {
	return pod.GetNamespace() + "/" + pod.GetName()
}

func said(verb string, v policy.Verdict) string {
	switch v {
	case policy.Allow:
		return verb + "allowed"
	case policy.Deny:
		return verb + "denied"
	}
	return "may be either"
}

// idle reports policies that come into force and select no pod yet.
func idle(pass *check.Pass, model *policy.Model) []finding.Finding {
	var found []finding.Finding
	for _, p := range model.Idle() {
		found = append(found, finding.Finding{ID: id, Severity: finding.Info, Subject: p,
			Fix: describe(p) + ": delete it if it is not intended",
			Message: fmt.Sprintf("%s does not enforce it, but %s will; it selects no pod now",
				pass.Source.CNI, pass.Target.CNI)})
	}
	return found
}

// gaps reports what the verdicts do not take into account.
func gaps(all []policy.Gap) []finding.Finding {
	var found []finding.Finding
	for _, g := range all {
		found = append(found, finding.Finding{ID: id, Severity: finding.Warn, Subject: g.Policy,
			Message: "not compared in full: " + g.What,
			Fix:     "try its connections by hand on the canary node, under both networks"})
	}
	return found
}
