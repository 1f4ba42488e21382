// Package cni defines the contract of network drivers. Drivers are pure: they take a snapshot or a manifest and
// return data.
package cni

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// Hints for pods that cannot be adopted: CreateAgain, followed by the range that recreated pods need, such as
// FreeRange.
const (
	CreateAgain = "recreate the pods instead: "
	FreeRange   = "set --pod-cidr to a free range, such as 10.200.0.0/16"
)

// Driver is the knowledge about one CNI.
type Driver interface {
	// Name is the CNI's name for users, such as "calico".
	Name() string
	// Detect finds this CNI in a snapshot; nil if there is no trace of it. It also finds an incomplete or damaged
	// installation, with Problems.
	Detect(*cluster.Snapshot) *Installation
	// Install adapts the user's manifests so that the CNI can be installed next to another network without running on
	// any node: the agent's DaemonSet waits for a label on each node, and its CNI configuration gets a staged name.
	Install(Request) (*Target, error)
	// Residue is what this CNI leaves on nodes and in the API.
	Residue(*Installation) step.Residue
}

// Defect is a known defect of a network, through which packets pass that policy denies.
type Defect struct {
	// Says is what passes, and when. Source is where that was found, and Fix what ends it, with its cost.
	Says   string `json:"says"`
	Source string `json:"source"`
	Fix    string `json:"fix"`
}

// Installation describes a CNI in a cluster, or after its installation.
type Installation struct {
	CNI     string `json:"cni"`
	Version string `json:"version,omitempty"`
	// Agent is the DaemonSet that runs on nodes, Selector (k=v,k=v) its pods' labels; both are empty if the CNI
	// consists only of files on the nodes.
	Agent    step.Ref `json:"agent"`
	Selector string   `json:"selector"`
	// PodCIDRs are the ranges from which pods get their addresses.
	PodCIDRs     []string     `json:"podCIDRs"`
	Capabilities Capabilities `json:"capabilities"`
	// Parts are all its API objects, in the order in which they can be deleted.
	Parts []step.Ref `json:"parts,omitempty"`
	// Defines are CRDs that it creates itself when it is installed. The cluster has none of them before.
	Defines []step.Ref `json:"defines,omitempty"`
	// Written are objects written by users that only this network reads, such as policies of its own kinds. They have
	// no effect without it, and some are deleted with it.
	Written []step.Ref `json:"written,omitempty"`
	// Untried says why Theseus makes no plan with this network: what was never tested with it; empty if it was tested.
	Untried string `json:"untried,omitempty"`
	// Instead is what to do if Theseus changes nothing at all of an Untried network; empty if it does, in place.
	Instead string `json:"instead,omitempty"`
	// Includes are other networks whose agents run as parts of it.
	Includes []string `json:"includes,omitempty"`
	// Cession is set if its agent has to leave a part of its work to the next network's agent, node by node; only the
	// network that it names can be next.
	Cession *Cession `json:"cession,omitempty"`
	// As is the common name of a network that another one is a part of; empty if CNI says it.
	As string `json:"as,omitempty"`
	// NeverRun are settings with which it was never run as the target of a change, such as "with Hubble
	// (enable-hubble)".
	NeverRun []string `json:"neverRun,omitempty"`
	// Defect is a known defect of this version with these settings, through which packets pass that policy denies; nil
	// if none is known.
	Defect *Defect `json:"defect,omitempty"`
	// ConfFolder and PluginFolder are the folders of a node to which its workload writes its CNI configuration and its
	// plugins, as far as a manifest shows them.
	ConfFolder   string `json:"confFolder,omitempty"`
	PluginFolder string `json:"pluginFolder,omitempty"`
	// Data are the folders of a node in which it stores its state, if they depend on the installation.
	Data []string `json:"data,omitempty"`
	// PolicyAgent is a separate DaemonSet that enforces NetworkPolicy for it (kube-router), if there is one.
	PolicyAgent *step.Ref `json:"policyAgent,omitempty"`
	// Maker is the object from which an operator creates the agents; nil if a manifest contains the agents.
	Maker *Maker `json:"maker,omitempty"`
	// Problems describe errors and incomplete changes, for people.
	Problems []string `json:"problems,omitempty"`
	// Readings are where its programs on a node serve counters of their own.
	Readings []step.Reading `json:"-"`
	// Used are the addresses that its own records say are in use, by range; nil if it has none in the cluster.
	Used map[string]int64 `json:"-"`
}

