package cluster

import (
	"net/netip"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Kind is the kind of a serialised snapshot.
const Kind = "Snapshot"

// Snapshot is what was seen. Objects keep their resourceVersion; where each kind came from, or why it
// is missing, stands in Sources.
type Snapshot struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Theseus    string      `json:"theseus"` // version of the tool that took it
	TakenAt    metav1.Time `json:"takenAt"`
	// UID is the UID of the namespace kube-system, which names a cluster.
	UID string `json:"uid,omitempty"`
	// Kubernetes is the API server's version, such as v1.36.3.
	Kubernetes string `json:"kubernetes,omitempty"`

	Nodes           []corev1.Node                  `json:"nodes,omitempty"`
	Namespaces      []corev1.Namespace             `json:"namespaces,omitempty"`
	Pods            []corev1.Pod                   `json:"pods,omitempty"`
	Services        []corev1.Service               `json:"services,omitempty"`
	ConfigMaps      []corev1.ConfigMap             `json:"configMaps,omitempty"` // of the system's namespaces only
	DaemonSets      []appsv1.DaemonSet             `json:"daemonSets,omitempty"`
	Deployments     []appsv1.Deployment            `json:"deployments,omitempty"`
	ReplicaSets     []appsv1.ReplicaSet            `json:"replicaSets,omitempty"`
	StatefulSets    []appsv1.StatefulSet           `json:"statefulSets,omitempty"`
	Jobs            []batchv1.Job                  `json:"jobs,omitempty"`
	Budgets         []policyv1.PodDisruptionBudget `json:"budgets,omitempty"`
	NetworkPolicies []networkingv1.NetworkPolicy   `json:"networkPolicies,omitempty"`
	// Other holds everything else that was read: CNI objects, CRDs, webhooks.
	Other []unstructured.Unstructured `json:"other,omitempty"`

	// Facts are per-node measurements by the agent, where one was there to ask.
	Facts []NodeFacts `json:"facts,omitempty"`
	// Rights are the answers of the API server about what this user may do.
	Rights []Right `json:"rights,omitempty"`
	// Sources says for every kind where it was read, or why it was not.
	Sources []Source `json:"sources"`
}

// Source says where the objects of a resource came from.
type Source struct {
	// Resource is as kubectl names it, such as "pods" or "ippools.crd.projectcalico.org".
	Resource string `json:"resource"`
	// From is "live" or a file's name; empty when missing.
	From string `json:"from,omitempty"`
	// Missing says why it is not there, such as "forbidden" or "not in the input".
	Missing         string `json:"missing,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Right is one answer of a SelfSubjectAccessReview.
type Right struct {
	Verb     string `json:"verb"`
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource"`
	// Namespace is where it was asked for; empty for all of them, and for what is in none.
	Namespace string `json:"namespace,omitempty"`
	Allowed   bool   `json:"allowed"`
	Reason    string `json:"reason,omitempty"`
}

// NodeFacts is what only the node itself can tell.
type NodeFacts struct {
	Node   string `json:"node"`
	Kernel string `json:"kernel,omitempty"`
	// Links are the node's interfaces.
	Links []Link `json:"links,omitempty"`
	// RPFilter maps an interface, or "all" and "default", to net.ipv4.conf.*.rp_filter.
	RPFilter map[string]int `json:"rpFilter,omitempty"`
	// ConfFiles are the files of the CNI configuration folder, sorted as the runtime sorts them.
	ConfFiles []string `json:"confFiles,omitempty"`
	// Confs say what is in them, in the same order: the runtime asks the first. Nil where an older agent looked.
	Confs []Conf `json:"confs,omitempty"`
	// ForwardPolicy is the policy of iptables' FORWARD chain: ACCEPT or DROP.
	ForwardPolicy string `json:"forwardPolicy,omitempty"`
	// BIRD is what Calico's BGP daemon says of itself; nil where it does not run.
	BIRD *BIRD `json:"bird,omitempty"`
	// Routes counts the kernel's unicast routes by the protocol that made them, such as "kernel" and "bird".
	Routes map[string]int `json:"routes,omitempty"`
	// Host is what the node is besides its network; nil where an agent looked that did not know of it.
	Host *Host `json:"host,omitempty"`
}

