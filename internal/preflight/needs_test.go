package preflight

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// parts are the needs of checks that are no resources of the API.
var parts = []string{"source", "target", "facts", "host", "rights", "plan"}

// TestNeedsAreRead: a snapshot of a live cluster lists every resource that a check needs, so no check is "not checked"
// there for ever.
func TestNeedsAreRead(t *testing.T) {
	roles, err := kube.Roles(kube.Plan, "", nil, []kube.Subject{{Kind: rbacv1.UserKind, Name: "ann"}})
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, object := range roles {
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			switch {
			case !slices.Contains(rule.Verbs, "list"):
			case slices.Contains(rule.Resources, "*"):
				listed = append(listed, rule.APIGroups...)
			default:
				listed = append(listed, rule.Resources...)
			}
		}
	}
	for _, c := range All() {
		for _, need := range slices.Concat(c.Needs, c.Some) {
			if !slices.Contains(parts, need) && !slices.Contains(listed, need) {
				t.Errorf("%s needs %q, which no snapshot reads: add it to internal/cluster/kube/snapshot.go "+
					"and to reads in roles.go",
					c.ID, need)
			}
		}
	}
}
