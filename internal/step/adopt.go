package step

import (
	"slices"
	"strings"
	"time"
)

// The verbs that move running pods from one network to another, in either direction. A pod keeps its address,
// its processes and its connections.
const (
	// VerbAdoptable takes AdoptArgs, changes nothing, and answers with an AdoptResult: what VerbAdopt would
	// refuse, pod by pod, and why.
	VerbAdoptable = "adoptable"
	// VerbAdopt takes AdoptArgs and answers with an AdoptResult. It moves the pods of the node that are on From
	// to To, each in a transaction of its own; what a former agent left half done is finished or undone first.
	// Moving back is the same verb with From and To exchanged. It fails when a pod that it was asked to move is
	// not on To at the end, and has its result even then.
	VerbAdopt = "adopt"
	// VerbSettle takes SettleArgs and answers with an AdoptResult. It gives back what the former network still
	// holds for pods that have left it or are gone: their addresses, port mappings and files. After it there is
	// no way back without asking that network for the addresses again.
	VerbSettle = "settle"
)

var adopting = []Verb{
	takes(AdoptArgs.allowed, Verb{Name: VerbAdoptable, Quiet: true}),
	takes(AdoptArgs.allowed, Verb{Name: VerbAdopt}),
	takes(SettleArgs.allowed, Verb{Name: VerbSettle}),
}

// Attachment is how pods of a node hang on one network, as far as moving them goes.
type Attachment struct {
	// Conf names files in the folder of CNI configurations; the first that is there counts. It may be a staged name
	// that no runtime reads.
	Conf []string `json:"conf"`
	// Bridge is the host's bridge that its pods hang on; empty for a routed network.
	Bridge string `json:"bridge,omitempty"`
	// Strict is true when its agent drops what a pod sends unless the host's route to the pod leads through the
	// same interface, as Felix does.
	Strict bool `json:"strict,omitempty"`
	// Ready are chains of iptables or nft without which its agent drops a pod's packets; {link} stands for the
	// pod's interface on the host, as in "cali-tw-{link}". A chain counts when its name ends so. With none, a
	// pod is ready as soon as the plugin has answered.
	Ready []string `json:"ready,omitempty"`
	// Reservations is the folder where the host-local plugin keeps this network's addresses, such as
	// /var/lib/cni/networks/cbr0; empty for another IPAM.
	Reservations string `json:"reservations,omitempty"`
	// Restore are files that its plugin rewrites when a pod comes back, and that must stay as they were before
	// it left; {id} stands for the sandbox, as in "/var/lib/cni/flannel/{id}".
	Restore []string `json:"restore,omitempty"`
	// Claim is where the node's own agent of this network takes it (PUT) that a sandbox has an address, which its
	// plugin then gets; {id} and {address} stand for them. Empty where the plugin takes the address with its arguments.
	Claim string `json:"claim,omitempty"`
	// Asks is true when the plugin asks the node's own agent for everything, so that nothing can be given back without
	// it.
	Asks bool `json:"asks,omitempty"`
}

// Orders are the annotations that begin with Prefix, by which pods ask a network for something of their own. Notes,
// which are named without it, are those in which it says what it did for them.
type Orders struct {
	Network string   `json:"network"`
	Prefix  string   `json:"prefix"`
	Notes   []string `json:"notes,omitempty"`
}

// Has says whether an annotation is one; a nil Ask has no annotations.
func (o *Orders) Has(annotation string) bool {
	if o == nil {
		return false
	}
	name, ok := strings.CutPrefix(annotation, o.Prefix)
	return ok && !slices.Contains(o.Notes, name)
}

// AdoptArgs asks for pods of one node to be moved.
type AdoptArgs struct {
	From Attachment `json:"from"`
	To   Attachment `json:"to"`
	// Pods are the pods to move, as namespace/name; none means all that are on From. Skip are never moved.
	Pods []string `json:"pods,omitempty"`
	Skip []string `json:"skip,omitempty"`
	// Parallel bounds how many are moved at a time, as the node's processors do; 0 means podsSideBySide.
	Parallel int `json:"parallel,omitempty"`
	// Release gives back at once what From holds for a pod that has left it. Without it, From keeps the pod's address
	// reserved until VerbSettle. Set it in a rollback.
	Release bool `json:"release,omitempty"`
}

