package journal

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

var approvalResource = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
	Resource: manifest.Plural("Approval")}

// CreateInCluster is Create for a migration that the controller in the cluster runs. It begins once enough users have
// approved the plan, and the caller has released the Lease. Its steps begin only in the windows, if there are any.
func CreateInCluster(ctx context.Context, client dynamic.Interface, p *plan.Plan, windows ...v1alpha1.Window) error {
	return put(ctx, client, p, planPageBytes, entry{inCluster: true, windows: windows})
}

// Get reads a Migration without its plan.
func Get(ctx context.Context, client dynamic.Interface, name string) (*v1alpha1.Migration, error) {
	return get(ctx, client, name)
}

// HandOver lets the controller in the cluster run a migration, or try again, towards the desired state.
func HandOver(ctx context.Context, client dynamic.Interface, name string, desire v1alpha1.Desire) error {
	return request(ctx, client, name, desire, true)
}

// TakeBack makes the controller in the cluster stop a migration after the current action, and release the Lease.
func TakeBack(ctx context.Context, client dynamic.Interface, name string) error {
	return patch(ctx, client, migrationResource, name, map[string]any{"spec": map[string]any{"inCluster": false}})
}

// SignsWith is how a user signs an approval.
const SignsWith = "--sign KEY"

// Approve creates the approval of a migration's plan by a user, who must be the user of the client, with a signature of
// the plan's hash, or none (""). It reports whether there was none like it.
func Approve(ctx context.Context, client dynamic.Interface, migration, planHash, user,
	signature string) (created bool, err error) {
	approval := manifest.Approval(migration, planHash, user, signature)
	_, err = call(ctx, "approving the plan of migration "+migration,
		func(ctx context.Context) (*unstructured.Unstructured, error) {
			return client.Resource(approvalResource).Namespace(v1alpha1.Namespace).Create(ctx, approval,
				metav1.CreateOptions{FieldManager: fieldManager,
					FieldValidation: metav1.FieldValidationStrict}) // an older CRD would drop the signature
		})
	if !apierrors.IsAlreadyExists(err) {
		return err == nil, err
	}
	approvals, err := approvals(ctx, client, migration, planHash)
	if err == nil && !slices.ContainsFunc(approvals, func(a v1alpha1.Approval) bool {
		return a.Name == approval.GetName() && a.Spec.User == user && a.Spec.Signature == signature
	}) {
		err = fmt.Errorf("another object has the name of the approval: Approval %s", approval.GetName())
	}
	return false, err
}

// Approvals lists the approvals of one plan of a migration, one for each user, in the order of the users' names.
// Whether they prove anything depends on the policy in the cluster (manifest.ApprovalPolicy).
func Approvals(ctx context.Context, client dynamic.Interface, migration, planHash string) ([]v1alpha1.Approval, error) {
	all, err := approvals(ctx, client, migration, planHash)
	slices.SortFunc(all, func(a, b v1alpha1.Approval) int { return cmp.Compare(a.Spec.User, b.Spec.User) })
	return slices.CompactFunc(all, func(a, b v1alpha1.Approval) bool { return a.Spec.User == b.Spec.User }), err
}

func approvals(ctx context.Context, client dynamic.Interface, migration, planHash string) ([]v1alpha1.Approval, error) {
	all, err := listAll[v1alpha1.Approval](ctx, client, approvalResource, "",
		"listing the approvals of migration "+migration)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(a v1alpha1.Approval) bool {
		return a.Spec.Migration != migration || a.Spec.PlanHash != planHash
	}), nil
}
