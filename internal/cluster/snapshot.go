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
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is the kind of a serialised snapshot.
const Kind = "Snapshot"

// Snapshot is a picture of a cluster. Objects keep their resourceVersion. Sources says for each kind where it was read,
// or why it is missing.
type Snapshot struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Theseus    string      `json:"theseus"` // version of the tool that took it
	TakenAt    metav1.Time `json:"takenAt"`
	// UID is the UID of the namespace kube-system, which identifies the cluster.
	UID string `json:"uid,omitempty"`
	// Kubernetes is the API server's version, such as v1.36.3.
	Kubernetes string `json:"kubernetes,omitempty"`
	// APIServers are the addresses at which the API servers themselves serve, as HOST:PORT; nil if they are not known.
	APIServers []string `json:"apiServers,omitempty"`

	Nodes           []corev1.Node                  `json:"nodes,omitempty"`
	Namespaces      []corev1.Namespace             `json:"namespaces,omitempty"`
	Pods            []corev1.Pod                   `json:"pods,omitempty"`
	Services        []corev1.Service               `json:"services,omitempty"`
	ConfigMaps      []corev1.ConfigMap             `json:"configMaps,omitempty"` // only those in system namespaces
	DaemonSets      []appsv1.DaemonSet             `json:"daemonSets,omitempty"`
	Deployments     []appsv1.Deployment            `json:"deployments,omitempty"`
	ReplicaSets     []appsv1.ReplicaSet            `json:"replicaSets,omitempty"`
	StatefulSets    []appsv1.StatefulSet           `json:"statefulSets,omitempty"`
	Jobs            []batchv1.Job                  `json:"jobs,omitempty"`
	Budgets         []policyv1.PodDisruptionBudget `json:"budgets,omitempty"`
	NetworkPolicies []networkingv1.NetworkPolicy   `json:"networkPolicies,omitempty"`
	// Other holds everything else that was read: CNI objects, CRDs, webhooks.
	Other []unstructured.Unstructured `json:"other,omitempty"`
	// Written is the metadata of objects that a plan writes or deletes, if there is a plan. managedFields have no
	// fields.
	Written []metav1.PartialObjectMetadata `json:"written,omitempty"`

	// Facts are the facts that agents reported about their nodes, if agents were installed.
	Facts []NodeFacts `json:"facts,omitempty"`
	// Rights are the API server's answers about this user's permissions.
	Rights []Right `json:"rights,omitempty"`
	// Sources says for every kind where it was read, or why it was not.
	Sources []Source `json:"sources"`
}

// Source says where the objects of a resource came from.
type Source struct {
	// Resource is the name for kubectl, such as "pods" or "ippools.crd.projectcalico.org".
	Resource string `json:"resource"`
	// From is "live" or a file name; empty if missing.
	From string `json:"from,omitempty"`
	// Missing says why the resource was not read, such as "forbidden" or "not in the input".
	Missing         string `json:"missing,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Away is true if it was not read because of an outage, so that another try may succeed.
	Away bool `json:"-"`
}

// Away are the resources that were not read because of an outage.
func (s *Snapshot) Away() []string {
	var all []string
	for _, source := range s.Sources {
		if source.Away {
			all = append(all, source.Resource)
		}
	}
	return all
}

// Right is one answer of a SelfSubjectAccessReview.
type Right struct {
	Verb     string `json:"verb"`
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource"`
	// Namespace is the namespace of the request; empty for all namespaces and for cluster-scoped resources.
	Namespace string `json:"namespace,omitempty"`
	Allowed   bool   `json:"allowed"`
	Reason    string `json:"reason,omitempty"`
}

// NodeFacts are facts that only the node itself knows.
type NodeFacts struct {
	Node   string `json:"node"`
	Kernel string `json:"kernel,omitempty"`
	// Links are the node's interfaces.
	Links []Link `json:"links,omitempty"`
	// RPFilter maps an interface, or "all" and "default", to net.ipv4.conf.*.rp_filter.
	RPFilter map[string]int `json:"rpFilter,omitempty"`
	// Folders are those from which the container runtime takes CNI configurations and plugins; nil if an older agent
	// reported.
	Folders *Folders `json:"folders,omitempty"`
	// ConfFiles are the files of the CNI configuration folder, sorted as the runtime sorts them.
	ConfFiles []string `json:"confFiles,omitempty"`
	// Confs are their contents, in the same order; the runtime uses the first valid one. Nil if an older agent
	// reported.
	Confs []Conf `json:"confs,omitempty"`
	// ForwardPolicy is the policy of iptables' FORWARD chain: ACCEPT or DROP.
	ForwardPolicy string `json:"forwardPolicy,omitempty"`
	// BIRD is the state of Calico's BGP daemon; nil if it does not run.
	BIRD *BIRD `json:"bird,omitempty"`
	// Routes counts the kernel's unicast routes by the protocol that programmed them, such as "kernel" and "bird".
	Routes map[string]int `json:"routes,omitempty"`
	// Host has facts about the node other than its network; nil if an older agent reported.
	Host *Host `json:"host,omitempty"`
}

