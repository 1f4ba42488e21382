package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Change is a change that a user requests: a document for the command line (--change), or an object in the cluster,
// without a namespace, for which the controller makes a plan. The fields of its spec correspond to the change flags of
// the command line.
type Change struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ChangeSpec   `json:"spec"`
	Status            ChangeStatus `json:"status,omitzero"`
}

// ChangeSpec specifies the change: the new network or setting, how to make the change, and its limits.
type ChangeSpec struct {
	// To is the target network, by the name of its driver, such as "calico".
	To string `json:"to,omitempty"`
	// CNIVersion is the target's version, such as "v3.31.0"; empty means the version that the manifest installs.
	CNIVersion string `json:"cniVersion,omitempty"`
	// Manifest is a file with the target's manifests, provided by the user. The driver adapts them.
	Manifest string `json:"manifest,omitempty"`
	// ManifestFrom has the target's manifests in the cluster or in the Change itself, instead of in a file.
	ManifestFrom *ManifestSource `json:"manifestFrom,omitempty"`
	// PodCIDR is the pod CIDR of the target; it must not overlap the source's.
	PodCIDR string `json:"podCIDR,omitempty"`
	// Strategy is recreate, adopt, surge or mirror. If it is empty, or adopt with a PodCIDR, the planner chooses.
	Strategy string `json:"strategy,omitempty"`
	// Dataplane is the data plane to which the installed network is switched: "iptables" or "nftables".
	Dataplane string `json:"dataplane,omitempty"`
	// Flag is FLAG=VALUE, a setting of the installed network that is rolled out node by node.
	Flag string `json:"flag,omitempty"`
	// Reflectors is a Calico selector of the nodes that become BGP route reflectors; "none" means a full mesh.
	Reflectors string `json:"reflectors,omitempty"`
	// Pool is the CIDR of a new Calico IPPool, from which pods get addresses instead of the current pool.
	Pool string `json:"pool,omitempty"`
	// Encapsulation is Calico's encapsulation between nodes: none, vxlan or vxlan-cross-subnet.
	Encapsulation string `json:"encapsulation,omitempty"`
	// WavePercents are the percentages of nodes that have the flag after each wave, such as [1, 10, 50, 100]. They
	// replace Waves. A hash of the flag and the node's name selects the nodes, so a selected node stays selected in
	// later waves.
	WavePercents []int `json:"wavePercents,omitempty"`
	// Waves are the numbers of nodes per wave, such as [1, 5, 0]; 0 means all remaining nodes. Empty means [1, 2, 4,
	// ... ].
	Waves []int `json:"waves,omitempty"`
	// MaxParallel is the number of nodes that are changed at the same time, from 1 to 64. 0 means a twentieth of the
	// cluster's nodes, at least 4 and at most 64.
	MaxParallel int `json:"maxParallel,omitempty"`
	// DomainLabel is the label that names a node's failure domain; empty means topology.kubernetes.io/zone. Nodes of
	// different domains are never changed at the same time. Without Waves, each wave has nodes of one domain only.
	DomainLabel string `json:"domainLabel,omitempty"`
	// MaxGapMillis is the longest gap, in ms, that a gate tolerates on any path. 0 means the default.
	MaxGapMillis int `json:"maxGapMillis,omitempty"`
	// MaxLost is the number of lost probes that a gate tolerates, over all paths since the previous gate; 0 means none.
	// A network that loses probes even without a change needs a value above 0.
	MaxLost int64 `json:"maxLost,omitempty"`
	// BakeSeconds is how long the gate after a wave watches the paths before the next wave.
	BakeSeconds int `json:"bakeSeconds,omitempty"`
	// ProbeIntervalMillis is the time, in ms, between two probes on the paths with the highest rate; 0 means 10. The
	// intervals of other paths scale with it.
	ProbeIntervalMillis int `json:"probeIntervalMillis,omitempty"`
	// Outside are responders outside of the cluster, which every node and its probe pods probe: tcp:HOST:PORT,
	// udp:HOST:PORT or dns:NAME. If it is empty, they probe other nodes' addresses and the API server.
	Outside []string `json:"outside,omitempty"`
	// OutsideRate is the number of probes per second from each source to each responder in Outside; 0 means 2.
	OutsideRate int `json:"outsideRate,omitempty"`
	// SLO are signals of the user that every gate asks, too. They are, as text, a query of a Prometheus with a
	// comparison ("http://prometheus:9090 sum(rate(errors[1m])) < 0.01"), an address that must answer with an HTTP
	// status of 200 to 299, or "command: PROGRAM ARG...", which the controller does not run.
	SLO []string `json:"slo,omitempty"`
	// AgentImage is the image of theseus-agent.
	AgentImage string `json:"agentImage,omitempty"`
	// KubernetesTo is the version to which Kubernetes will be upgraded, such as "v1.24.0". KubernetesTo, RemoveLabels,
	// AddLabels, LabelNodes, ClusterIDs and, without the strategy surge, ReplaceNodes are what-ifs: checks consider
	// their effect on the nodes, but plans contain no steps for them.
	KubernetesTo string `json:"kubernetesTo,omitempty"`
	// RemoveLabels are the keys of labels that nodes lose, AddLabels the labels that they get. LabelNodes, a label
	// selector in kubectl's syntax, restricts both to some nodes.
	RemoveLabels []string          `json:"removeLabels,omitempty"`
	AddLabels    map[string]string `json:"addLabels,omitempty"`
	LabelNodes   string            `json:"labelNodes,omitempty"`
	// AddHook and RemoveHook are commands that add and remove one node, for the strategy surge. They are split into
	// words like in a shell, with quotes and backslashes, but run without a shell.
	AddHook    string `json:"addHook,omitempty"`
	RemoveHook string `json:"removeHook,omitempty"`
	// HookSeconds is the timeout of a hook, and of the wait until the node has joined or left; 0 means the default.
	HookSeconds int `json:"hookSeconds,omitempty"`
	// Surge is the number of nodes that are added in each wave; 0 means as many as are removed.
	Surge int `json:"surge,omitempty"`
	// ReplaceNodes selects nodes that are replaced by new ones: those have the labels that the kubelet and the cloud
	// provider set, but not labels that were added by hand. With the strategy surge, it selects the nodes to replace;
	// empty means all except control-plane nodes.
	ReplaceNodes string `json:"replaceNodes,omitempty"`
	// ClusterIDs are Calico route reflector cluster IDs by node name; an empty ID removes the node's cluster ID.
	ClusterIDs map[string]string `json:"clusterIDs,omitempty"`
	// Peered are ranges of networks that are connected with this cluster's, such as a mirror's, as NAME=RANGE. The
	// cluster's own ranges must not overlap them.
	Peered []string `json:"peered,omitempty"`
	// Accept maps IDs of findings that the user accepts to the reason.
	Accept map[string]string `json:"accept,omitempty"`
	// Accepted are findings that the user accepts until a given day.
	Accepted []AcceptedFinding `json:"accepted,omitempty"`
	// Windows are when the controller may begin steps; empty means always. It copies them into every Migration that it
	// makes for the Change. A rollback needs no window.
	Windows []Window `json:"windows,omitempty"`
}

