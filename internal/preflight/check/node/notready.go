// Package node checks the nodes themselves: state, capacity, versions, kernel, packet filters, clocks, images and
// ports.
package node

import (
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed not_ready.md
var notReadyDoc string

// NotReady reports nodes that cannot be changed.
func NotReady() check.Check {
	return check.Check{
		ID:    "node/not-ready",
		Title: "A node is down or has a problem",
		Doc:   notReadyDoc,
		Needs: []string{"nodes"},
		Run:   notReady,
	}
}

func notReady(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for i := range pass.Snapshot.Nodes {
		node := &pass.Snapshot.Nodes[i]
		if f, ok := judge(node); ok {
			f.ID = "node/not-ready"
			f.Subject = finding.Subject{Kind: "Node", Name: node.Name}
			found = append(found, f)
		}
	}
	return found
}

func judge(node *corev1.Node) (finding.Finding, bool) {
	look := "kubectl describe node " + shell.Word(node.Name)
	ready := condition(node, corev1.NodeReady)
	switch {
	case node.DeletionTimestamp != nil:
		return finding.Finding{Severity: finding.Block,
			Message: "the node is being deleted: the set of nodes must not change during a network change",
			Fix:     "wait until it is gone, then take the snapshot again"}, true
	case ready == nil || ready.Status == corev1.ConditionUnknown:
		return finding.Finding{Severity: finding.Block, Message: "the node is down (its kubelet does not report): it " +
			"cannot be changed, and would come back on a network that no longer exists",
			Fix: "bring it back; only if its machine is permanently gone: kubectl delete node " +
				shell.Word(node.Name)}, true
	case ready.Status != corev1.ConditionTrue:
		return finding.Finding{Severity: finding.Block, Message: fmt.Sprintf(
			"the node is not ready (%s): it cannot run the target's agent or new pods", text(ready)),
			Evidence: map[string]any{"reason": ready.Reason, "message": ready.Message}, Fix: look}, true
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeDiskPressure, corev1.NodeMemoryPressure,
		corev1.NodePIDPressure, corev1.NodeNetworkUnavailable} {
		if c := condition(node, kind); c != nil && c.Status == corev1.ConditionTrue {
			return finding.Finding{Severity: finding.Warn, Message: fmt.Sprintf(
				"the node reports %s (%s): new pods may not start there", kind, text(c)), Fix: look}, true
		}
	}
	if node.Spec.Unschedulable {
		return finding.Finding{Severity: finding.Warn,
			Message: "the node is cordoned: pods that leave it do not come back to it",
			Fix:     "if it is not cordoned on purpose: kubectl uncordon " + shell.Word(node.Name)}, true
	}
	return finding.Finding{}, false
}

func text(c *corev1.NodeCondition) string {
	if c.Message != "" {
		return c.Message
	}
	return c.Reason
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
