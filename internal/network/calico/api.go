package calico

import (
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// apiVar is the environment variable with the API version in which Calico's programs store their objects.
const apiVar = "CALICO_API_GROUP"

// api returns the API version in which the agents of a manifest store their objects, given the names of the CRDs in the
// cluster. The rule is Calico's own (libcalico-go/lib/backend/k8s/discovery.go): the agents' setting, else
// projectcalico.org/v3 if the API server has only that group. They never read objects of the other group.
func (m *manifest) api(defined []string) (string, error) {
	stored, served := groupsOf(defined)
	storedHere, servedHere := groupsOf(definitionsOf(m))
	said := m.env(cni.FindContainer(m.agent, "containers", agentName), apiVar)
	switch {
	case said == "" && servedHere && !storedHere && stored:
		return "", refuse("the manifest keeps Calico's objects in "+cluster.CalicoServed+", but the cluster has "+
			"CRDs of "+
			cluster.CalicoStored+", which agents prefer by default",
			"delete these CRDs if they are not needed (kubectl get crd -o name | grep "+
				"crd.projectcalico.org); or give the manifest of the release that keeps them there, such as "+
				"manifests/calico-vxlan.yaml")
	case strings.EqualFold(said, cluster.CalicoServed), said == "" && (served || servedHere) && !stored && !storedHere:
		if (stored || storedHere) && !served && !servedHere {
			return "", refuse("the agents are configured to keep their objects in "+cluster.CalicoServed+" ("+apiVar+
				"), but neither the manifest nor the cluster has their CRDs",
				"give the manifest with its CRDs, such as manifests/calico-v3-crds.yaml of the release")
		}
		return cluster.CalicoServed, nil
	}
	return cluster.CalicoStored, nil
}

// groupsOf reports for which of Calico's two groups there are CRDs.
func groupsOf(definitions []string) (stored, served bool) {
	of := func(version string) bool {
		group, _, _ := strings.Cut(version, "/")
		return slices.ContainsFunc(definitions, func(name string) bool {
			_, own, _ := strings.Cut(name, ".")
			return own == group
		})
	}
	return of(cluster.CalicoStored), of(cluster.CalicoServed)
}

func definitionsOf(m *manifest) []string {
	var names []string
	for i := range m.definitions {
		names = append(names, m.definitions[i].GetName())
	}
	return names
}

// sameAPI refuses a version that would store its objects in another group than the running agents: it would start
// without any.
func sameAPI(snapshot *cluster.Snapshot, live, wanted *manifest) error {
	defined := snapshot.Definitions()
	if len(defined) == 0 {
		return nil // not known
	}
	from, err := live.api(defined)
	if err != nil {
		return err
	}
	to, err := wanted.api(defined)
	if err != nil {
		return err
	}
	if from != to {
		return refuse("the agents keep their objects in "+from+", but the agents in the manifest would look for "+
			"them in "+to,
			"set "+apiVar+" in the manifest to the cluster's value, and move the objects afterwards: Calico has a "+
				"controller for that (DatastoreMigration)")
	}
	return nil
}

// webhookParts are the objects of calico-webhooks that are not in a snapshot, in the order of deletion; the names are
// those of manifests/calico-v3-crds.yaml. Its admission policies stay; they have no effect without the CRDs.
func webhookParts(namespace string) []step.Ref {
	const rbac = "rbac.authorization.k8s.io/v1"
	return []step.Ref{
		{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration", Name: webhooksName},
		{APIVersion: rbac, Kind: "ClusterRoleBinding", Name: webhooksName},
		{APIVersion: rbac, Kind: "ClusterRole", Name: webhooksName},
		{APIVersion: "v1", Kind: "ServiceAccount", Namespace: namespace, Name: webhooksName},
	}
}
