package plan

import (
	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// calicoReady is inPlace for what can be changed of Calico alone, on nodes that can take part; hint says what that is.
func calicoReady(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry, hint string) (*cni.Installation, error) {
	source, err := inPlace(snapshot, drivers)
	if err != nil {
		return nil, err
	}
	if source.CNI != "calico" {
		return nil, refuse(hint, "this cluster is on %s", source.CNI)
	}
	if err := nodesReady(snapshot, source); err != nil {
		return nil, err
	}
	return source, agentGiven(change)
}