// MaxSLO is how many signals a change may have, and MaxSLOLength how many bytes each.
const (
	MaxSLO       = 20
	MaxSLOLength = 2048
)

// ManifestSource is where the target's manifests are. One of ConfigMap and Inline is set.
type ManifestSource struct {
	// ConfigMap is the name of a ConfigMap in the namespace of the controller. Only the controller reads it.
	ConfigMap string `json:"configMap,omitempty"`
	// Key is the key of the ConfigMap that has the manifests; empty means its only key.
	Key string `json:"key,omitempty"`
	// Inline is the manifests themselves, as YAML.
	Inline string `json:"inline,omitempty"`
}

// AcceptedFinding is a finding that the user accepts for a limited time.
type AcceptedFinding struct {
	// ID is the ID of a check, or a topic.
	ID string `json:"id"`
	// Subject is kind/namespace/name (or kind/name) as in findings. * matches any text without a slash. Empty matches
	// every subject.
	Subject string `json:"subject,omitempty"`
	Reason  string `json:"reason"`
	// Until is the last day (2026-12-31, in UTC) on which the finding is accepted.
	Until string `json:"until"`
}

// ChangeStatus is what the controller has made of a Change.
type ChangeStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions are about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Migration is the name of the Migration that has the plan; empty before there is one.
	Migration string `json:"migration,omitempty"`
	// PlanHash is the hash of the plan, which approvals name.
	PlanHash string `json:"planHash,omitempty"`
	// ManifestDigest is the SHA-256, in hex, of the manifests that the plan was made from.
	ManifestDigest string `json:"manifestDigest,omitempty"`
	// Phase is that of the Migration; empty before it begins.
	Phase string `json:"phase,omitempty"`
	// Approval is that of the Migration.
	Approval *ApprovalCount `json:"approval,omitempty"`
	// Summary says what the plan does, one item a line.
	Summary []string `json:"summary,omitempty"`
	// Next says what a person can do now, one item a line.
	Next []string `json:"next,omitempty"`
	// Findings are those of the checks, the most severe first, at most 50.
	Findings []ChangeFinding `json:"findings,omitempty"`
	// Windows are those that a user gave to a Migration that was withdrawn. The next one gets them, and they are absent
	// again.
	Windows *KeptWindows `json:"windows,omitempty"`
	// Conditions are ConditionPlanned, and those of the Migration.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// KeptWindows are the windows of a Migration that was withdrawn.