// Cession is how the agent of one network leaves a part of its work to that of another, where both run the same
// program: two of them on one node would write the same rules. What both have on a node stays whichever of them goes.
type Cession struct {
	// To is the network whose agent takes over that part.
	To string `json:"to"`
	// Keep is a DaemonSet that does the rest of the work on nodes with LabelTarget, and Selector the labels of its pods
	// (k=v,k=v); they also have those of the agent's.
	Keep     *unstructured.Unstructured `json:"keep"`
	Selector string                     `json:"selector"`
	// Rights are what the agent may still do when objects of the next network have taken the place of its own. They
	// exist for as long as the agent does.
	Rights []unstructured.Unstructured `json:"rights,omitempty"`
	// Leave and Return are merge patches of the agent's DaemonSet: its pods leave nodes with LabelTarget, and it is as
	// it was.
	Leave  json.RawMessage `json:"leave"`
	Return json.RawMessage `json:"return"`
	// Shared is what both networks leave on nodes.
	Shared step.Residue `json:"shared"`
	// Settings are what the agent's environment sets that the next network's agent reads as well; the value is empty if
	// it is elsewhere.
	Settings map[string]string `json:"-"`
}

// Maker is an object from which an operator creates a network's workloads; the operator reverts changes to these by
// others.
type Maker struct {
	Ref step.Ref `json:"ref"`
	// Makes are the workloads that the operator creates from it and that steps wait for, including the agents'
	// DaemonSet.
	Makes []step.Ref `json:"makes"`
	// NodeSelector is the path in Ref to the node selector of the agents.
	NodeSelector []string `json:"nodeSelector"`
	// Ready is what the operator reports if everything is in order.
	Ready step.Condition `json:"ready"`
}

// Title is the network's name as its own documentation writes it.
func (i *Installation) Title() string {
	if i.As != "" {
		return i.As
	}
	if title := titles[i.CNI]; title != "" {
		return title
	}
	return i.CNI
}

// Runs reports whether it is a network, or includes its agent.
func (i *Installation) Runs(network string) bool {
	return i.CNI == network || slices.Contains(i.Includes, network)
}

// Way is what to do about an Untried network.
func (i *Installation) Way() string {
	if i.Instead != "" {
		return i.Instead
	}
	return Elsewhere
}

// HasAgent is false for a network that consists only of files on the nodes.
func (i *Installation) HasAgent() bool { return i.Agent.Name != "" }

// Versioned is its name with its version, where that is known.
func (i *Installation) Versioned() string {
	if i.Version == "" {
		return i.CNI
	}
	return i.CNI + " " + i.Version
}

// Masquerade describes traffic that leaves a node with the node's address: traffic from one of From to none of Except.
// Both are IPv4 CIDRs.
type Masquerade struct {
	From   []string `json:"from"`
	Except []string `json:"except"`
}

// Multicast is traffic that masquerading agents exempt, in addition to traffic to pods.
const Multicast = "224.0.0.0/4"

// PolicyDialect says which policies a network enforces.
type PolicyDialect string

// The dialects.
const (
	PolicyNone       PolicyDialect = "none"
	PolicyKubernetes PolicyDialect = "kubernetes"
	PolicyCalico     PolicyDialect = "calico"
	PolicyCilium     PolicyDialect = "cilium"
)

// Own reports whether a network reads policies of kinds of its own, besides NetworkPolicy.
func (d PolicyDialect) Own() bool { return d == PolicyCalico || d == PolicyCilium }

