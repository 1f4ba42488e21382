package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

// Policy says whether the API server admits only honest approvals.
type Policy struct {
	// Reason is ReasonPolicyMissing or ReasonPolicyChanged; "" if the policy and its binding are those of this version.
	Reason string
	// Object is the one that is missing or changed, as kind/name.
	Object string
	// Unserved is true if the API server has no such policies, as before Kubernetes 1.30. The reason is then
	// ReasonPolicyMissing.
	Unserved bool
	// Since is when the younger one of the two was created: the API server did not check earlier approvals.
	Since time.Time
}

// readPolicy reads the policy for approvals and its binding.
func readPolicy(ctx context.Context, client *kube.Client) (Policy, error) {
	var found []*unstructured.Unstructured
	for _, own := range manifest.ApprovalPolicy() {
		object, err := client.Dynamic.Resource(policies.WithResource(resourceOf[own.GetKind()])).Get(ctx,
			own.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) { // also if the API server does not serve them
			object, err = nil, nil
		}
		if err != nil {
			return Policy{}, err
		}
		found = append(found, object)
	}
	policy := judgePolicy(found)
	if policy.Reason != v1alpha1.ReasonPolicyMissing {
		return policy, nil
	}
	served, err := client.Typed.Discovery().ServerResourcesForGroupVersion(policies.String())
	if err != nil {
		return Policy{}, fmt.Errorf("asking whether the API server has admission policies: %w", err)
	}
	policy.Unserved = !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool {
		return r.Kind == "ValidatingAdmissionPolicy"
	})
	return policy, nil
}

// policies is the API group of the policies, which also has the webhooks: every API server serves it.
var policies = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}

var resourceOf = map[string]string{
	"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}

// judgePolicy compares objects with those of manifest.ApprovalPolicy, in the same order; nil stands for a missing one.
func judgePolicy(found []*unstructured.Unstructured) Policy {
	var policy Policy
	for i, own := range manifest.ApprovalPolicy() {
		name := own.GetKind() + "/" + own.GetName()
		switch object := found[i]; {
		case object == nil:
			return Policy{Reason: v1alpha1.ReasonPolicyMissing, Object: name}
		case !alike(own.Object["spec"], object.Object["spec"]) || object.GetDeletionTimestamp() != nil:
			return Policy{Reason: v1alpha1.ReasonPolicyChanged, Object: name}
		case object.GetCreationTimestamp().After(policy.Since):
			policy.Since = object.GetCreationTimestamp().Time
		}
	}
	return policy
}

// alike compares two values as JSON.
func alike(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// skew is how far the clocks of two API servers may differ.
const skew = time.Minute

// tooOld reports whether an approval is from before its Migration, so that it is of an earlier one with the same name,
// or from before the policy.
func tooOld(a v1alpha1.Approval, m *v1alpha1.Migration, policy Policy) bool {
	return a.CreationTimestamp.Time.Before(m.CreationTimestamp.Add(-skew)) ||
		a.CreationTimestamp.Time.Before(policy.Since)
}
