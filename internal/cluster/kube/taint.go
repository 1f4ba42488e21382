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
	node, err := a.node(ctx, action.Node())
	if err != nil {
		return engine.Observation{}, err
	}
	if node == nil {
		return nodeGone(), nil
	}
	i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return sameTaint(t, action.Taint()) })
	back := step.Action{Do: step.Untaint{NodeName: action.Node(), Taint: action.Taint()},
		Title: fmt.Sprintf("remove taint %s from %s", action.Taint().Key, action.Node())}
	if i >= 0 {
		back.Do = step.Taint{NodeName: action.Node(), Taint: node.Spec.Taints[i]}
		back.Title = fmt.Sprintf("restore taint %s on %s", action.Taint().Key, action.Node())
	}
	done := i < 0
	if do, is := action.Do.(step.Taint); is {
		done = i >= 0 && node.Spec.Taints[i].Value == do.Taint.Value
	}
	return engine.Observation{Done: done, Before: jsonOf(node.Spec.Taints), Inverse: inverse(action.ID, back)}, nil
}

// taint adds or removes one taint and keeps the others, which may change at the same time.
func (a *Actor) taint(ctx context.Context, action step.Action) error {
	return a.persist(ctx, func() error {
		node, err := a.Typed.CoreV1().Nodes().Get(ctx, action.Node(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return sameTaint(t, action.Taint())
		})
		if do, is := action.Do.(step.Taint); is {
			node.Spec.Taints = append(node.Spec.Taints, do.Taint)
		}
		_, err = a.Typed.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{FieldManager: FieldManager})
		return err
	})
}
