package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Protocol is the protocol of a path's probes.
type Protocol string

// The protocols of probes.
const (
	UDP    Protocol = "udp"     // one datagram, echoed
	TCP    Protocol = "tcp"     // a message on a long-lived connection, echoed
	TCPNew Protocol = "tcp-new" // a new connection per probe
	UDPNew Protocol = "udp-new" // a new socket per probe, so that each probe is masqueraded separately
	// TCPConnect opens and closes a connection per probe: only the handshake counts. It is for responders without echo.
	TCPConnect Protocol = "tcp-connect"
	// TCPReach is TCPConnect, but a refused connection also counts as an answer: it proves that the host was reached.
	TCPReach Protocol = "tcp-reach"
	DNS      Protocol = "dns" // one lookup over UDP
)

// Path is one measured direction: a source that sends probes, a target that answers, and the expected result.
type Path struct {
	// ID is unique in its plan and stable over time, such as "a-node-1/old>a-node-2/new/udp".
	ID string `json:"id"`
	// Class groups paths for people: "pod-pod", "pod-service", "dns", "host-pod", "pod-host", "node-port", "outside".
	Class string `json:"class"`
	// Source is the sender: Node, and Network "old", "new" or "host".
	Source Endpoint `json:"source"`
	// Target is the responder; Address is the host:port to dial.
	Target   Endpoint `json:"target"`
	Protocol Protocol `json:"protocol"`
	// Size is the payload in bytes.
	Size int `json:"size"`
	// IntervalMillis is the time between two probes, in ms.
	IntervalMillis int `json:"intervalMillis"`
	// Denied is true if policy must block this path: an answer is then a leak.
	Denied bool `json:"denied,omitempty"`
	// Query is the name that a DNS probe looks up.
	Query string `json:"query,omitempty"`
	// Second is the address (host:port) of a second responder on the target's node and network; empty if there is none.
	// It is probed only while the target does not answer. Its answers show whether the responder or the network has
	// failed.
	Second string `json:"second,omitempty"`
}

// Endpoint is one end of a path.
type Endpoint struct {
	Node    string `json:"node,omitempty"`
	Network string `json:"network,omitempty"`
	Address string `json:"address,omitempty"`
}

// ProbePlan lists the paths to measure that start on one node. Its name is the node's name.
type ProbePlan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ProbePlanSpec `json:"spec"`
}

// ProbePlanSpec is a node's paths. The generation grows with every change, so a report can be matched to its plan.
type ProbePlanSpec struct {
	Generation int64  `json:"generation"`
	Paths      []Path `json:"paths"`
	// ReportMillis is the time between two publications of the node's report, in ms; 0 means 1000.
	ReportMillis int64 `json:"reportMillis,omitempty"`
	// FullMillis is the longest time between two publications of the report in full, in ms. Between them, while nothing
	// is lost, leaks, stalls or restarts, the agent publishes short reports (AnnotationShort). 0: each is in full.
	FullMillis int64 `json:"fullMillis,omitempty"`
	// Asked is set when a gate waits for reports.
	Asked *Asked `json:"asked,omitempty"`
}

// AnnotationShort is an annotation of a ProbeReport: what the agent has counted since it last wrote the status.
// Unless it belongs to that status, the report is no evidence. See internal/proof/loss.Shorten.
const AnnotationShort = "theseus.dev/short"

// AnnotationAnswer is an annotation of a ProbeReport: which questions of gates (Asked) it answers. See
// internal/proof/loss.Answers.
const AnnotationAnswer = "theseus.dev/answer"

// Asked is a question of a gate, which has a number of its own. An agent that sees a new number answers with one report
// once it has measured for MeasureMillis more, at a time that it chooses within ReportMillis; if its next regular
// report comes no later, with that.
//
// If MeasureMillis is 0, and if the agent does not know of it, it reports every ReportMillis for ForMillis.
type Asked struct {
	Number        int64 `json:"number"`
	ReportMillis  int64 `json:"reportMillis"`
	ForMillis     int64 `json:"forMillis"`
	MeasureMillis int64 `json:"measureMillis,omitempty"`
	// Of has the nodes whom the question is for; all if it is empty. See internal/proof/loss.Whom.
	Of string `json:"of,omitempty"`
}

// PlanOfAll is the name of the ProbePlan that all agents follow besides that of their node. It has no paths: gates set
// Asked there, with one write.
const PlanOfAll = "theseus.dev.all-nodes"

// ProbeReport has the results of the paths that start on one node. Its name is the node's name.
type ProbeReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            ProbeReportStatus `json:"status"`
}

