package journal

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// CreateForChange is CreateInCluster for a plan that the controller has made for a Change. The Migration names its
// origin.
func CreateForChange(ctx context.Context, client dynamic.Interface, p *plan.Plan, origin v1alpha1.ChangeOrigin,
	windows ...v1alpha1.Window) error {
	text, err := json.Marshal(origin)
	if err != nil {
		return err
	}
	return put(ctx, client, p, planPageBytes, entry{inCluster: true, windows: windows,
		annotations: map[string]string{v1alpha1.AnnotationChange: string(text)}})
}

// OriginOf is the Change that a Migration was made for; false if it was made for none.
func OriginOf(m *v1alpha1.Migration) (v1alpha1.ChangeOrigin, bool) {
	var origin v1alpha1.ChangeOrigin
	err := json.Unmarshal([]byte(m.Annotations[v1alpha1.AnnotationChange]), &origin)
	return origin, err == nil && origin.Name != "" && origin.UID != ""
}

// Begun reports whether a run of a Migration has begun, so that its journal may have records.
func Begun(m *v1alpha1.Migration) bool {
	return m.Status.Pages > 0 || m.Status.Phase != "" && m.Status.Phase != string(engine.PhaseNew)
}

// Withdraw deletes a Migration whose run has not begun, and with it the pages of its plan. The caller holds the Lease,
// so no run begins meanwhile. It returns an error if the Migration has begun, or is not as the caller has seen it: a
// user may have changed its windows.
func Withdraw(ctx context.Context, client dynamic.Interface, seen *v1alpha1.Migration) error {
	now, err := get(ctx, client, seen.Name)
	if err != nil {
		return err
	}
	pages, err := NewCluster(client, seen.Name).list(ctx)
	if err != nil {
		return err
	}
	if now.UID != seen.UID || !now.Spec.InCluster || Begun(now) || len(pages) > 0 {
		return fmt.Errorf("migration %s has begun, or another process has taken it", seen.Name)
	}
	_, err = call(ctx, "withdrawing migration "+seen.Name, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, client.Resource(migrationResource).Namespace(v1alpha1.Namespace).Delete(ctx, seen.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &now.UID,
				ResourceVersion: &seen.ResourceVersion}})
	})
	return err
}
