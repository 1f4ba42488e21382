package flannel

import (
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

// agentsOf returns the DaemonSets that run flanneld: one, or one per architecture in old manifests. Where Calico's
// agent runs in the same pod, it is another network.
func agentsOf(snapshot *cluster.Snapshot) []*appsv1.DaemonSet {
	var found []*appsv1.DaemonSet
	for i := range snapshot.DaemonSets {
		set := &snapshot.DaemonSets[i]
		containers := set.Spec.Template.Spec.Containers
		if cni.ImageOf(containers, "flannel") != "" && !slices.ContainsFunc(containers,
			func(c corev1.Container) bool { return strings.Contains(c.Image, "calico") }) {
			found = append(found, set)
		}
	}
	return found
}

func configOf(snapshot *cluster.Snapshot, namespaces ...string) *corev1.ConfigMap {
	for _, namespace := range namespaces {
		if found := snapshot.ConfigMap(namespace, configMap); found != nil {
			return found
		}
	}
	return nil
}

// embeddedOn names the nodes on which k3s runs flannel within its own process. Annotations alone are no proof, because
// they outlive flannel: neither is there one that a server was told to leave out, nor one whose file serves no pods.
func embeddedOn(snapshot *cluster.Snapshot) []string {
	serving := map[string]string{}
	for i := range snapshot.Facts {
		if conf, ok := snapshot.Facts[i].Serving(); ok {
			serving[snapshot.Facts[i].Node] = conf.Plugins[0]
		}
	}
	var nodes []string
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		if turnedOff(node.Annotations["k3s.io/node-args"]) {
			return nil // agents follow their servers
		}
		if first := serving[node.Name]; node.Annotations[annotations+"backend-type"] != "" &&
			strings.Contains(node.Status.NodeInfo.KubeletVersion, "+k3s") && (first == "" || first == "flannel") {
			nodes = append(nodes, node.Name)
		}
	}
	return nodes
}

// turnedOff reports whether k3s was started with --flannel-backend=none; its arguments are noted as a list in JSON.
func turnedOff(args string) bool {
	return strings.Contains(args, `"--flannel-backend=none"`) || strings.Contains(args, `"--flannel-backend","none"`)
}

func describe(snapshot *cluster.Snapshot, agents []*appsv1.DaemonSet) *cni.Installation {
	agent := agents[0]
	version := cluster.ImageOf(cni.ImageOf(agent.Spec.Template.Spec.Containers, "flannel")).Tag
	found := &cni.Installation{
		CNI:          "flannel",
		Version:      version,
		Agent:        cni.DaemonSetRef(agent),
		Selector:     cni.SelectorOf(agent),
		ConfFolder:   cni.HostFolder(agent, path.Clean(confDir)),
		PluginFolder: cni.HostFolder(agent, pluginDir),
	}
	if joined(agent, found) {
		for _, set := range agents {
			found.Problems = append(found.Problems, cni.NotReady(snapshot, set)...)
		}
		found.Capabilities.ConfName = strings.TrimSuffix(confFile(agent), cni.StagedSuffix)
		return found // its settings are another network's too
	}
	config := configOf(snapshot, agent.Namespace, ownSpace, "kube-system")
	conf, problems := readNetConf(config)
	pods, more := readPodConf(config)
	if kind := conf.Backend.Type; len(problems) == 0 && kind != "vxlan" && kind != "host-gw" {
		otherBackend(found, config, kind)
	}
	found.Problems = append(problems, more...)
	found.PodCIDRs = conf.networks()
	found.Data = pods.data()
	file := confFile(agent)
	found.Capabilities = capabilities(conf, pods.bridge(), strings.TrimSuffix(file, cni.StagedSuffix))
	found.Capabilities.Masquerade = masqueraded(agents, conf)
	found.Capabilities.Chained = pods.chained()
	found.Capabilities.MTU = podMTU(snapshot, conf, pods.bridge())
	if found.Capabilities.Attachment = pods.attachment(
		found.Capabilities.ConfName); found.Capabilities.Attachment == nil {
		found.Capabilities.Unattached = "its CNI configuration chains plugins other than portmap, or cannot be read, " +
			"and no other network would do for a pod what such a plugin did"
		if more := found.Capabilities.Chained; len(more) > 0 {
			found.Capabilities.Unattached = "its CNI configuration chains the plugin " + strings.Join(more, " and ") +
				", and no other network would do for a pod what that plugin did"
		}
	}
	found.Problems = append(found.Problems, cni.Unfinished(agent, file)...)
	for _, set := range agents {
		found.Problems = append(found.Problems, cni.NotReady(snapshot, set)...)
	}
	router := cni.Firewall(snapshot)
	cni.BesideFirewall(snapshot, router, found)
	found.Parts = parts(snapshot, agents, router)
	return found
}