type KeptWindows struct {
	// Given are those of the user, maybe none.
	Given []Window `json:"given,omitempty"`
	// Of are those of the Change at that time. If the Change's are edited, Given does not count any more.
	Of []Window `json:"of,omitempty"`
}

// ChangeFinding is a finding of the checks.
type ChangeFinding struct {
	// Severity is block, warn or info.
	Severity string `json:"severity"`
	// ID is the ID of the check, and Subject the object, as kind/namespace/name or kind/name.
	ID      string `json:"id"`
	Subject string `json:"subject,omitempty"`
	Message string `json:"message"`
	// Fix is the smallest action that resolves it.
	Fix string `json:"fix,omitempty"`
	// Accepted is why the user accepts it.
	Accepted string `json:"accepted,omitempty"`
}

// ConditionPlanned is the condition of a Change that says whether it has a plan. A Change also has the conditions of
// its Migration.
const ConditionPlanned = "Planned"

// The reasons of ConditionPlanned, besides ReasonWaiting, ReasonBlocked, ReasonNotSupported, ReasonTooLarge and
// ReasonRetrying.
const (
	// Planned is true because the spec has a plan, or because its Migration began before the spec was edited.
	ReasonPlanned = "Planned"
	ReasonEdited  = "EditedTooLate"
	// Planned is false because no plan can be made, or because one is being made for the first time or in place of
	// another.
	ReasonPlanning        = "Planning"
	ReasonStale           = "Stale"           // the cluster has changed since the plan was made
	ReasonInvalid         = "Invalid"         // the spec cannot be meant
	ReasonRefused         = "Refused"         // this change cannot be made on this cluster
	ReasonManifestMissing = "ManifestMissing" // the ConfigMap or its key does not exist
	ReasonManifestInvalid = "ManifestInvalid" // the manifests cannot be read, or have a secret
	ReasonTooMany         = "TooMany"         // the cluster has more Changes than the controller plans
)

// AnnotationChange is on a Migration that was made for a Change. Its value is a ChangeOrigin as JSON.
const AnnotationChange = "theseus.dev/change"

// ChangeOrigin names the Change, and the version of it, that a Migration has the plan of.
type ChangeOrigin struct {
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// ManifestDigest is the SHA-256, in hex, of the manifests.
	ManifestDigest string `json:"manifestDigest,omitempty"`
	// Windows is true if the Migration was made with the windows of the Change.
	Windows bool `json:"windows,omitempty"`
	// Given are these windows; nil in Migrations of earlier releases.
	Given []Window `json:"given,omitempty"`
}