// podsSideBySide is how many pods are moved at a time where a plan does not say it.
const podsSideBySide = 4

// AtOnce is how many pods are moved at a time.
func (a AdoptArgs) AtOnce() int {
	if a.Parallel < 1 {
		return podsSideBySide
	}
	return a.Parallel
}

func (a AdoptArgs) allowed() error { return first(a.From.allowed(), a.To.allowed()) }

// SettleArgs names the network that lets go.
type SettleArgs struct {
	Network Attachment `json:"network"`
	// Links are patterns of its own interfaces, which are about to go. Their addresses stay on the node as far as
	// connections still have them.
	Links []string `json:"links,omitempty"`
}

func (a SettleArgs) allowed() error { return a.Network.allowed() }

// AdoptState says where a pod ended. Each state but AdoptGone is one working network.
type AdoptState string

// The states.
const (
	// AdoptMoved: the pod is on To. AdoptAlready: it was there before.
	AdoptMoved   AdoptState = "moved"
	AdoptAlready AdoptState = "already"
	// AdoptReady is VerbAdoptable's answer for a pod that can be moved.
	AdoptReady AdoptState = "ready"
	// AdoptRefused: nothing was touched, Reason says why. AdoptUndone: moving failed for Reason, and the pod is
	// on From as it was.
	AdoptRefused AdoptState = "refused"
	AdoptUndone  AdoptState = "undone"
	// AdoptStuck: neither finishing nor undoing succeeded yet for Reason; the pod is on the network that Network
	// names, its record is kept, and every later verb and start of the agent tries again.
	AdoptStuck AdoptState = "stuck"
	// AdoptGone: the pod's sandbox does not exist any more; both networks have let it go.
	AdoptGone AdoptState = "gone"
	// AdoptSettled: the former network holds nothing for the pod any more.
	AdoptSettled AdoptState = "settled"
)

// AdoptResult is the answer of all three verbs.
type AdoptResult struct {
	Node string `json:"node"`
	// Refused says why this node moves no pod at all, such as a kernel in which a trial fails.
	Refused string         `json:"refused,omitempty"`
	Pods    []AdoptOutcome `json:"pods,omitempty"`
}

// AdoptOutcome is what became of one pod.
type AdoptOutcome struct {
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name,omitempty"`
	UID       string     `json:"uid,omitempty"`
	Sandbox   string     `json:"sandbox"`
	Address   string     `json:"address,omitempty"`
	State     AdoptState `json:"state"`
	// Network is the name of the CNI network that the pod is on now.
	Network string `json:"network,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Link is the pod's interface on the host now.
	Link string `json:"link,omitempty"`
	// Marks are the times at which the parts of the transaction ended, in order.
	Marks []AdoptMark `json:"marks,omitempty"`
	// Flip is how long the flip itself took: the moment in which the pod's traffic changed over.
	Flip Duration `json:"flip,omitempty"`
	// Gap is what the pod's own namespace saw around the move; nil when nothing was measured.
	Gap *AdoptGap `json:"gap,omitempty"`
}

// AdoptMark is one part of a transaction and the time at which it ended.
type AdoptMark struct {
	Phase string    `json:"phase"`
	At    time.Time `json:"at"`
}

// AdoptGap is measured by datagrams sent every Interval from within the pod's network namespace to the node and
// back, from before anything is touched until the old interface is gone. Longest is the longest time between two
// answers; Control is the same just before the move. AtFlip is the time between the last answer before the flip and
// the first one after it.
type AdoptGap struct {
	Interval Duration `json:"interval"`
	Sent     int      `json:"sent"`
	Lost     int      `json:"lost"`
	Longest  Duration `json:"longest"`
	AtFlip   Duration `json:"atFlip"`
	Control  Duration `json:"control"`
}
