// Package pdb checks whether PodDisruptionBudgets allow the evictions of a change.
package pdb

import (
	_ "embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed blocks.md
var blocksDoc string

// Blocks reports budgets that allow no eviction.
func Blocks() check.Check {
	return check.Check{
		ID:    "pdb/blocks",
		Title: "A PodDisruptionBudget never allows an eviction",
		Doc:   blocksDoc,
		Needs: []string{"poddisruptionbudgets", "pods"},
		Run:   blocks,
	}
}

func blocks(pass *check.Pass) []finding.Finding {
	pods := pass.RecreatedPods()
	var found []finding.Finding
	covered := map[*corev1.Pod]*policyv1.PodDisruptionBudget{}
	for i := range pass.Snapshot.Budgets {
		budget := &pass.Snapshot.Budgets[i]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			found = append(found, finding.Finding{
				ID: "pdb/blocks", Severity: finding.Warn, Subject: subject(budget),
				Message: fmt.Sprintf("the budget's selector cannot be parsed (%v): which pods it protects is unknown",
					err),
			})
			continue
		}
		mine := matching(pods[budget.Namespace], selector)
		found = append(found, twice(budget, mine, covered)...)
		if len(mine) > 0 {
			found = append(found, one(budget, len(mine))...)
		}
	}
	return found
}

func matching(pods []*corev1.Pod, selector labels.Selector) []*corev1.Pod {
	var found []*corev1.Pod
	for _, pod := range pods {
		if selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, pod)
		}
	}
	return found
}

// one reports a budget that never allows the eviction of one of some pods, or that does not allow it now.
func one(budget *policyv1.PodDisruptionBudget, pods int) []finding.Finding {
	expected := max(int(budget.Status.ExpectedPods), pods)
	f := finding.Finding{
		ID: "pdb/blocks", Severity: finding.Block, Subject: subject(budget),
		Evidence: map[string]any{"pods": pods, "expected": expected, "healthy": budget.Status.CurrentHealthy,
			"allowed": budget.Status.DisruptionsAllowed},
	}
	spec := budget.Spec
	switch {
	case spec.MaxUnavailable != nil && scaled(spec.MaxUnavailable, expected) == 0:
		f.Message = fmt.Sprintf("maxUnavailable is %s: none of its %d pods can ever be evicted, and the change would "+
			"wait until its timeout", spec.MaxUnavailable, pods)
		f.Fix = patch(budget, `{"spec":{"maxUnavailable":1}}`)
	case spec.MinAvailable != nil && scaled(spec.MinAvailable, expected) >= expected:
		f.Message = fmt.Sprintf("minAvailable is %s of %d pods: none can ever be evicted, and the change would wait "+
			"until its timeout", spec.MinAvailable, expected)
		f.Fix = patch(budget, `{"spec":{"minAvailable":null,"maxUnavailable":1}}`) + ", or one more replica"
	case budget.Status.ExpectedPods > 0 && budget.Status.DisruptionsAllowed == 0:
		f.Severity = finding.Warn
		f.Message = fmt.Sprintf("the budget allows no eviction now: %d of %d pods are healthy, and %d must be",
			budget.Status.CurrentHealthy, budget.Status.ExpectedPods, budget.Status.DesiredHealthy)
		f.Fix = "make its pods healthy first: kubectl -n " + shell.Word(budget.Namespace) +
			" describe pdb " + shell.Word(budget.Name)
	default:
		return nil
	}
	return []finding.Finding{f}
}

// twice reports pods that two budgets cover: the API server refuses to evict them at all.
func twice(budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod,
	covered map[*corev1.Pod]*policyv1.PodDisruptionBudget) []finding.Finding {
	var found []finding.Finding
	named := map[string]bool{}
	for _, pod := range pods {
		other, clash := covered[pod]
		if !clash {
			covered[pod] = budget
			continue
		}
		if named[other.Name] {
			continue
		}
		named[other.Name] = true
		found = append(found, finding.Finding{
			ID: "pdb/blocks", Severity: finding.Block, Subject: subject(budget),
			Message: fmt.Sprintf("it covers the pod %s, and so does the budget %s: the API server evicts no pod "+
				"with two budgets", pod.Name, other.Name),
			Evidence: map[string]any{"pod": pod.Name, "budgets": []string{other.Name, budget.Name}},
			Fix: "narrow the selector of one of the two, so that every pod has one budget: kubectl -n " +
				shell.Word(budget.Namespace) + " edit pdb " + shell.Word(budget.Name),
		})
	}
	return found
}

// scaled converts a number or a percentage to a count, rounded up as the disruption controller does. A value that
// cannot be parsed counts as 0: no eviction is allowed.
func scaled(value *intstr.IntOrString, total int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(value, total, true)
	if err != nil {
		return 0
	}
	return n
}

func subject(budget *policyv1.PodDisruptionBudget) finding.Subject {
	return finding.Subject{Kind: "PodDisruptionBudget", Namespace: budget.Namespace, Name: budget.Name}
}

func patch(budget *policyv1.PodDisruptionBudget, change string) string {
	return strings.Join([]string{"kubectl -n", shell.Word(budget.Namespace), "patch pdb", shell.Word(budget.Name),
		"--type merge -p", shell.Quoted(change)}, " ")
}