// Capabilities are the facts about a network from which the joint phase of any pair is computed.
type Capabilities struct {
	// CIDRSource is where a pod's range comes from: "node" (Node.spec.podCIDR) or "pool".
	CIDRSource string `json:"cidrSource"`
	// KeptFirst and KeptLast are the numbers of addresses at the start and the end of each node's range that pods do
	// not get: the network address, the bridge's address and the broadcast address. They apply if CIDRSource is "node".
	KeptFirst int `json:"keptFirst,omitempty"`
	KeptLast  int `json:"keptLast,omitempty"`
	// Encapsulation is "vxlan", "ipip", "none", ...; VNI and Port (UDP) are for VXLAN. WholePort is set if the network
	// uses the VNI for something else, so that no other VXLAN can use the same port.
	Encapsulation string `json:"encapsulation"`
	VNI           int    `json:"vni,omitempty"`
	Port          int    `json:"port,omitempty"`
	WholePort     bool   `json:"wholePort,omitempty"`
	// Encrypts is true if it encrypts traffic between nodes.
	Encrypts bool `json:"encrypts,omitempty"`
	// Untracked is set if the agent exempts Port from connection tracking: a connection that a node masquerades with
	// that source port gets no answer.
	Untracked *step.Untracked `json:"untracked,omitempty"`
	// Masquerade is the traffic of its pods that it masquerades to the address of the outgoing interface, if that is
	// known.
	Masquerade *Masquerade `json:"masquerade,omitempty"`
	// MasqueradesAll is true if it masquerades whatever leaves a node for anything but its own pods, also what pods of
	// another network send each other.
	MasqueradesAll bool `json:"masqueradesAll,omitempty"`
	// Overhead is the size of the encapsulation headers in bytes. MTU is the pods' MTU if it is fixed, else 0. LinkMTU
	// is the MTU of the pods' own interfaces, if it is larger than the packets that can reach other nodes.
	Overhead int `json:"overhead"`
	MTU      int `json:"mtu,omitempty"`
	LinkMTU  int `json:"linkMTU,omitempty"`
	// Chained are the types of the plugins that follow the first in its configuration, except portmap.
	Chained []string `json:"chained,omitempty"`
	// HostLinks are its interfaces on a node; a trailing * matches a prefix.
	HostLinks []string `json:"hostLinks"`
	// RouteTables are the numbers of the routing tables that it uses, except the main table.
	RouteTables []int `json:"routeTables,omitempty"`
	// ReplacesKubeProxy is true when its agent does kube-proxy's work.
	ReplacesKubeProxy bool `json:"replacesKubeProxy,omitempty"`
	// ConfName is the name of its file in the folder of CNI configurations.
	ConfName string        `json:"confName"`
	Policy   PolicyDialect `json:"policy"`
	// CanRequestAddress is true if a given address can be requested for a pod (needed to adopt).
	CanRequestAddress bool `json:"canRequestAddress"`
	// SwitchedPerNode is true if the CNI configuration selects the network on each node, which recreate needs. It is
	// false if the agent removes other networks' configurations.
	SwitchedPerNode bool `json:"switchedPerNode"`
	// KeepsSources is true if it masquerades nothing: packets leave with the pods' own addresses, whatever their
	// destination.
	KeepsSources bool `json:"keepsSources,omitempty"`
	// Flat is true if all pods are in one layer 2 network with one range of addresses that is not divided by node.
	Flat bool `json:"flat,omitempty"`
	// Sessions is true if its agents may distribute routes by BGP, in sessions configured by the cluster's objects
	// (internal/network/bgp).
	Sessions bool `json:"sessions,omitempty"`
	// PolicyMarks are the bits of packet marks in which its policy agent notes that policy allows a packet; 0 if it
	// uses none, if they are not known, or if they are Calico's default.
	PolicyMarks uint32 `json:"policyMarks,omitempty"`
	// Marks are changes of packet marks that keep its agent and the source's policy agent from misunderstanding each
	// other's marks.
	Marks []step.Mark `json:"marks,omitempty"`
	// NoHostPorts is true if pods get no ports of their nodes (hostPort).
	NoHostPorts bool `json:"noHostPorts,omitempty"`
	// Kernel is the oldest kernel, such as "6.6", from whose nodes Theseus can remove it completely; empty for any.
	Kernel string `json:"kernel,omitempty"`
	// Orders are annotations with which pods request individual settings; nil if it reads none.
	Orders *step.Orders `json:"orders,omitempty"`
	// Attachment describes how its pods are attached to a node, for moving a running pod from or to this network; nil
	// if that is impossible or untested. Unattached says why it is nil, if there is a specific reason.
	Attachment *step.Attachment `json:"attachment,omitempty"`
	Unattached string           `json:"unattached,omitempty"`
	// OnRequest says why its pods are adopted only if the user requests it; empty if the planner may choose it.
	OnRequest string `json:"onRequest,omitempty"`
}

// RoutesBy returns patterns of the interfaces that routes to its pods may use: its own, and, if it has no tunnel, any
// other, because traffic between nodes then uses the nodes' interfaces.
func (c Capabilities) RoutesBy() []string {
	if c.Encapsulation == "none" {
		return []string{"*"}
	}
	return c.HostLinks
}

// Request asks a driver for an installation next to a source network.
type Request struct {
	// Manifest is the user's decoded manifests.
	Manifest []unstructured.Unstructured
	// PodCIDR is the range for the target's pods.
	PodCIDR string
	Source  *Installation
	// Takeover requests a target that takes over the running pods of Source with their addresses; PodCIDR is then the
	// range of Source.
	Takeover *Takeover
	// NodeLabel (a key; value "true") selects the nodes that run the agent.
	NodeLabel string
	// Defined are the names of the CustomResourceDefinitions that the cluster already has, as far as known.
	Defined []string
}

