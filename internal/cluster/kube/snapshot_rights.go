package kube

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// need is the verbs that a change uses on one resource.
type need struct {
	group     string
	resource  string // "pods/eviction" names a subresource
	namespace string // empty: in all namespaces
	verbs     string // separated by spaces
}

// needs are the permissions that every change requires, whatever its plan does; Rights checks those of a specific plan.
func needs() []need {
	return []need{
		{"apiextensions.k8s.io", "customresourcedefinitions", "", "get list create patch"},
		{"", "namespaces", "", "get create patch"},
		{"", "nodes", "", "get list"},
		{"", "pods", "", "list"},
		{"", "services", "", "list"},
		{"", "services", metav1.NamespaceSystem, "get"}, // that of the cluster's DNS
		{"", "services", v1alpha1.Namespace, "get"},
		{"apps", "replicasets", "", "list"},
		{"apps", "statefulsets", "", "list"},
		{"policy", "poddisruptionbudgets", "", "list"},
		{"discovery.k8s.io", "endpointslices", v1alpha1.Namespace, "list"},
		{"networking.k8s.io", "networkpolicies", "", "list"},
		{"coordination.k8s.io", "leases", v1alpha1.Namespace, "get create update"},
		{v1alpha1.Group, "migrations", v1alpha1.Namespace, "get list create patch delete"},
		{v1alpha1.Group, "planpages", v1alpha1.Namespace, "get list create patch delete"},
		{v1alpha1.Group, "journalpages", v1alpha1.Namespace, "get list create update"},
		{v1alpha1.Group, "nodetasks", v1alpha1.Namespace, "get create delete"},
		{v1alpha1.Group, "probeplans", v1alpha1.Namespace, "list watch create patch"},
		{v1alpha1.Group, "probereports", v1alpha1.Namespace, "list watch"},
	}
}

// ask asks the API server about each need. It returns an answer for all of them, or fails.
func (r reader) ask(ctx context.Context, needs []need) ([]cluster.Right, error) {
	var reviews []authorizationv1.ResourceAttributes
	for _, n := range needs {
		resource, sub, _ := strings.Cut(n.resource, "/")
		for _, verb := range strings.Fields(n.verbs) {
			reviews = append(reviews, authorizationv1.ResourceAttributes{
				Namespace: n.namespace, Verb: verb, Group: n.group, Resource: resource, Subresource: sub,
			})
		}
	}
	known, err := r.known(ctx, reviews)
	if err != nil {
		return nil, err
	}
	answers := make([]cluster.Right, len(reviews))
	failures := make([]error, len(reviews))
	var tasks []task
	for i := range reviews {
		if slices.ContainsFunc(known[reviews[i].Namespace],
			func(rule authorizationv1.ResourceRule) bool { return covers(rule, reviews[i]) }) {
			answers[i] = answer(reviews[i], authorizationv1.SubjectAccessReviewStatus{Allowed: true})
			continue
		}
		tasks = append(tasks, func(ctx context.Context) cluster.Source {
			answers[i], failures[i] = r.mayI(ctx, reviews[i])
			return cluster.Source{}
		})
	}
	if _, err := runTasks(ctx, tasks); err != nil {
		return nil, err
	}
	return answers, errors.Join(failures...)
}

// anyNamespace is a namespace that does not exist: what is allowed there is allowed in all namespaces.
const anyNamespace = "theseus-any-namespace"

// known are the permissions that the API server lists for this user, by namespace: one call instead of one per
// permission. Permissions that it does not or cannot list, as with a webhook authorizer, are checked one by one.
func (r reader) known(ctx context.Context,
	reviews []authorizationv1.ResourceAttributes) (map[string][]authorizationv1.ResourceRule, error) {
	found := map[string][]authorizationv1.ResourceRule{}
	for _, review := range reviews {
		if _, asked := found[review.Namespace]; asked {
			continue
		}
		ctx, cancel := r.client.Call(ctx)
		answer, err := r.client.Typed.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
			&authorizationv1.SelfSubjectRulesReview{
				Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: cmp.Or(review.Namespace, anyNamespace)},
			}, metav1.CreateOptions{})
		cancel()
		found[review.Namespace] = nil
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		case err != nil:
			return nil, err
		case !answer.Status.Incomplete:
			found[review.Namespace] = answer.Status.ResourceRules
		}
	}
	return found, nil
}

// covers reports whether a rule allows a request for objects of any name.
func covers(rule authorizationv1.ResourceRule, asked authorizationv1.ResourceAttributes) bool {
	resource := asked.Resource
	if asked.Subresource != "" {
		resource += "/" + asked.Subresource
	}
	has := func(list []string, what string) bool {
		return slices.Contains(list, "*") || slices.Contains(list, what)
	}
	return len(rule.ResourceNames) == 0 && has(rule.Verbs, asked.Verb) && has(rule.APIGroups, asked.Group) &&
		(has(rule.Resources, resource) ||
			asked.Subresource != "" && slices.Contains(rule.Resources, "*/"+asked.Subresource))
}

func (r reader) mayI(ctx context.Context, attributes authorizationv1.ResourceAttributes) (cluster.Right, error) {
	ctx, cancel := r.client.Call(ctx)
	defer cancel()
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
	}
	said, err := r.client.Typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return cluster.Right{}, err
	}
	return answer(attributes, said.Status), nil
}

func answer(attributes authorizationv1.ResourceAttributes,
	said authorizationv1.SubjectAccessReviewStatus) cluster.Right {
	resource := attributes.Resource
	if attributes.Subresource != "" {
		resource += "/" + attributes.Subresource
	}
	return cluster.Right{
		Verb: attributes.Verb, Group: attributes.Group, Resource: resource, Namespace: attributes.Namespace,
		Allowed: said.Allowed, Reason: said.Reason,
	}
}
