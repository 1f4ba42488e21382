package calico

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

var _ cni.Upgrader = Driver{}

// furthest is the maximum distance in minor releases of agents that run side by side: v3.28 and v3.31 were measured.
const furthest = 3

// Upgrade implements cni.Upgrader.
func (d Driver) Upgrade(snapshot *cluster.Snapshot, found *cni.Installation, documents []unstructured.Unstructured,
	says string) (*cni.Upgrade, error) {
	if installations := snapshot.OtherOf(operatorGroup, "Installation"); len(installations) > 0 {
		return operated(snapshot, found, &installations[0], documents, says)
	}
	if err := cni.Owned(snapshot, found); err != nil {
		return nil, err
	}
	agent := snapshot.DaemonSet(found.Agent.Namespace, found.Agent.Name)
	if agent == nil {
		return nil, refuse("the DaemonSet "+agentName+" does not exist",
			"install Calico instead; there is nothing to upgrade")
	}
	if !cluster.IsSystemNamespace(agent.Namespace) {
		return nil, refuse(fmt.Sprintf("Calico runs in the namespace %s, and a snapshot does not have all objects "+
			"there "+
			"that a rollback needs", agent.Namespace),
			"upgrade it with the tool that installed it")
	}
	wanted, err := understand(documents)
	if err != nil {
		return nil, cni.OfManifest(err)
	}
	live, err := running(snapshot, agent)
	if err != nil {
		return nil, err
	}
	image, _ := cni.FindContainer(wanted.agent, "containers", agentName)["image"].(string)
	if err := versions(found.Version, cluster.ImageOf(image).Tag,
		"the image of "+agentName+" in the manifest"); err != nil {
		return nil, cni.OfManifest(err)
	}
	if err := sameNetwork(live, wanted, found); err != nil {
		return nil, err
	}
	if err := sameAPI(snapshot, live, wanted); err != nil {
		return nil, err
	}
	if cni.Older(cluster.ImageOf(image).Tag, found.Version) {
		wanted.definitions = lacking(snapshot, wanted.definitions)
	}
	if err := cni.Lossless(wanted.definitions, snapshot.Other); err != nil {
		return nil, err
	}
	return upgrade(snapshot, found, live, wanted)
}

// running parses the running objects, as understand parses a manifest.
func running(snapshot *cluster.Snapshot, agent any) (*manifest, error) {
	object, err := cni.Plain(agent)
	if err != nil {
		return nil, err
	}
	m := &manifest{agent: object}
	if config := snapshot.ConfigMap(object.GetNamespace(), configName); config != nil {
		m.config, err = cni.Plain(config)
	}
	return m, err
}

// versions refuses versions that were never tested side by side; source names where the new version is from.
func versions(from, to, source string) error {
	then, err := version.ParseSemantic(from)
	if err != nil {
		return refuse(fmt.Sprintf("the image of %s does not say which version runs: %q", agentName, from),
			"use images whose tags are versions, such as v3.28.5")
	}
	now, err := version.ParseSemantic(to)
	if err != nil {
		return refuse(fmt.Sprintf("%s does not say which version it is: %q", source, to),
			"use images whose tags are versions, such as v3.31.0")
	}
	minors := int(now.Minor()) - int(then.Minor())
	switch {
	case from == to:
		return refuse("Calico "+to+" runs already", "give the manifest of another version")
	case then.Major() != now.Major() || max(minors, -minors) > furthest:
		return refuse(fmt.Sprintf("from %s to %s is more than %d minor releases, and agents of both run at the same "+
			"time during the upgrade", from, to, furthest),
			fmt.Sprintf("use several plans, each over at most %d minor releases", furthest))
	}
	return nil
}

// lacking returns the CRDs that a cluster is known not to have. An older Calico works with newer CRDs, but with older
// CRDs, fields that newer agents write would be lost.
func lacking(snapshot *cluster.Snapshot, definitions []unstructured.Unstructured) []unstructured.Unstructured {
	if known, _ := snapshot.Has("customresourcedefinitions"); !known {
		return nil
	}
	there := snapshot.Definitions()
	return slices.DeleteFunc(definitions, func(d unstructured.Unstructured) bool {
		return slices.Contains(there, d.GetName())
	})
}

