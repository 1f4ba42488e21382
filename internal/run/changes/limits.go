package changes

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

const (
	// maxChanges is how many Changes of a cluster are looked at: a Change may have 1.5 MiB.
	maxChanges = 50
	// listPage is how many Changes are read at once.
	listPage = 20
)

// tooMany is the status of a Change beyond maxChanges.
func tooMany() draft {
	return unplanned(v1alpha1.ReasonTooMany,
		fmt.Sprintf("this cluster has more than %d Changes, and the controller only plans the oldest %d",
			maxChanges, maxChanges),
		"delete Changes whose migration has ended, which keeps the migration: kubectl get changes")
}

// bare removes everything that may be large from the Changes after the oldest maxChanges. It sorts the list.
func bare(all []v1alpha1.Change) {
	inOrder(all)
	for i := range all[min(len(all), maxChanges):] {
		c := &all[maxChanges+i]
		kept := v1alpha1.Change{ObjectMeta: metav1.ObjectMeta{Name: c.Name, UID: c.UID, Generation: c.Generation,
			ResourceVersion: c.ResourceVersion, CreationTimestamp: c.CreationTimestamp,
			DeletionTimestamp: c.DeletionTimestamp},
			Status: v1alpha1.ChangeStatus{ObservedGeneration: c.Status.ObservedGeneration, Next: c.Status.Next,
				Windows: c.Status.Windows}}
		for _, kind := range []string{v1alpha1.ConditionPlanned, v1alpha1.ConditionReconciling,
			v1alpha1.ConditionStalled, v1alpha1.ConditionReady} {
			if found := meta.FindStatusCondition(c.Status.Conditions, kind); found != nil {
				kept.Status.Conditions = append(kept.Status.Conditions, *found)
			}
		}
		*c = kept
	}
}
