// Package adoption is the transaction that moves one running pod from one network to another: its record, the
// order of its parts, and what is done about one that was interrupted. It acts through Hands and is pure.
//
// Until the flip everything is prepared next to the pod's traffic, and taking it back touches no packet. The flip
// is recorded once it is done; from then on the transaction only goes forward. The old interface is kept until no
// neighbour sends to it any more.
package adoption

import (
	"encoding/json"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// Phase is how far a transaction has come. It is written to disk before what it names is begun, but for Flipped
// and Moved, which are written when it is done.
type Phase string

// The phases, in their order.
const (
	Pinning Phase = "pinning" // traffic is held on the old interface, which gets another name
	Adding  Phase = "adding"  // the target's plugin works
	Waiting Phase = "waiting" // until the target lets the pod's packets through
	Flip    Phase = "flip"    // traffic changes over
	Flipped Phase = "flipped" // it has; who still sends to the old interface is told, then it is removed
	Moved   Phase = "moved"   // the pod is on the target alone
)

// Record is what a transaction knows. It is kept on the node's disk.
type Record struct {
	Sandbox   string `json:"sandbox"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	Address   string `json:"address"`
	// NetNS is the path of the pod's network namespace on the node, and Inode its identity.
	NetNS string `json:"netns"`
	Inode uint64 `json:"inode"`
	// Interface is the pod's, such as eth0.
	Interface string `json:"interface"`
	From      Side   `json:"from"`
	To        Side   `json:"to"`
	// CNIArgs and Capabilities are what the runtime gave to the plugins.
	CNIArgs      [][2]string    `json:"cniArgs,omitempty"`
	Capabilities map[string]any `json:"capabilities,omitempty"`

	Phase Phase `json:"phase"`
	// Old and New are the pod's two interfaces; New is known from Waiting on.
	Old Link `json:"old"`
	New Link `json:"new,omitzero"`
	// Routes are those of the pod's main table before anything was touched.
	Routes []Route `json:"routes,omitempty"`
	// HostSource is the address that the host's own packets to the pod had then.
	HostSource string `json:"hostSource,omitempty"`
	// Parameters are kernel parameters of the pod's namespace then, by their path below net/ipv4/conf.
	Parameters map[string]string `json:"parameters,omitempty"`
	// Files are contents that the target's plugin must leave as they were; null means that there was no file.
	Files map[string]*string `json:"files,omitempty"`
	// Own is true when the target's address was still reserved for this sandbox, as it is on the way back.
	Own bool `json:"own,omitempty"`
	// Release is what AdoptArgs say.
	Release bool `json:"release,omitempty"`
	// Before is the record of the move that this one takes back; it counts again when this one is undone.
	Before *Record `json:"before,omitempty"`

	Marks []step.AdoptMark `json:"marks,omitempty"`
	// Took is how long the flip was.
	Took time.Duration  `json:"took,omitempty"`
	Gap  *step.AdoptGap `json:"gap,omitempty"`
}

// Side is one of the two networks of a transaction.
type Side struct {
	step.Attachment
	// Network is the name of the CNI list, and List the list itself.
	Network string          `json:"network"`
	List    json.RawMessage `json:"list"`
}

// Link is an interface of a pod with its other end on the host.
type Link struct {
	Index int    `json:"index"`
	MAC   string `json:"mac"`
	MTU   int    `json:"mtu"`
	// Host and HostIndex are the other end. Through is the index of what the host sends through to reach the
	// pod: the bridge, or the other end itself.
	Host      string `json:"host"`
	HostIndex int    `json:"hostIndex"`
	Through   int    `json:"through"`
}

// Route is a route of IPv4 as it is saved: To is a CIDR (0.0.0.0/0 for the default), addresses may be empty.
type Route struct {
	To       string `json:"to"`
	Via      string `json:"via,omitempty"`
	Source   string `json:"source,omitempty"`
	Link     int    `json:"link"`
	Scope    int    `json:"scope,omitempty"`
	Protocol int    `json:"protocol,omitempty"`
	Metric   int    `json:"metric,omitempty"`
	MTU      int    `json:"mtu,omitempty"`
	Flags    int    `json:"flags,omitempty"`
}

// Outcome is a record as the result of a verb shows it.
func (r *Record) Outcome(state step.AdoptState) step.AdoptOutcome {
	out := step.AdoptOutcome{
		Namespace: r.Namespace, Name: r.Name, UID: r.UID, Sandbox: r.Sandbox, Address: r.Address, State: state,
		Network: r.From.Network, Link: r.Old.Host, Marks: r.Marks, Flip: step.Duration(r.Took), Gap: r.Gap,
	}
	if r.Phase == Flipped || r.Phase == Moved {
		out.Network, out.Link = r.To.Network, r.New.Host
	}
	if state == step.AdoptGone {
		out.Network, out.Link = "", ""
	}
	return out
}
