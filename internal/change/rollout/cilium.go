package rollout

import (
	"cmp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// Names of Cilium's objects.
const (
	ciliumConfig = "cilium-config"
	nodeConfig   = "CiliumNodeConfig"
	// buildConfig is the command that merges cilium-config and CiliumNodeConfigs before the agent starts.
	buildConfig = "build-config"
	hostLabel   = "kubernetes.io/hostname"
)

// ownConfig names a node's own CiliumNodeConfig.
func ownConfig(node string) string { return "theseus-" + node }

// onCilium is what turns of nodes need to know of a cluster on Cilium.
type onCilium struct {
	// api is the version in which CiliumNodeConfigs are served, namespace where the agent reads them.
	api, namespace string
	// hosts are the nodes' values of the label by which one is picked.
	hosts map[string]string
}

// untriedRollout says what a rollout on Cilium rests on.
func untriedRollout(source *cni.Installation) finding.Finding {
	return finding.Finding{ID: "rollout/untried", Severity: finding.Warn,
		Subject: finding.Subject{Kind: source.Agent.Kind, Namespace: source.Agent.Namespace, Name: source.Agent.Name},
		Message: "Theseus has never rolled out a flag on a running Cilium; it relies on Cilium's source code. The " +
			"evidence for each node is what its agent logs at its start, and the measured paths; Theseus does not " +
			"inspect the kernel. A restarted agent also picks up every other change of its " +
			"configuration since its last start",
		Fix: "try it on a test cluster first; theseus flags verify shows which agents do not run " +
			"with their configured values"}
}

// ciliumSettled says what keeps a rollout from reaching Cilium's agents, or from being seen there.
func ciliumSettled(snapshot *cluster.Snapshot, fleet *setting.Fleet, agent *appsv1.DaemonSet,
	k *setting.Knob) (*onCilium, error) {
	if opts, ok := fleet.Catalogue().Get("cilium/log-opt"); ok {
		if value := fleet.Value(opts, "").Value; strings.Contains(value, "level=") &&
			!strings.Contains(value, "level=info") && !strings.Contains(value, "level=debug") {
			return nil, kind.Refuse("let agents log at the level info first",
				"Cilium's agents log with %s, so they do not log their values", value)
		}
	}
	if err := readsNodeConfigs(snapshot, agent, k.Name); err != nil {
		return nil, err
	}
	c := &onCilium{namespace: agent.Namespace, hosts: map[string]string{}}
	if c.api = servedNodeConfig(snapshot); c.api == "" {
		return nil, kind.Refuse(
			"take the snapshot with theseus snapshot -o snapshot.json, which includes CRDs; Cilium has this one "+
				"from 1.13 on",
			"the cluster serves no CRD CiliumNodeConfig, which is the only place for the value of a single node")
	}
	owners := map[string]string{}
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		host := node.Labels[hostLabel]
		if other := owners[host]; host == "" || other != "" {
			return nil, kind.Refuse("kubectl label node "+shell.Words(node.Name, hostLabel+"="+node.Name),
				"a CiliumNodeConfig selects nodes by their labels, and %s has %q for %s%s",
				node.Name, host, hostLabel, map[bool]string{true: ", as " + other + " has"}[other != ""])
		}
		owners[host], c.hosts[node.Name] = node.Name, host
	}
	return c, nil
}

// servedNodeConfig is the newest API version of CiliumNodeConfig that the cluster serves; empty where it is not known
// to serve any.
func servedNodeConfig(snapshot *cluster.Snapshot) string {
	served := map[string]bool{}
	for _, definition := range snapshot.OtherOf("apiextensions.k8s.io", "CustomResourceDefinition") {
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		for _, one := range versions {
			version, _ := one.(map[string]any)
			name, _ := version["name"].(string)
			if on, _ := version["served"].(bool); definition.GetName() == "ciliumnodeconfigs.cilium.io" {
				served[name] = on
			}
		}
	}
	for _, version := range []string{"v2", "v2alpha1"} {
		if served[version] {
			return "cilium.io/" + version
		}
	}
	return ""
}

