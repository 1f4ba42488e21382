package cni

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// Elsewhere is the hint for networks that Theseus cannot replace in place.
const Elsewhere = "move its workloads and their DNS names to a second cluster that has the network that you want: " +
	"docs/strategies/mirror.md"

// Measured is the hint for changes that Theseus does not make: it measures those of others on any network.
const Measured = "a change that you make by other means can be measured: theseus guard -- COMMAND"

// Foreign is a network, or a part of one, that no driver changes.
type Foreign struct {
	// Name is its common name, such as "Amazon VPC CNI"; empty if Theseus does not recognise it.
	Name string
	// Seen says what of it is in the cluster.
	Seen string
	// Why says why Theseus does not replace it, and Instead what to do; both are empty if it is not recognised.
	Why, Instead string
	// Chained is true for a plugin that is called in addition to that of a network.
	Chained bool
}

// String names it with what shows it.
func (f Foreign) String() string {
	if f.Name == "" {
		return f.Seen
	}
	return f.Name + " (" + f.Seen + ")"
}

// recognised is a network, or a plugin chained to one, that Theseus recognises and does not change.
type recognised struct {
	name string
	// set is the name of its DaemonSet, also that of another distribution's, and image a part of its image's name;
	// either may be empty. plugins are the types of its plugins.
	set, also, image string
	plugins          []string
	why              string
	// instead comes before the general hint.
	instead string
	chained bool
}

// known are named as in the manifests of their projects: amazon-vpc-cni-k8s (config/master/aws-k8s-cni.yaml),
// azure-container-networking (cns/azure-cns.yaml; without CNS only the plugin's file on the nodes), ovn-kubernetes
// (dist/templates), kOps (addons/networking.kindnet), antrea (build/yamls), GKE (netd;
// anetd is its Dataplane V2), OpenShift, multus-cni (deployments), istio (manifests/charts/istio-cni), linkerd2-cni.
var known = []recognised{
	{name: "Amazon VPC CNI", set: "aws-node", image: "amazon-k8s-cni", plugins: []string{"aws-cni"},
		why: "AWS assigns its pods' addresses on the nodes' own interfaces, and no other network can route those " +
			"between nodes"},
	{name: "Azure CNI", set: "azure-cns", image: "azure-cns", plugins: []string{"azure-vnet", "azure-ipam"},
		why: "Azure assigns its pods' addresses, and AKS restores its files on the nodes",
		instead: "let AKS change between its own networks, for which it reimages all nodes, and measure what that " +
			"costs: theseus guard -- az aks update --resource-group GROUP --name CLUSTER --network-plugin-mode " +
			"overlay"},
	{name: "OVN-Kubernetes", set: "ovnkube-node", image: "ovn-kube", plugins: []string{"ovn-k8s-cni-overlay"},
		why: "its pods are ports of Open vSwitch, from which Theseus cannot take them, and an operator (on " +
			"OpenShift) restores what is changed"},
	{name: "OpenShift SDN", set: "sdn", image: "openshift-sdn", plugins: []string{"openshift-sdn"},
		why: "its pods are ports of Open vSwitch, from which Theseus cannot take them, and OpenShift's operator " +
			"restores what is changed",
		instead: "use OpenShift's own migration to OVN-Kubernetes (4.15 and 4.16), and measure it: theseus guard " +
			"start before, theseus guard stop after"},
	{name: "kindnet of kOps", set: "kindnet", plugins: []string{"cni-kindnet"},
		why: "its agent and its plugin are others than those of kind and minikube, and Theseus was never run with " +
			"them"},
	{name: "Antrea", set: "antrea-agent", image: "antrea-agent", plugins: []string{"antrea"},
		why: "its pods are ports of Open vSwitch, from which Theseus cannot take them"},
	{name: "GKE Dataplane V2", set: "anetd", image: "anetd",
		why: "Google assigns its pods' addresses and manages its agents"},
	{name: "GKE's own network", set: "netd", image: "netd-amd64",
		why: "Google assigns its pods' addresses and manages its agents"},
	{name: "kube-router as the service proxy", set: "kube-router", image: "kube-router",
		why: "it serves Services in the place of kube-proxy, and Theseus was never run with that"},
	{name: "Multus", set: "kube-multus-ds", also: "multus", image: "multus",
		plugins: []string{"multus", "multus-shim"}, chained: true,
		why: "its file comes first on each node and calls the network that it knows, so a node would not be " +
			"switched; or pods would lose their additional networks",
		instead: "remove Multus and its file from the nodes for the time of the change, if no pod has the annotation " +
			"k8s.v1.cni.cncf.io/networks (theseus check --only workload/network-annotations names those), and " +
			"install it again afterwards"},
	{name: "Istio's CNI plugin", set: "istio-cni-node", plugins: []string{"istio-cni"},
		chained: true,
		why: "it adds itself to the file that comes first, some time after that file was written: pods that start " +
			"on a switched node before that are not in the mesh, and not protected by it",
		instead: "let Istio set pods up by init containers for the time of the change: install Istio again with " +
			"your own values and components.cni.enabled=false, restart the mesh's pods, and plan again (not in " +
			"ambient mode, which needs the plugin)"},
	{name: "Linkerd's CNI plugin", set: "linkerd-cni", plugins: []string{"linkerd-cni"},
		chained: true,
		why: "it adds itself to the file that comes first, some time after that file was written: pods that start " +
			"on a switched node before that are not in the mesh, and not protected by it",
		instead: "let Linkerd set pods up by init containers for the time of the change: upgrade it with " +
			"cniEnabled=false, remove linkerd-cni, restart the mesh's pods, and plan again"},
}