// Conf is the part of a CNI configuration that identifies its network.
type Conf struct {
	File string `json:"file"`
	// Network is the configuration's name, Plugins the types of its plugins in order.
	Network string   `json:"network,omitempty"`
	Plugins []string `json:"plugins,omitempty"`
	// Bridge, MTU, IPAM (the type) and Subnets are those of the first plugin, if it specifies them.
	Bridge  string   `json:"bridge,omitempty"`
	MTU     int      `json:"mtu,omitempty"`
	IPAM    string   `json:"ipam,omitempty"`
	Subnets []string `json:"subnets,omitempty"`
	// DataDir is where its IPAM stores addresses, if specified; IPMasq is whether the plugin itself masquerades each
	// pod.
	DataDir string `json:"dataDir,omitempty"`
	IPMasq  bool   `json:"ipMasq,omitempty"`
	// Problem says why the file cannot be read; a runtime skips such a file.
	Problem string `json:"problem,omitempty"`
}

// Serving is the configuration that the runtime uses for new pods; false if there is none.
func (f *NodeFacts) Serving() (Conf, bool) {
	for _, conf := range f.Confs {
		if conf.Problem == "" && len(conf.Plugins) > 0 {
			return conf, true
		}
	}
	return Conf{}, false
}

// Host is a node's kernel and the software on the node that is not part of Kubernetes.
type Host struct {
	Clock Clock `json:"clock"`
	// Modules maps modules that networks need to "loaded", "built-in", "loadable" or "absent"; modules whose state is
	// unknown are not in it.
	Modules map[string]string `json:"modules,omitempty"`
	// BPF is what the kernel offers to programs such as Cilium's; nil if an older agent reported.
	BPF *BPF `json:"bpf,omitempty"`
	// Managers are daemons that manage links and routes.
	Managers []LinkManager `json:"managers,omitempty"`
	// Filters lists the firewall rules that drop packets to the node itself, such as "the policy of INPUT is DROP
	// (iptables-nft)".
	Filters []string `json:"filters,omitempty"`
	// IPTables counts the rules by the implementation that holds them: "nft" or "legacy".
	IPTables map[string]int `json:"iptables,omitempty"`
	// Forward has an entry for each iptables backend (IPv4) whose chain FORWARD drops by default: the chains (by name)
	// and rules (as in iptables-save) that may accept a new connection there. Nil if an older agent reported.
	Forward map[string][]string `json:"forward,omitempty"`
	// Paths are the path MTUs to some other nodes.
	Paths []PathMTU `json:"paths,omitempty"`
	// Sysctls are the sysctls that networks set, by name, such as net.ipv4.ip_forward; those that the kernel lacks are
	// left out.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Traces are rules and routes of networks in the kernel; nil if an older agent reported.
	Traces *Traces `json:"traces,omitempty"`
	// Load is how busy the kernel's part of the network is; nil if an older agent reported.
	Load *Load `json:"load,omitempty"`
}

// BPF is the part of a kernel that Cilium's data plane needs.
type BPF struct {
	// Syscall is whether the kernel has the system call bpf (CONFIG_BPF_SYSCALL).
	Syscall bool `json:"syscall"`
	// Types is whether it describes its own types (CONFIG_DEBUG_INFO_BTF, /sys/kernel/btf/vmlinux).
	Types bool `json:"types"`
	// Lockdown is its lockdown mode: "none", "integrity" or "confidentiality"; empty if it is unknown, or the kernel
	// has none.
	Lockdown string `json:"lockdown,omitempty"`
}

// Load are counters of the kernel's part of a node's network.
type Load struct {
	// Seconds is how long the sample took.
	Seconds float64 `json:"seconds"`
	// Conntrack is how many connections the kernel tracks, and Most how many it can; 0 if conntrack is not loaded.
	Conntrack int64 `json:"conntrack,omitempty"`
	Most      int64 `json:"most,omitempty"`
	// Counters have names such as conntrack.insert_failed, softnet.dropped, udp.RcvbufErrors, tcp.RetransSegs,
	// link.eth0.rx_dropped and qdisc.eth0.drops: a part, and the kernel's own name. Those of programs of the network
	// have the names that its driver gives them.
	Counters map[string]Counter `json:"counters,omitempty"`
	// Gauges are numbers of programs of the network that are no counters.
	Gauges map[string]float64 `json:"gauges,omitempty"`
	// Unread says for the URL of such a program what was not read, and why.
	Unread map[string]string `json:"unread,omitempty"`
}

