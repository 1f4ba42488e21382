// Package cni is the contract of network drivers. A driver is knowledge, not hands: it takes a snapshot
// or a manifest and returns data. Only the edges of Theseus touch the world.
package cni

import (
	"encoding/json"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// Hints where running pods cannot be adopted: CreateAgain, and which range the pods then need, such as FreeRange.
const (
	CreateAgain = "let pods be created again instead: "
	FreeRange   = "say --pod-cidr with a free range, such as 10.96.0.0/16"
)

// Driver knows one CNI.
type Driver interface {
	// Name is how users name it, such as "calico".
	Name() string
	// Detect finds this CNI in a snapshot; nil when it is not there at all. A half-installed or damaged
	// one is found too, with Problems.
	Detect(*cluster.Snapshot) *Installation
	// Install adapts the user's own manifests to come up beside another network on no node: the agent's
	// DaemonSet waits for the label of each node, and its CNI configuration is written under a staged name.
	Install(Request) (*Target, error)
	// Residue is what this CNI leaves behind.
	Residue(*Installation) step.Residue
}

// Installation is a CNI as found in a cluster, or as it will be once installed.
type Installation struct {
	CNI     string `json:"cni"`
	Version string `json:"version,omitempty"`
	// Agent is the DaemonSet that runs on nodes, Selector (k=v,k=v) its pods' labels; both are empty where the nodes'
	// own files are all there is of it.
	Agent    step.Ref `json:"agent"`
	Selector string   `json:"selector"`
	// PodCIDRs are the ranges that pods get their addresses from.
	PodCIDRs     []string     `json:"podCIDRs"`
	Capabilities Capabilities `json:"capabilities"`
	// Parts are all the API objects that it consists of, in the order in which they can be deleted.
	Parts []step.Ref `json:"parts,omitempty"`
	// Written are objects that only this network reads and that users wrote, such as policies of its own kinds: without it they
	// mean nothing, and some would go with it.
	Written []step.Ref `json:"written,omitempty"`
	// Untried says what was never run with this network, and so why no plan is made with it; empty where it was.
	Untried string `json:"untried,omitempty"`
	// Data are the folders of a node in which it keeps its state, where they are not the same everywhere.
	Data []string `json:"data,omitempty"`
	// PolicyAgent is a DaemonSet that enforces NetworkPolicy beside it, where there is one (kube-router).
	PolicyAgent *step.Ref `json:"policyAgent,omitempty"`
	// Maker is the object of which an operator makes the agents; nil where a manifest holds them itself.
	Maker *Maker `json:"maker,omitempty"`
	// Problems say what is wrong or half done with it, for people.
	Problems []string `json:"problems,omitempty"`
}

// Maker is an object of which an operator makes a network's workloads; it writes back what others change in those.
type Maker struct {
	Ref step.Ref `json:"ref"`
	// Makes are what comes and goes with it, as far as something waits for it, the agents' DaemonSet among them.
	Makes []step.Ref `json:"makes"`
	// NodeSelector are the fields of Ref that lead to the node selector of the agents.
	NodeSelector []string `json:"nodeSelector"`
	// Ready is what the operator says when all is in order.
	Ready step.Condition `json:"ready"`
}

// HasAgent is false for a network that files on the nodes make, and nothing in the cluster.
func (i *Installation) HasAgent() bool { return i.Agent.Name != "" }

// Versioned is its name with its version, where that is known.
func (i *Installation) Versioned() string {
	if i.Version == "" {
		return i.CNI
	}
	return i.CNI + " " + i.Version
}

// Masquerade is traffic that leaves a node with the node's address: what comes from one of From and goes to none of Except.
// Both are CIDRs of IPv4.
type Masquerade struct {
	From   []string `json:"from"`
	Except []string `json:"except"`
}

// Multicast is what agents that masquerade leave alone besides pods.
const Multicast = "224.0.0.0/4"

// PolicyDialect is which policies a network enforces.
type PolicyDialect string

// The dialects.
const (
	PolicyNone       PolicyDialect = "none"
	PolicyKubernetes PolicyDialect = "kubernetes"
	PolicyCalico     PolicyDialect = "calico"
	PolicyCilium     PolicyDialect = "cilium"
)

// Capabilities are the facts from which the joint phase of any pair is computed.
type Capabilities struct {
	// CIDRSource is where a pod's range comes from: "node" (Node.spec.podCIDR) or "pool".
	CIDRSource string `json:"cidrSource"`
	// KeptFirst and KeptLast are how many of the first and the last addresses of each node's range it gives to no pod, since
	// they are the network's, its bridge's and for broadcasts; where CIDRSource is "node".
	KeptFirst int `json:"keptFirst,omitempty"`
	KeptLast  int `json:"keptLast,omitempty"`
	// Encapsulation is "vxlan", "ipip", "none", ...; VNI and Port (UDP) go with VXLAN. WholePort is set where the VNI of a
	// packet means something else, so that no other VXLAN can have the port.
	Encapsulation string `json:"encapsulation"`
	VNI           int    `json:"vni,omitempty"`
	Port          int    `json:"port,omitempty"`
	WholePort     bool   `json:"wholePort,omitempty"`
	// Untracked is set where the agent exempts Port from connection tracking: a connection that a node masquerades with
	// that port as its own gets no answer.
	Untracked *step.Untracked `json:"untracked,omitempty"`
	// Masquerade is what it masquerades of what its pods send, where that is known and is to the address of the interface by
	// which a packet leaves.
	Masquerade *Masquerade `json:"masquerade,omitempty"`
	// Overhead is what encapsulation takes from the path MTU, in bytes; MTU is the pods' where fixed, else 0.
	// LinkMTU is what the pods' own links say, where that is more than what comes through to other nodes.
	Overhead int `json:"overhead"`
	MTU      int `json:"mtu,omitempty"`
	LinkMTU  int `json:"linkMTU,omitempty"`
	// HostLinks are the interfaces it owns on a node; a trailing * is a prefix.
	HostLinks []string `json:"hostLinks"`
	// RouteTables are the numbers of the kernel's routing tables that it uses, besides the main one.
	RouteTables []int `json:"routeTables,omitempty"`
	// ReplacesKubeProxy is true when its agent does kube-proxy's work.
	ReplacesKubeProxy bool `json:"replacesKubeProxy,omitempty"`
	// ConfName is its file in /etc/cni/net.d.
	ConfName string        `json:"confName"`
	Policy   PolicyDialect `json:"policy"`
	// CanRequestAddress is true when a pod can be given an address of choice (needed to adopt).
	CanRequestAddress bool `json:"canRequestAddress"`
	// SwitchedPerNode is true when the CNI configuration decides per node, which recreate needs: so not where the agent
	// takes other networks' configurations away.
	SwitchedPerNode bool `json:"switchedPerNode"`
	// KeepsSources is true when its pods' packets leave with the pods' own addresses whatever they are sent to: nothing of
	// its own masquerades.
	KeepsSources bool `json:"keepsSources,omitempty"`
	// Flat is true when the pods of all nodes are neighbours of each other: one Ethernet, and one range of addresses of which
	// no node has a part of its own.
	Flat bool `json:"flat,omitempty"`
	// Sessions is true where its agents may carry routes by BGP, in sessions that the cluster's objects make (internal/network/bgp).
	Sessions bool `json:"sessions,omitempty"`
	// Orders are annotations by which pods ask it for something of their own; nil where it reads none.
	Orders *step.Orders `json:"orders,omitempty"`
	// Attachment is how its pods hang on a node, for those who move a running pod from it or to it; nil where that
	// cannot be done, or was never tried. Unattached says why it is nil, where the network knows.
	Attachment *step.Attachment `json:"attachment,omitempty"`
	Unattached string           `json:"unattached,omitempty"`
	// OnRequest says why its pods are adopted only where that is asked for; empty where it is the planner's choice.
	OnRequest string `json:"onRequest,omitempty"`
}

// RoutesBy are the interfaces, as patterns, by which routes to its pods may lead: its own, and where it has no tunnel any
// other, as packets between nodes then go by the nodes' own.
func (c Capabilities) RoutesBy() []string {
	if c.Encapsulation == "none" {
		return []string{"*"}
	}
	return c.HostLinks
}

// Request asks a driver for an installation beside a source network.
type Request struct {
	// Manifest is the user's own manifests, decoded.
	Manifest []unstructured.Unstructured
	// PodCIDR is the range for the target's pods.
	PodCIDR string
	Source  *Installation
	// Takeover asks for a target that takes over the running pods of Source with their addresses; PodCIDR is then
	// the range of Source.
	Takeover *Takeover
	// NodeLabel (a key; value "true") decides which nodes run the agent.
	NodeLabel string
	// Defined are the names of the CustomResourceDefinitions that the cluster has already, as far as they are known.
	Defined []string
}

// Target is a target network as data.
type Target struct {
	Installation Installation
	// Definitions come first (CRDs), Objects next, in the order of application. They hold the joint form:
	// agent gated by node label, configuration staged.
	Definitions []unstructured.Unstructured
	Objects     []unstructured.Unstructured
	// Extras are applied when Definitions serve and one agent runs: such as a disabled pool of the old
	// range, so that its addresses are not masqueraded.
	Extras []unstructured.Unstructured
	// Final turns the joint form into the user's own manifest. It leaves the agent's running pods alone: they
	// are restarted after it, node by node. HandOver follows when all of them run their own form, and what of
	// Objects only the joint form has is discarded then.
	Final    []step.Action
	HandOver []step.Action
	Discard  []step.Ref
	// Made is set where the Installation has a Maker, which comes after all other Objects.
	Made *Made
	// Guard is set when the agent's own form keeps its rules elsewhere than the joint form does: what it denies
	// must be guarded while it restarts.
	Guard *step.Guard
	Conf  step.ConfArgs
	// Adoption is set when a Takeover was asked for.
	Adoption *Adoption
}

// Made are fields of the agents' DaemonSet as an operator has made it, of the joint form and of the user's own: what is written
// into its object counts only when that is seen.
type Made struct {
	Joint, Own json.RawMessage
}

// Takeover is what a target must know of the range that it takes over.
type Takeover struct {
	// NodeBits is the length of the prefix of each node's range, such as 24.
	NodeBits int
	// Reserved are addresses (as CIDRs) that no new pod may get while the source is there: those of its own
	// interfaces, and of pods that stay on it for now.
	Reserved []string
}

// AdoptedValue is the value of LabelAdopted of nodes whose own range is within one of a network's (a CIDR), as in
// "10.244.0.0-16".
func AdoptedValue(cidr string) string { return strings.ReplaceAll(cidr, "/", "-") }

// Adoption is what a target needs beyond an installation to take over running pods with their addresses.
type Adoption struct {
	// Pools are applied when Definitions serve, before the first agent runs, and stay: the source's range, of
	// which a pod gets an address only where it asks for that very one, or on nodes whose LabelAdopted names the range.
	Pools []unstructured.Unstructured
	// Carry lets the target carry the source's ranges between nodes, each by one action, in their order; Drop takes that back.
	Carry, Drop []step.Action
	// Settle opens the ranges on every node, each by one action, when nothing is left of the source.
	Settle []step.Action
}

// Remembered are the files in which a runtime keeps what a network's plugins answered for each pod. It asks the plugins of the network that
// serves when a pod ends, and forgets what these answered: what the network before had answered for the pod stays.
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

// Names are those of its drivers.
func (r Registry) Names() []string {
	var names []string
	for _, driver := range r {
		names = append(names, driver.Name())
	}
	return names
}

// Detect finds every CNI that is in the snapshot.
func (r Registry) Detect(snapshot *cluster.Snapshot) []*Installation {
	var found []*Installation
	for _, driver := range r {
		if installation := driver.Detect(snapshot); installation != nil {
			found = append(found, installation)
		}
	}
	return found
}

// Refusal says why something is not done, such as to install from a manifest that is not understood: nothing has changed yet.
type Refusal struct {
	Message string
	// Hint is what the user can do about it.
	Hint string
	// Anew is set where only adopting pods is refused, and Hint tells whether they can be created again instead.
	Anew bool
	// OfManifest is set where the manifest alone is the reason, or the version that it installs: nothing in the cluster
	// could be mended so that it would do.
	OfManifest bool
}

// OfManifest marks a refusal as one of the manifest alone.
func OfManifest(err error) error {
	if refused, ok := errors.AsType[*Refusal](err); ok {
		refused.OfManifest = true
	}
	return err
}

// Unadoptable refuses to adopt pods, whatever else they are on.
func Unadoptable(message string) error {
	return &Refusal{Message: message, Hint: CreateAgain + FreeRange, Anew: true}
}

// Error is the message alone; the hint is printed on a line of its own.
func (r *Refusal) Error() string { return r.Message }