// sameNetwork refuses manifests that change more than the version.
func sameNetwork(live, wanted *manifest, found *cni.Installation) error {
	if err := cni.SameAgent(found, wanted.agent, "give the manifest that installed this cluster's network, in the "+
		"other version"); err != nil {
		return err
	}
	for _, setting := range []struct {
		name    string
		install bool
		words   string
	}{
		{"CALICO_NETWORKING_BACKEND", false, "how routes reach other nodes"},
		{"FELIX_TYPHAK8SSERVICENAME", false, "whether agents go through Typha"},
		{"IP_AUTODETECTION_METHOD", false, "which address a node uses"},
		{confNameVar, true, "the file name of the CNI configuration"},
	} {
		one, other := live.agentEnv(setting.name, setting.install), wanted.agentEnv(setting.name, setting.install)
		if one != other {
			return refuse(fmt.Sprintf("the manifest changes more than the version: %s is %q and would be %q; it sets "+
				"%s", setting.name, one, other, setting.words),
				"give it the cluster's value in the manifest; Theseus cannot change it")
		}
	}
	return nil
}

// agentEnv returns a variable of the agent, or of the container that installs its CNI configuration.
func (m *manifest) agentEnv(name string, installs bool) string {
	if installs {
		return m.env(m.installer(), name)
	}
	return m.env(cni.FindContainer(m.agent, "containers", agentName), name)
}

// upgrade makes the changes between two manifests.
func upgrade(snapshot *cluster.Snapshot, found *cni.Installation, live, wanted *manifest) (*cni.Upgrade, error) {
	wanted.nameConfFolder()
	image, _ := cni.FindContainer(wanted.agent, "containers", agentName)["image"].(string)
	next := *found
	next.Version = cluster.ImageOf(image).Tag
	next.ConfFolder, next.PluginFolder = wanted.confFolder(), wanted.pluginFolder()
	next.Capabilities.Untracked = untracked(next.Version, next.Capabilities)
	u := &cni.Upgrade{Installation: next, Definitions: wanted.definitions}
	u.Agent = cni.TemplateForm(live.agent, wanted.agent, found.Version, next.Version)
	u.Hold, u.Unhold, u.Resume = cni.Strategies(live.agent, wanted.agent)
	down := cni.Older(next.Version, found.Version)
	for i := range wanted.objects {
		object := &wanted.objects[i]
		switch object.GetKind() {
		case "DaemonSet":
			if object != wanted.agent {
				return nil, refuse("the manifest contains a second DaemonSet, "+object.GetName(), "upgrade that "+
					"one separately")
			}
		case "Deployment":
			follower, err := follow(snapshot, object, down)
			if err != nil {
				return nil, err
			}
			u.Followers = append(u.Followers, *follower)
		case "ConfigMap":
			u.Config(snapshot, object)
		case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
			u.Rights = append(u.Rights, cni.Beside(object, wanted.objects))
			u.Roles = append(u.Roles, *object)
		default:
			if err := settled(snapshot, object); err != nil {
				return nil, err
			}
			u.Objects = append(u.Objects, *object)
		}
	}
	cni.Label(u.Rights)
	slices.SortStableFunc(u.Followers, func(a, b cni.Follower) int { return place(a.Ref) - place(b.Ref) })
	if err := cni.Complete(snapshot, found, []string{typhaName, controllersName}, u.Followers,
		"give the whole manifest of the version"); err != nil {
		return nil, err
	}
	if down { // like the rollback of an upgrade, so that the same versions run side by side
		slices.Reverse(u.Followers)
		u.Leaders, u.Followers = u.Followers, nil
	}
	return u, nil
}

// place puts Typha before whatever else follows the agents.
func place(ref step.Ref) int {
	if ref.Name == typhaName {
		return 0
	}
	return 1
}

// follow returns a Deployment that is changed after the agents, or, for a downgrade, before them.
func follow(snapshot *cluster.Snapshot, wanted *unstructured.Unstructured, down bool) (*cni.Follower, error) {
	why := "It keeps Calico's data in step with the cluster. Traffic between pods does not depend on it."
	if wanted.GetName() == typhaName {
		why = "Some versions of Typha refuse older agents, but none refuses newer ones. An older Typha leaves " +
			"out what it does not know, and a newer agent then works like an older one."
		if down {
			why += " So a downgrade starts with Typha."
		}
	}
	return cni.Follow(snapshot, wanted, why)
}

// settled refuses configuration of Calico's own kinds that differs from the cluster's: it would take effect on all
// nodes at once.
func settled(snapshot *cluster.Snapshot, object *unstructured.Unstructured) error {
	group := object.GroupVersionKind().Group
	if !strings.HasSuffix(group, "projectcalico.org") {
		return nil
	}
	for _, now := range snapshot.Calico(object.GetKind()) {
		if now.GetName() == object.GetName() && equality.Semantic.DeepEqual(now.Object["spec"], object.Object["spec"]) {
			return nil
		}
	}
	return refuse(fmt.Sprintf("the manifest contains %s %s, which differs from the cluster, and would take effect on "+
		"all nodes at once", object.GetKind(), object.GetName()),
		"remove it from the manifest, and change it with a separate plan")
}