// titles are the names of networks in texts, if they differ from the drivers' names.
var titles = map[string]string{"bridge": "the bridge plugin", "calico": "Calico", "canal": "Canal",
	"cilium": "Cilium", "weave": "Weave Net"}

// foreign is a recognised network or plugin as it is in a cluster.
func (r *recognised) foreign(seen string) Foreign {
	f := Foreign{Name: r.name, Seen: seen, Why: r.why, Chained: r.chained, Instead: r.instead}
	switch {
	case r.chained:
	case r.instead != "":
		f.Instead += "; or " + Elsewhere
	default:
		f.Instead = Elsewhere + "; " + Measured
	}
	return f
}

func knownSet(set *appsv1.DaemonSet) *recognised {
	for i := range known {
		r := &known[i]
		if set.Name == r.set || r.also != "" && set.Name == r.also ||
			r.image != "" && ImageOf(set.Spec.Template.Spec.Containers, r.image) != "" {
			return r
		}
	}
	return nil
}

func knownPlugin(plugin string) *recognised {
	for i := range known {
		if slices.Contains(known[i].plugins, plugin) {
			return &known[i]
		}
	}
	return nil
}

// NamedBy returns the common name of a DaemonSet's network, such as "Amazon VPC CNI"; empty if Theseus does not
// recognise it as a network.
func NamedBy(set *appsv1.DaemonSet) string {
	if r := knownSet(set); r != nil && !r.chained {
		return r.name
	}
	return ""
}

// LostPlugin says what a plugin did that is chained to one network and not to the next, and what to do about it. The
// name is that of a Foreign; empty if it is none.
func LostPlugin(plugin string) (name, what, instead string) {
	if r := knownPlugin(plugin); r != nil {
		return r.name, r.why, r.instead
	}
	add := "add the same entry to the list of plugins in the new network's manifest, behind portmap"
	switch plugin {
	case "bandwidth":
		return "", "it limits the bandwidth of pods with the annotations kubernetes.io/ingress-bandwidth and " +
			"kubernetes.io/egress-bandwidth, which the new network would not do", add
	case "tuning":
		return "", "it sets sysctls or properties of each pod's interface, which pods on the new network would lack",
			add + "; on Calico, kernel settings of a namespace can be set by the pods themselves " +
				"(spec.securityContext.sysctls) instead"
	}
	return "", "pods on the new network would lack what it does for them", "find out what it is for. If pods " +
		"need it, " + add + "; if not, remove it from the present one"
}

// Chained returns the plugins of a list that follow the first one, except portmap, which every network has.
func Chained(plugins []string) []string {
	var all []string
	for i, plugin := range plugins {
		if i > 0 && plugin != "portmap" && plugin != "" && !slices.Contains(all, plugin) {
			all = append(all, plugin)
		}
	}
	return all
}

// Outgoing is a driver whose network is supported as a source only.
type Outgoing interface {
	// NeverComes says why it cannot be a target, and what to do.
	NeverComes() *Refusal
}

// NeverComes refuses the network of a driver as a target, whatever its manifest; nil if it can be a target.
func NeverComes(driver Driver) error {
	if outgoing, ok := driver.(Outgoing); ok {
		return outgoing.NeverComes()
	}
	return nil
}
