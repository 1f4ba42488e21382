package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

func sameTaint(a, b corev1.Taint) bool { return a.Key == b.Key && a.Effect == b.Effect }

func (a *Actor) observeTaint(ctx context.Context, action step.Action) (engine.Observation, error) {
	node, err := a.Typed.CoreV1().Nodes().Get(ctx, action.NodeName, metav1.GetOptions{})
	if err != nil {
		return engine.Observation{}, err
	}
	i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return sameTaint(t, *action.Taint) })
	back := step.Action{Op: step.Untaint, NodeName: action.NodeName, Taint: action.Taint,
		Title: fmt.Sprintf("remove taint %s from %s", action.Taint.Key, action.NodeName)}
	if i >= 0 {
		back.Op, back.Taint = step.Taint, &node.Spec.Taints[i]
		back.Title = fmt.Sprintf("restore taint %s on %s", action.Taint.Key, action.NodeName)
	}
	done := i < 0
	if action.Op == step.Taint {
		done = i >= 0 && node.Spec.Taints[i].Value == action.Taint.Value
	}
	return engine.Observation{Done: done, Before: jsonOf(node.Spec.Taints), Inverse: inverse(action, back)}, nil
}

// taint adds or removes one taint and keeps the others, which may change at the same time.
func (a *Actor) taint(ctx context.Context, action step.Action) error {
	return a.persist(ctx, func() error {
		node, err := a.Typed.CoreV1().Nodes().Get(ctx, action.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return sameTaint(t, *action.Taint)
		})
		if action.Op == step.Taint {
			node.Spec.Taints = append(node.Spec.Taints, *action.Taint)
		}
		_, err = a.Typed.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{FieldManager: FieldManager})
		return err
	})
}