// Conf is a configuration of the container runtime's network, as far as it tells whose it is.
type Conf struct {
	File string `json:"file"`
	// Network is its name, Plugins the types of its plugins in order.
	Network string   `json:"network,omitempty"`
	Plugins []string `json:"plugins,omitempty"`
	// Bridge, MTU, IPAM (the type) and Subnets are those of the first plugin, where it says so itself.
	Bridge  string   `json:"bridge,omitempty"`
	MTU     int      `json:"mtu,omitempty"`
	IPAM    string   `json:"ipam,omitempty"`
	Subnets []string `json:"subnets,omitempty"`
	// DataDir is where its IPAM keeps addresses, where it says so; IPMasq is whether it masquerades each pod by itself.
	DataDir string `json:"dataDir,omitempty"`
	IPMasq  bool   `json:"ipMasq,omitempty"`
	// Problem says why it cannot be read; a runtime passes over such a file.
	Problem string `json:"problem,omitempty"`
}

// Serving is the configuration that the runtime asks for a new pod's network; false where there is none.
func (f *NodeFacts) Serving() (Conf, bool) {
	for _, conf := range f.Confs {
		if conf.Problem == "" && len(conf.Plugins) > 0 {
			return conf, true
		}
	}
	return Conf{}, false
}

// Host is a node's kernel and what runs beside Kubernetes there.
type Host struct {
	Clock Clock `json:"clock"`
	// Modules maps modules that networks need to "loaded", "built-in", "loadable" or "absent"; one of which that
	// cannot be told is not in it.
	Modules map[string]string `json:"modules,omitempty"`
	// Managers are daemons that manage links and routes.
	Managers []LinkManager `json:"managers,omitempty"`
	// Filters says what keeps packets from the node itself, such as "the policy of INPUT is DROP (iptables-nft)".
	Filters []string `json:"filters,omitempty"`
	// IPTables counts the rules by the implementation that holds them: "nft" or "legacy".
	IPTables map[string]int `json:"iptables,omitempty"`
	// Forward has an entry for each implementation of iptables (IPv4) whose FORWARD drops what no rule accepts: what may accept
	// a new connection there, chains by their names and rules as iptables-save has them. Nil where an older agent looked.
	Forward map[string][]string `json:"forward,omitempty"`
	// Paths are those to some other nodes.
	Paths []PathMTU `json:"paths,omitempty"`
	// Sysctls are those that networks set, by name, such as net.ipv4.ip_forward; one that the kernel has not is not in it.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Traces are what networks leave in a kernel; nil where an agent looked that did not know of them.
	Traces *Traces `json:"traces,omitempty"`
}

// Traces are rules and routes by whoever made them. Lists of routes and rules are cut at 100.
type Traces struct {
	// Chains counts the chains of iptables by the beginning of their names, such as "cali-" and "KUBE-".
	Chains map[string]int `json:"chains,omitempty"`
	// Legacy counts those of them that iptables-legacy has.
	Legacy map[string]int `json:"legacy,omitempty"`
	// NFTables are family and name, as in "ip calico".
	NFTables []string `json:"nftables,omitempty"`
	// Blackholes are destinations to which packets are dropped or refused, in any table of routes.
	Blackholes []string `json:"blackholes,omitempty"`
	// Reached are destinations of the main table that lead to a gateway, but for the default route.
	Reached []string `json:"reached,omitempty"`
	// Rules are those of policy routing beside the kernel's own, such as "100: fwmark 0x200 lookup 2004".
	Rules []string `json:"rules,omitempty"`
}

// Clock is the node's time when it was asked, beside the time of who asked, before and after.
type Clock struct {
	At       time.Time `json:"at"`
	Asked    time.Time `json:"asked,omitzero"`
	Answered time.Time `json:"answered,omitzero"`
	// Unsynchronised is what the kernel says: nobody keeps the clock in time.
	Unsynchronised bool `json:"unsynchronised,omitempty"`
}

// LinkManager is systemd-networkd or NetworkManager.
type LinkManager struct {
	Name string `json:"name"`
	// Foreign is true where it takes routes or rules away that others made (systemd-networkd).
	Foreign bool `json:"foreign,omitempty"`
	// Unmanaged are the names of links that it leaves alone, as shell patterns (NetworkManager).
	Unmanaged []string `json:"unmanaged,omitempty"`
}

// PathMTU is the largest packet that came to another node in one piece, and back; 0 when none did.
type PathMTU struct {
	To  string `json:"to"`
	MTU int    `json:"mtu"`
	// Link is the MTU of the link that leads there.
	Link int `json:"link"`
}