// ProbeReportStatus accumulates results since each path was first probed. Seq grows by one per publication, so that a
// reader can require newer evidence without comparing clocks.
type ProbeReportStatus struct {
	Generation int64        `json:"generation"`
	Seq        int64        `json:"seq"`
	At         time.Time    `json:"at"`
	Paths      []PathResult `json:"paths"`
	// Packed has the results of the paths on which no probe was lost, in a short form; the others are in Paths. It
	// counts only in the report whose Seq it contains. See internal/proof/loss.Pack.
	Packed string `json:"packed,omitempty"`
	// Parts are Theseus' own processes on the node: the agent that reports, and the probers whose results it reads.
	Parts []Part `json:"parts,omitempty"`
	// BGP is the state of the node's BGP daemon; nil if Calico never ran one, and while nothing is measured.
	BGP *BGP `json:"bgp"`
}

// Part is one of Theseus' own processes on a node. If Since changes, the process was restarted.
type Part struct {
	// Name is "agent", or the network of a prober: "old", "new" or "host".
	Name string `json:"name"`
	// Pod is the UID of its pod, and Since the start time of the process, by the node's clock.
	Pod   string    `json:"pod,omitempty"`
	Since time.Time `json:"since"`
	// At is the last sign of life of a prober that has paths, and Gone are the times in which it did not run, oldest
	// first.
	At   time.Time `json:"at,omitzero"`
	Gone []Absence `json:"gone,omitempty"`
}

// Absence is the time from the last sign of life of a process to the start of its successor.
type Absence struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// PartAgent is the name of the agent's part.
const PartAgent = "agent"

// BGP is the state of a node's routes according to Calico's BGP daemon (BIRD) and the kernel.
type BGP struct {
	// Down says why the daemon did not answer; empty if it did. It is written even if it is empty, because reports are
	// merged into the previous one, and a field that is left out would keep its old value.
	Down string `json:"down"`
	// Up are the addresses of the neighbours with an established session, sorted.
	Up []string `json:"up"`
	// Routes is the number of the kernel's unicast routes that the daemon programmed.
	Routes int `json:"routes"`
}

// PathResult has the counts and gaps of one path so far.
type PathResult struct {
	ID string `json:"id"`
	// Sent and Answered count decided probes: those that were answered, or whose timeout has passed.
	Sent     int64 `json:"sent"`
	Answered int64 `json:"answered"`
	// Since and Last are the send times of the first and the last decided probe.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	// RTTMicros holds round-trip quantiles of answered probes in microseconds: p50, p99, max.
	RTTMicros [3]int64 `json:"rttMicros"`
	// RTTCounts is a histogram of the round-trip times of answered probes. Its buckets begin at 0, 64, 96, 128, 192,
	// 256, 384 µs and so on; empty buckets at the end are left out.
	RTTCounts []int64 `json:"rttCounts,omitempty"`
	// Gaps are the gaps that have ended, oldest first; Open is a gap that has not ended.
	Gaps []Gap `json:"gaps,omitempty"`
	Open *Gap  `json:"open,omitempty"`
	// Dropped counts gaps that no longer fit in Gaps; their probes stay counted in Sent.
	Dropped int64 `json:"dropped,omitempty"`
	// Excused is the number of probes in Answered whose answer was read after the timeout because the source itself
	// did not run meanwhile. RTTMicros contains their actual times.
	Excused int64 `json:"excused,omitempty"`
	// Stalls are intervals in which the source itself did not run (it sent probes late). They explain long intervals
	// without probes, but do not excuse unanswered probes.
	Stalls []Gap `json:"stalls,omitempty"`
}

// Gap is an interval in which a path did not do what was expected, on the sender's clock:
// from the send time of the first wrong probe to that of the first right one after it.
type Gap struct {
	From time.Time `json:"from"`
	// Millis is its length in milliseconds.
	Millis float64 `json:"millis"`
	// Probes is the number of failed probes in the gap: lost, or on a denied path answered.
	Probes int64 `json:"probes"`
	// Cause is the error of the first failed probe, such as "connection refused"; empty if there was no answer at all.
	Cause string `json:"cause,omitempty"`
	// Second has the answers of the path's second responder during the gap.
	Second Second `json:"second,omitzero"`
}

// Second has the answers of a second responder during a gap of the first one.
type Second struct {
	// Answered counts the answers. SilentMillis is the longest time in the gap without an answer, in milliseconds:
	// before the first answer, between two answers, or after the last one.
	Answered     int64   `json:"answered"`
	SilentMillis float64 `json:"silentMillis"`
}