// Target is a target network as data.
type Target struct {
	Installation Installation
	// Definitions (CRDs) are applied first, then Objects, in order. They have the joint form: the agent waits for the
	// node label, and its configuration is staged.
	Definitions []unstructured.Unstructured
	Objects     []unstructured.Unstructured
	// Extras are applied when the CRDs are served and one agent runs: for example a disabled pool with the old range,
	// so that traffic to its addresses is not masqueraded.
	Extras []unstructured.Unstructured
	// Policies are the manifest's policies of kinds that the target itself defines. They are applied when all its
	// agents run, before it has a pod, and stay.
	Policies []unstructured.Unstructured
	// Translation is the command that writes the source's policies of its own kinds as the target's; empty if there is
	// none.
	Translation string
	// Pools are applied when its agents run on every node, and stay. They may be there already.
	Pools []unstructured.Unstructured
	// Final turns the joint form into the user's own manifest. It does not restart the agent's pods: they are restarted
	// after it, node by node. HandOver follows when all of them run their own form; then objects that only the joint
	// form has are deleted.
	Final    []step.Action
	HandOver []step.Action
	Discard  []step.Ref
	// Kept are the settings of the user's own form that are not those of the manifest, as YAML of the chart's values.
	Kept []string
	// Made is set if the Installation has a Maker, which is the last of Objects.
	Made *Made
	// Guard is set if the agent's own form stores its rules in another place than the joint form: then denied traffic
	// must be blocked separately while the agent restarts.
	Guard *step.Guard
	Conf  step.ConfArgs
	// Adoption is set if a Takeover was requested.
	Adoption *Adoption
}

// Made are fields of the agents' DaemonSet that show that the operator has applied the joint form or the user's own
// form: a change of the operator's object has taken effect only when they are observed.
type Made struct {
	Joint, Own json.RawMessage
}

// Takeover has the facts about the range that a target takes over.
type Takeover struct {
	// NodeBits is the prefix length of each node's range, such as 24.
	NodeBits int
	// Reserved are addresses (as CIDRs) that no new pod may get while the source is installed: those of its own
	// interfaces, and of pods that stay on it for now.
	Reserved []string
}

// AdoptedValue is the value of LabelAdopted on nodes whose own range is within a range of a network (a CIDR), such as
// "10.244.0.0-16".
func AdoptedValue(cidr string) string { return strings.ReplaceAll(cidr, "/", "-") }

// Adoption has the actions that a target needs, in addition to its installation, to take over running pods with their
// addresses.
type Adoption struct {
	// Pools are applied when the CRDs are served, before the first agent runs, and stay: the source's range, from which
	// a pod gets an address only if it requests that address, or on nodes whose LabelAdopted names the range.
	Pools []unstructured.Unstructured
	// Carry makes the target route the source's ranges between nodes, with one action per range, in order; Drop reverts
	// it.
	Carry, Drop []step.Action
	// Settle allows the ranges on every node, with one action per range, when the source is removed completely.
	Settle []step.Action
}

// Remembered is the pattern of the files in which a runtime caches a network's CNI results for each pod. When a pod
// ends, the runtime calls the plugins of the current network and deletes their cached result; the previous network's
// result for the pod stays.
func Remembered(network string) string { return "/var/lib/cni/results/" + network + "-*" }

// Registry is the set of drivers, in order.
type Registry []Driver

// Get finds a driver by name.
func (r Registry) Get(name string) (Driver, bool) {
	for _, driver := range r {
		if driver.Name() == name {
			return driver, true
		}
	}
	return nil, false
}

// Names returns the drivers' names.
func (r Registry) Names() []string {
	var names []string
	for _, driver := range r {
		names = append(names, driver.Name())
	}
	return names
}

// Detect finds all CNIs in the snapshot.
func (r Registry) Detect(snapshot *cluster.Snapshot) []*Installation {
	var found []*Installation
	for _, driver := range r {
		if installation := driver.Detect(snapshot); installation != nil {
			found = append(found, installation)
		}
	}
	return found
}

// Refusal says why Theseus refuses something, such as a manifest that it does not understand, before anything was
// changed.
type Refusal struct {
	Message string
	// Hint says what the user can do.
	Hint string
	// Recreate is set if only adopting pods is refused; Hint then says whether they can be recreated instead.
	Recreate bool
	// OfManifest is set if the reason is only the manifest, or the version that it installs: no change in the cluster
	// would help.
	OfManifest bool
}

// OfManifest marks a refusal as caused only by the manifest.
func OfManifest(err error) error {
	if refused, ok := errors.AsType[*Refusal](err); ok {
		refused.OfManifest = true
	}
	return err
}

// Unadoptable makes a refusal to adopt pods.
func Unadoptable(message string) error {
	return &Refusal{Message: message, Hint: CreateAgain + FreeRange, Recreate: true}
}

// Error returns only the message; the hint is printed on a separate line.
func (r *Refusal) Error() string { return r.Message }

// EnvValue is the value of a variable in the first of some containers that has it; empty if none has.
func EnvValue(name string, containers ...corev1.Container) string {
	for _, container := range containers {
		for _, variable := range container.Env {
			if variable.Name == name {
				return variable.Value
			}
		}
	}
	return ""
}

// Prefixes parses ranges, and leaves out what is none.
func Prefixes(cidrs []string) []netip.Prefix {
	var all []netip.Prefix
	for _, cidr := range cidrs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			all = append(all, prefix)
		}
	}
	return all
}
