package controller

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// TestCountWritten: the count of approvals is written when it has changed, and into the status that a controller of an
// earlier release has left, too. While the CRD of that release drops it, it is not written again and again.
func TestCountWritten(t *testing.T) {
	one := Conditions{Approved: yes(v1alpha1.ReasonEnoughApprovals, "approved by ann"),
		Count: &v1alpha1.ApprovalCount{Needed: 1, Counted: 1, ApprovedBy: []string{"ann"}}}
	signed := one
	signed.Count = &v1alpha1.ApprovalCount{Needed: 1, Counted: 1, SignedOnly: true, ApprovedBy: []string{"ann"}}
	for name, drops := range map[string]bool{"this CRD": false, "an older CRD": true} {
		c := holding(t, migration(saying(Conditions{Approved: one.Approved})))
		client, writes := c.Client.Dynamic.(*dynamicfake.FakeDynamicClient), 0
		client.PrependReactor("patch", "migrations", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if writes++; !drops {
				return false, nil, nil
			}
			object, err := client.Tracker().Get(resource("Migration"), v1alpha1.Namespace, "m")
			return true, object.(*unstructured.Unstructured).DeepCopy(), err // as the API server answers
		})
		for i, test := range []struct {
			says   Conditions
			writes int // so far, and where the CRD drops the count
			older  int
		}{{one, 1, 1}, {one, 1, 1}, {signed, 2, 1}, {Conditions{Degraded: initial.Degraded}, 2, 1}, {signed, 2, 1}} {
			m, err := journal.Get(t.Context(), client, "m")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.write(t.Context(), m, test.says, nil); err != nil {
				t.Fatal(err)
			}
			want := test.writes
			if drops {
				want = test.older
			}
			if writes != want {
				t.Errorf("%s: write %d: %d patches, want %d", name, i+1, writes, want)
			}
		}
		m, err := journal.Get(t.Context(), client, "m")
		if err != nil || !drops && !reflect.DeepEqual(m.Status.Approval, signed.Count) {
			t.Errorf("%s: %+v, %v", name, m.Status.Approval, err)
		}
	}
}