// BIRD is a BGP daemon.
type BIRD struct {
	// Down says why the daemon did not answer; empty when it did.
	Down     string       `json:"down,omitempty"`
	Sessions []BGPSession `json:"sessions,omitempty"`
}

// BGPSession is one that a daemon is configured for.
type BGPSession struct {
	// Peer is the neighbour's address.
	Peer string `json:"peer"`
	// State is that of BGP's state machine: Established, or one on the way there.
	State string `json:"state"`
}

// Uplink is the link that carries the node's own address, or nil; of no facts too.
func (f *NodeFacts) Uplink(node *corev1.Node) *Link {
	if f == nil {
		return nil
	}
	for _, address := range node.Status.Addresses {
		ip, err := netip.ParseAddr(address.Address)
		if err != nil || address.Type != corev1.NodeInternalIP {
			continue
		}
		for i := range f.Links {
			for _, on := range f.Links[i].Addresses {
				if prefix, err := netip.ParsePrefix(on); err == nil && prefix.Addr() == ip || on == ip.String() {
					return &f.Links[i]
				}
			}
		}
	}
	return nil
}

// Link is one network interface.
type Link struct {
	Name      string   `json:"name"`
	Type      string   `json:"type,omitempty"`
	MTU       int      `json:"mtu"`
	Addresses []string `json:"addresses,omitempty"`
	// VNI and Port (UDP) are set for VXLAN links.
	VNI  int `json:"vni,omitempty"`
	Port int `json:"port,omitempty"`
}

// Has reports whether a resource was read, and why not when it was not.
func (s *Snapshot) Has(resource string) (bool, string) {
	for _, source := range s.Sources {
		if source.Resource == resource {
			return source.Missing == "", source.Missing
		}
	}
	return false, "not in the input"
}

// DaemonSet finds a DaemonSet, or nil.
func (s *Snapshot) DaemonSet(namespace, name string) *appsv1.DaemonSet {
	for i := range s.DaemonSets {
		if s.DaemonSets[i].Namespace == namespace && s.DaemonSets[i].Name == name {
			return &s.DaemonSets[i]
		}
	}
	return nil
}

// ConfigMap finds a ConfigMap, or nil.
func (s *Snapshot) ConfigMap(namespace, name string) *corev1.ConfigMap {
	for i := range s.ConfigMaps {
		if s.ConfigMaps[i].Namespace == namespace && s.ConfigMaps[i].Name == name {
			return &s.ConfigMaps[i]
		}
	}
	return nil
}

// OtherOf returns the other objects of a kind, whatever their version.
func (s *Snapshot) OtherOf(group, kind string) []unstructured.Unstructured {
	var found []unstructured.Unstructured
	for _, object := range s.Other {
		gvk := object.GroupVersionKind()
		if gvk.Group == group && gvk.Kind == kind {
			found = append(found, object)
		}
	}
	return found
}

// Definitions are the names of the CustomResourceDefinitions that were read, such as "ippools.crd.projectcalico.org".
func (s *Snapshot) Definitions() []string {
	var names []string
	for _, definition := range s.OtherOf("apiextensions.k8s.io", "CustomResourceDefinition") {
		names = append(names, definition.GetName())
	}
	return names
}

// Owner names the workload that a pod belongs to in the end: a Deployment rather than its ReplicaSet,
// or the pod itself ("Pod") when nothing would create it again.
type Owner struct {
	Kind, Namespace, Name string
}

// Owners follows pods' controller references. It reads the ReplicaSets once, so ask it for every pod.
func (s *Snapshot) Owners() func(*corev1.Pod) Owner {
	parents := make(map[Owner]Owner, len(s.ReplicaSets))
	for i := range s.ReplicaSets {
		set := &s.ReplicaSets[i]
		if parent := metav1.GetControllerOfNoCopy(set); parent != nil {
			parents[Owner{"ReplicaSet", set.Namespace, set.Name}] = Owner{parent.Kind, set.Namespace, parent.Name}
		}
	}
	return func(pod *corev1.Pod) Owner {
		ref := metav1.GetControllerOfNoCopy(pod)
		if ref == nil {
			return Owner{"Pod", pod.Namespace, pod.Name}
		}
		owner := Owner{ref.Kind, pod.Namespace, ref.Name}
		if parent, ok := parents[owner]; ok {
			return parent
		}
		return owner
	}
}