// masqueraded returns the traffic that flannel masquerades, if all its agents are configured to.
func masqueraded(agents []*appsv1.DaemonSet, conf netConf) *cni.Masquerade {
	for _, agent := range agents {
		if !slices.ContainsFunc(agent.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(word string) bool {
				return slices.Contains([]string{"--ip-masq", "-ip-masq", "--ip-masq=true", "-ip-masq=true"}, word)
			})
		}) {
			return nil
		}
	}
	if conf.Network == "" {
		return nil
	}
	return &cni.Masquerade{From: []string{conf.Network}, Except: []string{conf.Network, cni.Multicast}}
}

// otherBackend says of a backend that Theseus was never run with, and that is none of a network's defects, what to do.
func otherBackend(found *cni.Installation, config *corev1.ConfigMap, kind string) {
	where := "ConfigMap " + config.Namespace + "/" + config.Name
	found.Untried = fmt.Sprintf("flannel has the backend %q (%s), and Theseus knows how pods on flannel reach "+
		"those of another network only with vxlan and host-gw", kind, where)
	found.Instead = fmt.Sprintf("use VXLAN first: set \"Backend\": {\"Type\": \"vxlan\"} in net-conf.json of "+
		"%s. Then restart the agents and measure that: theseus guard -- sh -c 'kubectl -n %[2]s rollout restart "+
		"ds/%[3]s && kubectl -n %[2]s rollout status ds/%[3]s'. Until all agents have restarted, nodes with "+
		"different backends cannot reach each other's pods", where,
		shell.Word(found.Agent.Namespace), shell.Word(found.Agent.Name))
	if kind == "wireguard" || kind == "ipsec" {
		found.Instead += "; VXLAN does not encrypt traffic"
	}
}

// joined recognises a second agent in flannel's pods that makes it a different network.
func joined(agent *appsv1.DaemonSet, found *cni.Installation) bool {
	if cni.ImageOf(agent.Spec.Template.Spec.Containers, policies) != "" {
		found.Untried = "DaemonSet " + agent.Namespace + "/" + agent.Name + " runs " + policies +
			" and flannel in one pod (netpol of flannel's chart), to enforce NetworkPolicy: Theseus was never run " +
			"with it, " +
			"and knows neither how it behaves next to another network nor what it leaves on nodes"
	}
	return found.Untried != ""
}

// confFile is the name under which an init container writes the CNI configuration.
func confFile(set *appsv1.DaemonSet) string {
	for _, container := range set.Spec.Template.Spec.InitContainers {
		for _, word := range append(slices.Clone(container.Command), container.Args...) {
			if name := word[strings.LastIndex(word, "/")+1:]; isConf(name) {
				return name
			}
		}
	}
	return confName
}

// isConf reports whether a runtime reads a file of this name, ignoring the suffix of a staged configuration.
func isConf(name string) bool {
	name = strings.TrimSuffix(name, cni.StagedSuffix)
	return strings.HasSuffix(name, ".conflist") || strings.HasSuffix(name, ".conf")
}
