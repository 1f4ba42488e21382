package step

import (
	"fmt"
	"net/netip"
)

// VerbConnect takes ConnectArgs and answers with a ConnectResult. From within the network namespaces of running pods of
// the node, it opens the TCP connections of Pairs, one at a time, and closes each at once. It sends no data.
const VerbConnect = "connect"

var sampling = []Verb{takes(ConnectArgs.allowed, Verb{Name: VerbConnect, Quiet: true})}

// MostPairs is how many pairs of pods a plan may have, and so how many connections a task may ask for.
const MostPairs = 50

// ConnectArgs ask for connections.
type ConnectArgs struct {
	Pairs []Pair `json:"pairs"`
}

// Pair is a connection from a pod to a port of another that policies of the user allow, or deny.
type Pair struct {
	// Node is that of From, whose agent connects.
	Node string `json:"node"`
	From Pod    `json:"from"`
	To   Pod    `json:"to"`
	// Port is a TCP port of To.
	Port int `json:"port"`
	// Denied says what the policies say when the plan is made.
	Denied bool `json:"denied,omitempty"`
}

// Pod is one pod, and none that is made later under its name.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Address   string `json:"address"`
}

// String is the pod as namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// String names the connection: "shop/web-1 to shop/db-0, TCP 5432".
func (p Pair) String() string { return fmt.Sprintf("%s to %s, TCP %d", p.From, p.To, p.Port) }

// Verdict is what the policies say: allowed, or denied.
func (p Pair) Verdict() string {
	if p.Denied {
		return "denied"
	}
	return "allowed"
}

// ConnectResult has the outcome of each pair, in the order of the arguments.
type ConnectResult struct {
	Tries []Try `json:"tries"`
}

// Try is what became of a connection. Why says more about it.
type Try struct {
	Outcome Outcome `json:"outcome"`
	Why     string  `json:"why,omitempty"`
}

// String is the outcome in words.
func (t Try) String() string {
	switch {
	case t.Why != "":
		return t.Why
	case t.Outcome == TryOpened:
		return "the connection was opened"
	case t.Outcome == TryRefused:
		return "the other pod refused the connection"
	case t.Outcome == TryRejected:
		return "a firewall or a router rejected the connection"
	}
	return string(t.Outcome)
}

// Outcome is what became of a connection.
type Outcome string

// The outcomes.
const (
	// TryOpened: the connection was established. TryRefused: the answer was a reset, so packets went there and back.
	TryOpened  Outcome = "opened"
	TryRefused Outcome = "refused"
	// TrySilent: no answer came in time. TryRejected: an ICMP message said that packets do not get there.
	TrySilent   Outcome = "silent"
	TryRejected Outcome = "rejected"
	// TryGone: one of the pods does not exist any more, or is ending. TryUntried: no packet was sent.
	TryGone    Outcome = "gone"
	TryUntried Outcome = "untried"
)

// Reached reports whether packets went there and back: policy let them through.
func (t Try) Reached() bool { return t.Outcome == TryOpened || t.Outcome == TryRefused }

// Known reports whether the outcome says anything about the network.
func (t Try) Known() bool {
	return t.Reached() || t.Outcome == TrySilent || t.Outcome == TryRejected
}

// allowed refuses more connections than a plan may have, and those to addresses that no pod has.
func (a ConnectArgs) allowed() error {
	if len(a.Pairs) > MostPairs {
		return fmt.Errorf("%d connections are more than %d", len(a.Pairs), MostPairs)
	}
	for _, p := range a.Pairs {
		for _, pod := range []Pod{p.From, p.To} {
			address, err := netip.ParseAddr(pod.Address)
			if err != nil || !address.IsGlobalUnicast() || address.Zone() != "" || address.Is4In6() {
				return fmt.Errorf("%q is not an address of a pod", pod.Address)
			}
			if pod.Namespace == "" || pod.Name == "" || pod.UID == "" {
				return fmt.Errorf("a pod of %q has no namespace, name or UID", p)
			}
		}
		if p.Port < 1 || p.Port > 65535 {
			return fmt.Errorf("%d is no port", p.Port)
		}
	}
	return nil
}
