package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Protocol is what a path's probe speaks.
type Protocol string

// The protocols of probes.
const (
	UDP    Protocol = "udp"     // one datagram, echoed
	TCP    Protocol = "tcp"     // a message on a kept connection, echoed
	TCPNew Protocol = "tcp-new" // a new connection per probe
	UDPNew Protocol = "udp-new" // a new socket per probe, so that each is masqueraded by itself
	// TCPConnect opens a connection per probe and closes it: the handshake alone counts, for responders that echo nothing.
	TCPConnect Protocol = "tcp-connect"
	// TCPReach is TCPConnect where a refusal counts too: it comes from the host that was asked, whose server does not run.
	TCPReach Protocol = "tcp-reach"
	DNS      Protocol = "dns" // one lookup over UDP
)

// Path is one measured direction: a source that sends, a target that answers, and what is expected.
type Path struct {
	// ID is unique in its plan and stable over time, such as "a-node-1/old>a-node-2/new/udp".
	ID string `json:"id"`
	// Class groups paths for people: "pod-pod", "pod-service", "dns", "host-pod", "pod-host", "node-port", "outside".
	Class string `json:"class"`
	// Source says who sends: Node, and Network "old", "new" or "host".
	Source Endpoint `json:"source"`
	// Target says who answers; Address is host:port as dialled.
	Target   Endpoint `json:"target"`
	Protocol Protocol `json:"protocol"`
	// Size is the payload in bytes.
	Size int `json:"size"`
	// IntervalMillis is the time between two sends.
	IntervalMillis int `json:"intervalMillis"`
	// Denied is true when policy must keep this path shut: an answer is then a leak.
	Denied bool `json:"denied,omitempty"`
	// Query is the name that a DNS probe looks up.
	Query string `json:"query,omitempty"`
	// Second is the address of another responder on the target's node and in its network, host:port; empty where there is none. It is
	// asked only while the target does not answer: what it answers then tells a responder that is gone from a network that loses.
	Second string `json:"second,omitempty"`
}

// Endpoint is one end of a path.
type Endpoint struct {
	Node    string `json:"node,omitempty"`
	Network string `json:"network,omitempty"`
	Address string `json:"address,omitempty"`
}

// ProbePlan is the paths that start on one node and are to be measured now. Its name is the node's.
type ProbePlan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ProbePlanSpec `json:"spec"`
}

// ProbePlanSpec is a node's paths; a generation that grows with every change tells its reports apart.
type ProbePlanSpec struct {
	Generation int64  `json:"generation"`
	Paths      []Path `json:"paths"`
	// ReportMillis is the time between two publications of the node's report, in ms; 0 stands for a second.
	ReportMillis int64 `json:"reportMillis,omitempty"`
}

// ProbeReport is what the sources on one node have seen. Its name is the node's.
type ProbeReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            ProbeReportStatus `json:"status"`
}

// ProbeReportStatus accumulates since the path was first sent; Seq grows by one per publication,
// so that a reader can demand evidence newer than a moment without comparing clocks.
type ProbeReportStatus struct {
	Generation int64        `json:"generation"`
	Seq        int64        `json:"seq"`
	At         time.Time    `json:"at"`
	Paths      []PathResult `json:"paths"`
	// Parts are Theseus' own processes on the node: the agent that reports, and the probers whose results it reads.
	Parts []Part `json:"parts,omitempty"`
	// BGP is what the node's BGP daemon says of itself; nil where Calico never ran one, and while nothing is measured.
	BGP *BGP `json:"bgp"`
}

// Part is one of Theseus' own processes on a node. Another Since is another process: it was restarted.
type Part struct {
	// Name is "agent", or the network of a prober: "old", "new" or "host".
	Name string `json:"name"`
	// Pod is the UID of its pod, and Since when the process began, by the node's clock.
	Pod   string    `json:"pod,omitempty"`
	Since time.Time `json:"since"`
	// At is when a prober that has paths was last heard of, and Gone are the times in which it was not there, oldest first.
	At   time.Time `json:"at,omitzero"`
	Gone []Absence `json:"gone,omitempty"`
}

// Absence is from when a process was last heard of to when the next one began in its place.
type Absence struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// PartAgent is the name of the agent among the parts.
const PartAgent = "agent"

// BGP is what Calico's BGP daemon (BIRD) and the kernel say of a node's routes.
type BGP struct {
	// Down says why the daemon did not answer; empty when it did, which a report says in so many words: reports are merged
	// into the one before, and what is left out would stay.
	Down string `json:"down"`
	// Up are the addresses of the neighbours whose session is established, sorted.
	Up []string `json:"up"`
	// Routes counts the kernel's unicast routes that came from the daemon.
	Routes int `json:"routes"`
}

// PathResult is one path's counts and gaps so far.
type PathResult struct {
	ID string `json:"id"`
	// Sent and Answered count probes that are decided: answered in time, or past their timeout.
	Sent     int64 `json:"sent"`
	Answered int64 `json:"answered"`
	// Since and Last bound the send times of the decided probes.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	// RTTMicros holds round-trip quantiles of answered probes in microseconds: p50, p99, max.
	RTTMicros [3]int64 `json:"rttMicros"`
	// RTTCounts counts answered probes by their round-trip time, in ranges that begin at 0, 64, 96, 128, 192, 256,
	// 384 µs and so on; ranges at the end that hold none are left out.
	RTTCounts []int64 `json:"rttCounts,omitempty"`
	// Gaps are the closed gaps, oldest first; Open is one that has not ended.
	Gaps []Gap `json:"gaps,omitempty"`
	Open *Gap  `json:"open,omitempty"`
	// Dropped counts gaps that no longer fit in Gaps; their probes stay counted in Sent.
	Dropped int64 `json:"dropped,omitempty"`
	// Excused counts those of Answered whose answer was seen past the timeout because the source itself did not
	// run meanwhile. RTTMicros holds what passed.
	Excused int64 `json:"excused,omitempty"`
	// Stalls are intervals in which the source itself did not run (it sent late). They explain long intervals
	// without probes, and excuse no probe that was not answered.
	Stalls []Gap `json:"stalls,omitempty"`
}

// Gap is an interval in which a path did not do what was expected, on the sender's clock:
// from the send time of the first wrong probe to that of the first right one after it.
type Gap struct {
	From time.Time `json:"from"`
	// Millis is its length in milliseconds.
	Millis float64 `json:"millis"`
	// Probes is how many probes went wrong in it: lost, or for a denied path answered.
	Probes int64 `json:"probes"`
	// Cause is what the first wrong probe met, such as "connection refused"; empty when it met nothing but silence.
	Cause string `json:"cause,omitempty"`
	// Second is what the path's second responder did meanwhile.
	Second Second `json:"second,omitzero"`
}

// Second is what a second responder answered in a gap of the first one.
type Second struct {
	// Answered counts its answers, and SilentMillis is the longest time in the gap without one, in milliseconds: from its
	// beginning to the first, between two, or from the last to its end.
	Answered     int64   `json:"answered"`
	SilentMillis float64 `json:"silentMillis"`
}
