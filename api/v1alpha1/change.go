package v1alpha1

// Change is what the user wants done: the document behind the change flags of the command line.
type Change struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"` // "Change"
	Spec       ChangeSpec `json:"spec"`
}

// ChangeSpec says which network comes, how, and within which limits.
type ChangeSpec struct {
	// To is the target CNI by its driver's name, such as "calico".
	To string `json:"to,omitempty"`
	// CNIVersion is the target's version, such as "v3.31.0"; empty means what the manifest installs.
	CNIVersion string `json:"cniVersion,omitempty"`
	// Manifest is the file with the target's own manifests (the user's), adapted by the driver.
	Manifest string `json:"manifest,omitempty"`
	// PodCIDR is the range of the target's pods; it must not overlap the source's.
	PodCIDR string `json:"podCIDR,omitempty"`
	// Strategy is recreate, adopt, surge or mirror; empty lets the planner choose, and so does adopt with a PodCIDR.
	Strategy string `json:"strategy,omitempty"`
	// Dataplane is the data plane to switch the network in place to: "iptables" or "nftables".
	Dataplane string `json:"dataplane,omitempty"`
	// Flag is FLAG=VALUE, a flag of the network in place that is rolled out node by node.
	Flag string `json:"flag,omitempty"`
	// Reflectors picks the nodes that are to reflect BGP's routes, by a selector in Calico's language; "none" asks for a
	// full mesh.
	Reflectors string `json:"reflectors,omitempty"`
	// Pool is the range of a new IPPool of Calico's that pods get addresses of instead of the one in place.
	Pool string `json:"pool,omitempty"`
	// Encapsulation is how packets of Calico's pods go between nodes: none, vxlan or vxlan-cross-subnet.
	Encapsulation string `json:"encapsulation,omitempty"`
	// WavePercents are shares of the nodes that have the flag after each wave, such as [1, 10, 50, 100], instead of
	// Waves. Which node is in is decided by a hash of the flag and the node's name: who is in stays in.
	WavePercents []int `json:"wavePercents,omitempty"`
	// Waves are node counts per wave, such as [1, 5, 0]; 0 means all that remain. Empty is [1, 2, 4, ... ].
	Waves []int `json:"waves,omitempty"`
	// MaxGapMillis is the longest gap, in ms, that a gate lets pass on any path. 0 means the default.
	MaxGapMillis int `json:"maxGapMillis,omitempty"`
	// MaxLost is how many probes a gate lets pass as lost, over all paths since the gate before; 0 is none.
	// A network that loses probes before anything is changed needs some.
	MaxLost int64 `json:"maxLost,omitempty"`
	// BakeSeconds is how long a wave is watched before the next one.
	BakeSeconds int `json:"bakeSeconds,omitempty"`
	// ProbeIntervalMillis is the time, in ms, between two probes on the fastest paths; 0 means 10. Slower
	// paths keep their ratio to it.
	ProbeIntervalMillis int `json:"probeIntervalMillis,omitempty"`
	// Outside are responders outside of the cluster, to which every node and its probe pods send: tcp:HOST:PORT,
	// udp:HOST:PORT or dns:NAME. Empty measures towards other nodes' addresses and the API server.
	Outside []string `json:"outside,omitempty"`
	// OutsideRate is how many probes a second each source sends to each responder outside; 0 means 2.
	OutsideRate int `json:"outsideRate,omitempty"`
	// AgentImage is the image of theseus-agent.
	AgentImage string `json:"agentImage,omitempty"`
	// KubernetesTo is the version that Kubernetes is upgraded to, such as "v1.24.0". This and the four fields
	// below are what-ifs: checks look at what they change on the nodes, and nothing is planned for them.
	KubernetesTo string `json:"kubernetesTo,omitempty"`
	// RemoveLabels are keys that nodes lose, AddLabels labels that they get: all nodes, or those that
	// LabelNodes selects, a label selector as kubectl takes it.
	RemoveLabels []string          `json:"removeLabels,omitempty"`
	AddLabels    map[string]string `json:"addLabels,omitempty"`
	LabelNodes   string            `json:"labelNodes,omitempty"`
	// AddHook and RemoveHook are commands that add and remove one node each, for the strategy surge. They are split into
	// words as a shell does it, quotes and backslashes, and run without one.
	AddHook    string `json:"addHook,omitempty"`
	RemoveHook string `json:"removeHook,omitempty"`
	// HookSeconds bounds one of them, and the time until the node has come or gone; 0 means the default.
	HookSeconds int `json:"hookSeconds,omitempty"`
	// Surge is how many nodes come in each wave; 0 means as many as go.
	Surge int `json:"surge,omitempty"`
	// ReplaceNodes selects nodes that come back new: with the labels that the kubelet and the cloud give
	// them, and without those that somebody put on. With the strategy surge it selects the nodes that are replaced; empty
	// are all but those of the control plane.
	ReplaceNodes string `json:"replaceNodes,omitempty"`
	// ClusterIDs are those that nodes get, by name, which makes them route reflectors of Calico's; an empty one goes.
	ClusterIDs map[string]string `json:"clusterIDs,omitempty"`
	// Peered are ranges of networks that are joined with this cluster's, such as a mirror's, as NAME=RANGE: its own
	// ranges must keep off them.
	Peered []string `json:"peered,omitempty"`
	// Accept lists finding ids that the user has read and accepts, with the reason.
	Accept map[string]string `json:"accept,omitempty"`
	// Accepted are findings that the user accepts up to a day.
	Accepted []AcceptedFinding `json:"accepted,omitempty"`
}

// AcceptedFinding is what the user accepts, and until when.
type AcceptedFinding struct {
	// ID is the id of a check, or a topic.
	ID string `json:"id"`
	// Subject is kind/namespace/name (or kind/name) as findings name it, where * stands for any text
	// without a slash; empty means every subject.
	Subject string `json:"subject,omitempty"`
	Reason  string `json:"reason"`
	// Until is the last day (2026-12-31, in UTC) on which it holds.
	Until string `json:"until"`
}