// readsNodeConfigs says why an agent would not take a key from a CiliumNodeConfig: what it reads is merged by an init
// container, whose arguments name the sources, the weakest first, and the keys that later ones may have
// (cilium-dbg/cmd/build-config.go).
func readsNodeConfigs(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet, key string) error {
	ref := cni.DaemonSetRef(agent)
	var words []string
	for _, container := range agent.Spec.Template.Spec.InitContainers {
		if all := slices.Concat(container.Command, container.Args); slices.Contains(all, buildConfig) {
			words = all
		}
	}
	if words == nil {
		return kind.Refuse("Cilium's chart has it since 1.13",
			"no init container of %s runs %s, so its agents read no CiliumNodeConfig", ref, buildConfig)
	}
	if allowed := argument(words, "--allow-config-keys"); len(allowed) > 0 && !slices.Contains(allowed, key) {
		return kind.Refuse("add it to the chart's daemon.allowedConfigOverrides",
			"%s lets a CiliumNodeConfig set only %s, not %s", ref, strings.Join(allowed, ", "), key)
	} else if denied := argument(words, "--deny-config-keys"); len(allowed) == 0 && slices.Contains(denied, key) {
		return kind.Refuse("remove it from the chart's daemon.blockedConfigOverrides",
			"%s lets no CiliumNodeConfig set %s", ref, key)
	}
	sources := argument(words, "--source")
	if len(sources) == 0 {
		sources = []string{"config-map", "cilium-node-config"} // as it does by itself
	}
	const unlike = "theseus knows the order config-map:" + ciliumConfig + ",cilium-node-config, with node after them"
	for i, source := range sources {
		from, name, _ := strings.Cut(source, ":")
		name = strings.TrimPrefix(name, agent.Namespace+"/")
		ok := false
		switch i {
		case 0:
			ok = from == "config-map" && cmp.Or(name, ciliumConfig) == ciliumConfig
		case 1:
			ok = from == "cilium-node-config" && cmp.Or(name, agent.Namespace) == agent.Namespace
		case 2:
			ok = from == "node" && name == ""
		}
		if !ok {
			return kind.Refuse(unlike, "%s takes its settings from %s", ref, strings.Join(sources, ", "))
		}
	}
	if len(sources) < 2 {
		return kind.Refuse(unlike, "%s takes its settings only from %s, and from no CiliumNodeConfig", ref, sources[0])
	}
	for i := range snapshot.Nodes {
		node, beats := &snapshot.Nodes[i], "config.cilium.io/"+key
		_, labelled := node.Labels[beats]
		if _, annotated := node.Annotations[beats]; len(sources) > 2 && (labelled || annotated) {
			return kind.Refuse("remove it there first", "%s of node %s overrides every CiliumNodeConfig",
				beats, node.Name)
		}
	}
	return nil
}

// argument is what a command line says for a flag that takes a list.
func argument(words []string, name string) []string {
	for i, word := range words {
		value, given := strings.CutPrefix(word, name+"=")
		if word == name && i+1 < len(words) {
			value, given = words[i+1], true
		}
		if given {
			return strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
		}
	}
	return nil
}

// provableOnCilium says why a flag of Cilium cannot be rolled out.
func provableOnCilium(k *setting.Knob, value string) error {
	hint := "theseus flags explain " + k.ID()
	w, err := k.Write(setting.Aim{Scope: setting.Node, Node: "NODE"}, value)
	if err != nil {
		return err
	}
	if k.Refuses != "" || w.Place.Effect != setting.Recreate {
		return kind.Refuse(hint, "%s takes effect by %s, which is not rolled out%s",
			k.ID(), w.Place.Effect, map[bool]string{true: ": " + k.Refuses}[k.Refuses != ""])
	}
	if k.MayDiffer == "" {
		return kind.Refuse("set it for the cluster, as Cilium's documentation says; theseus flags explain says "+
			"which flags nodes may differ in",
			"it is unknown whether nodes with different values of %s work together, so Theseus does not roll it out",
			k.ID())
	}
	if _, _, ok := k.Said(value); !ok {
		return kind.Refuse(hint, "Theseus cannot verify %s on a node, so it does not roll it out", k.ID())
	}
	return nil
}

// config is the CiliumNodeConfig of one node that holds a value.
func (t *turning) config(node, value string) (setting.Write, error) {
	w, err := t.fleet.Write(t.knob, setting.Aim{Scope: setting.Selector, Object: ownConfig(node),
		Selector: hostLabel + "=" + t.cilium.hosts[node]}, value)
	w.Ref.APIVersion, w.Ref.Namespace = t.cilium.api, t.cilium.namespace
	return w, err
}

// holder says what a rollout's flag is written in: the object of a node, or with no node the cluster's, and where in
// it.
func holder(p *kind.Plan, ref step.Ref) (node string, path []string, ok bool) {
	field := p.Rollout.Flag
	switch {
	case ref.Kind == "FelixConfiguration" && p.Source.CNI == "calico":
		if ref.Name == "default" {
			return "", []string{"spec", field}, true
		}
		node, own := strings.CutPrefix(ref.Name, "node.")
		return node, []string{"spec", field}, own
	case ref.Namespace != p.Source.Agent.Namespace || p.Source.CNI != "cilium":
		return "", nil, false
	case ref.Kind == "ConfigMap":
		return "", []string{"data", field}, ref.Name == ciliumConfig
	case ref.Kind == nodeConfig:
		node, own := strings.CutPrefix(ref.Name, ownConfig(""))
		return node, []string{"spec", "defaults", field}, own
	}
	return "", nil, false
}
