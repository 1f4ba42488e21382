package joint

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/step"
)

// Introducing returns the program that introduces the source's pods to the target's agents while there are both
// networks, in a cluster of some nodes; nil if those agents need none. apiServers are as in Snapshot.APIServers.
func Introducing(source, target *cni.Installation, image string, nodes int,
	apiServers []string) []unstructured.Unstructured {
	driver, _ := drivers.All().Get(target.CNI)
	network, ok := driver.(cni.Introducer)
	if !ok {
		return nil
	}
	return manifest.Introduce(image, target.CNI, source.PodCIDRs, network.Rights(),
		min(nodes, 2), apiServers)
}

// IntroducerRef is the Deployment of that program.
func IntroducerRef() step.Ref {
	return step.Ref{APIVersion: "apps/v1", Kind: "Deployment", Namespace: v1alpha1.Namespace,
		Name: manifest.IntroduceName}
}

// Introduced is the condition that all pods of the source are introduced to the target's agents; none if those need it
// not.
func (b *Builder) Introduced() []step.Condition {
	for i := range b.Target.Extras {
		if ref := step.RefOf(&b.Target.Extras[i]); ref == IntroducerRef() {
			return []step.Condition{Rolled(ref)}
		}
	}
	return nil
}