// Counter is a counter of the kernel, or of a program of the network.
type Counter struct {
	// Boot counts since the node or the program started, Sample during the sample.
	Boot   int64 `json:"boot"`
	Sample int64 `json:"sample"`
}

// Traces are rules and routes by the network that made them. Lists of routes and rules have at most 100 entries.
type Traces struct {
	// Chains counts iptables chains by the prefix of their names, such as "cali-" and "KUBE-".
	Chains map[string]int `json:"chains,omitempty"`
	// Legacy counts the chains among them that are in iptables-legacy.
	Legacy map[string]int `json:"legacy,omitempty"`
	// NFTables are nft tables with family and name, such as "ip calico".
	NFTables []string `json:"nftables,omitempty"`
	// Blackholes are destinations to which packets are dropped or rejected, in any routing table.
	Blackholes []string `json:"blackholes,omitempty"`
	// Reached are the destinations in the main table that have a gateway, except the default route.
	Reached []string `json:"reached,omitempty"`
	// Rules are the policy routing rules except the kernel's defaults, such as "100: fwmark 0x200 lookup 2004".
	Rules []string `json:"rules,omitempty"`
}

// Clock compares the node's time with the time of the querying machine before and after the query.
type Clock struct {
	At       time.Time `json:"at"`
	Asked    time.Time `json:"asked,omitzero"`
	Answered time.Time `json:"answered,omitzero"`
	// Unsynchronised is true if the kernel reports that no time service synchronises the clock.
	Unsynchronised bool `json:"unsynchronised,omitempty"`
}

// LinkManager is systemd-networkd or NetworkManager.
type LinkManager struct {
	Name string `json:"name"`
	// Foreign is true if it removes routes or rules that other programs made (systemd-networkd).
	Foreign bool `json:"foreign,omitempty"`
	// Unmanaged are the names of links that it does not manage, as shell patterns (NetworkManager).
	Unmanaged []string `json:"unmanaged,omitempty"`
}

// PathMTU is the size of the largest packet that reached another node and came back unfragmented; 0 if none did.
type PathMTU struct {
	To  string `json:"to"`
	MTU int    `json:"mtu"`
	// Link is the MTU of the interface towards that node.
	Link int `json:"link"`
}

// BIRD is a BGP daemon.
type BIRD struct {
	// Down says why the daemon did not answer; empty if it did.
	Down     string       `json:"down,omitempty"`
	Sessions []BGPSession `json:"sessions,omitempty"`
}

// BGPSession is a session in a daemon's configuration.
type BGPSession struct {
	// Peer is the neighbour's address.
	Peer string `json:"peer"`
	// State is the state of BGP's state machine: Established, or an earlier one.
	State string `json:"state"`
}

// Uplink is the interface that has the node's own address, or nil. The receiver may be nil.
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

// MetadataOf is the name in Sources of the objects of a kind in Written.
func MetadataOf(kind schema.GroupKind) string { return "metadata of " + kind.String() }

// Has reports whether a resource was read, and if not, why.
func (s *Snapshot) Has(resource string) (bool, string) {
	for _, source := range s.Sources {
		if source.Resource == resource {
			return source.Missing == "", source.Missing
		}
	}
	return false, notGiven
}

// DaemonSet returns a DaemonSet, or nil.
func (s *Snapshot) DaemonSet(namespace, name string) *appsv1.DaemonSet {
	for i := range s.DaemonSets {
		if s.DaemonSets[i].Namespace == namespace && s.DaemonSets[i].Name == name {
			return &s.DaemonSets[i]
		}
	}
	return nil
}

// ConfigMap returns a ConfigMap, or nil.
func (s *Snapshot) ConfigMap(namespace, name string) *corev1.ConfigMap {
	for i := range s.ConfigMaps {
		if s.ConfigMaps[i].Namespace == namespace && s.ConfigMaps[i].Name == name {
			return &s.ConfigMaps[i]
		}
	}
	return nil
}

// OtherOf returns the objects of a kind in Other, in any version.
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

// Definitions returns the names of the CustomResourceDefinitions that were read, such as
// "ippools.crd.projectcalico.org".
func (s *Snapshot) Definitions() []string {
	var names []string
	for _, definition := range s.OtherOf("apiextensions.k8s.io", "CustomResourceDefinition") {
		names = append(names, definition.GetName())
	}
	return names
}

// Owner names the workload at the top of a pod's owner chain: a Deployment rather than its ReplicaSet,
// or the pod itself ("Pod") if no controller would recreate it.
type Owner struct {
	Kind, Namespace, Name string
}

// Owners follows pods' controller references. It indexes the ReplicaSets once, so reuse it for all pods.
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
