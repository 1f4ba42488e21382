package clustertest

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

// DeadLease is the lock on a cluster as a process on another machine, bob@gone/1, has left it: it ended without
// releasing the lock. That can be seen by watching the lock for a second.
func DeadLease() *coordinationv1.Lease {
	long := metav1.MicroTime{Time: time.Unix(1, 0)}
	return &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: manifest.Lease, Namespace: v1alpha1.Namespace},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("bob@gone/1"), LeaseDurationSeconds: new(int32(1)),
			AcquireTime: &long, RenewTime: &long}}
}
