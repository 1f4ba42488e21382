package kube

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/step"
)

// grants returns the permissions in the roles that steps write: an API server only allows users to write or bind a role
// if they have all its permissions themselves, or may escalate and bind. In the latter case there is nothing to check.
// Rules for named objects and for URLs are not checked.
func (r reader) grants(ctx context.Context, steps []step.Step) ([]need, error) {
	var needs, free []need
	for i := range steps {
		for _, action := range slices.Concat(steps[i].Actions, steps[i].Undo) {
			if o := action.Object(); o != nil && o.GroupVersionKind().Group == rbacv1.GroupName &&
				(o.GetKind() == "ClusterRole" || o.GetKind() == "Role") {
				all := need{rbacv1.GroupName, "clusterroles", "", "escalate bind"}
				if o.GetKind() == "Role" {
					all.resource, all.namespace = "roles", o.GetNamespace()
				}
				if !slices.Contains(free, all) {
					free = append(free, all)
				}
				var role rbacv1.ClusterRole // a Role has the same rules
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
					continue // the API server reports that when the role is written
				}
				for _, rule := range role.Rules {
					needs = append(needs, allowed(rule, o.GetNamespace())...)
				}
			}
		}
	}
	if len(needs) == 0 {
		return nil, nil
	}
	answers, err := r.ask(ctx, free)
	for _, right := range answers {
		if !right.Allowed {
			return needs, err
		}
	}
	return nil, err
}

// allowed returns the permissions of a rule, one per verb.
func allowed(rule rbacv1.PolicyRule, namespace string) []need {
	var needs []need
	if len(rule.ResourceNames) > 0 {
		return nil
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				needs = append(needs, need{group, resource, namespace, verb})
			}
		}
	}
	return needs
}
