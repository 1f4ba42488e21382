package bench

import (
	"errors"
	"fmt"
	"time"
)

// Kind is what a measurement measures.
type Kind string

// The kinds of measurements.
const (
	// RoundTrip is the round trip of datagrams without other load of the benchmark.
	RoundTrip Kind = "round trip at rest"
	// Stream is the throughput of TCP streams.
	Stream Kind = "TCP"
	// Blast is the throughput of one flow of UDP.
	Blast Kind = "UDP"
	// Datagrams are small datagrams that are echoed.
	Datagrams Kind = "datagrams"
	// Connections are new TCP connections, each with one question and its answer.
	Connections Kind = "new connections"
	// Requests are HTTP requests on kept connections.
	Requests Kind = "requests"
	// Questions are DNS questions by UDP, each from a new port.
	Questions Kind = "DNS questions"
)

// Bounds are what a benchmark must not exceed: the user agrees to them.
type Bounds struct {
	// Runs is how often every measurement is repeated, in turn with the others.
	Runs int `json:"runs"`
	// Duration of one measurement.
	Duration time.Duration `json:"durationNanos"`
	// Rate is the number of datagrams a second, and of requests. New connections are a quarter of that, DNS questions a
	// tenth, as each leaves an entry in the connection tracking of nodes, and name servers serve others.
	Rate int `json:"ratePerSecond"`
	// Megabits is the throughput of all TCP streams together, and of UDP, in Mbit/s.
	Megabits int `json:"megabitsPerSecond"`
	// MaxRoundTrip stops the benchmark when more than half of a second's probes during the load take longer.
	MaxRoundTrip time.Duration `json:"maxRoundTripNanos"`
	// LinkShare is how much of a node's link Megabits may be at most, in percent, if the node knows the speed of its
	// link.
	LinkShare int `json:"linkSharePercent"`
	// CPUShare stops the benchmark when the processors of a node under load are busier for a second, by any program, in
	// percent. It is 0 in results of older versions, which did not watch them.
	CPUShare int `json:"maxCPUSharePercent,omitempty"`
	// KeepGoing is set if the next measurement follows one that was stopped because probes or operations were slow or
	// lost. What stops the load for a node's sake ends the benchmark nevertheless.
	KeepGoing bool `json:"keepGoing,omitempty"`
	// PolicyRules are how many rules of policy there are, one after another, when a part of the measurements is
	// repeated.
	PolicyRules []int `json:"policyRules,omitempty"`
}

// Defaults are modest: a tenth of a link of 1 Gbit/s.
func Defaults() Bounds {
	return Bounds{Runs: 3, Duration: 5 * time.Second, Rate: 1000, Megabits: 100,
		MaxRoundTrip: 100 * time.Millisecond, LinkShare: 20, CPUShare: 90}
}

// The limits of the bounds. mostLoad bounds the runs' durations together: about 20 measurements of a run take that
// long.
const (
	mostRuns     = 10
	mostDuration = 15 * time.Second
	mostLoad     = time.Minute
	mostRate     = 20000
	mostMegabits = 10000
	// mostBlast is what one flow of UDP offers at most, in Mbit/s: one processor can hardly send more.
	mostBlast = 1000
	// mostRules is the most rules of policy. Every node's agent reads them, and mostRulesRead bounds how often they are
	// read in all: about 100 bytes each, so 700 MB from the API server.
	mostRules     = 10000
	mostRulesRead = 7000000
	mostLevels    = 4
)

// Timeout is how long an answer may take, counted from the scheduled time of its question. Later ones are lost.
const Timeout = time.Second

// DatagramBytes is the size of the payload of a datagram of UDP throughput. With the headers of any tunnel it fits into
// an MTU of 1,500.
const DatagramBytes = 1200

// Drained is how long the receiver of a stream may take for what is on its way when the stream's time is over.
const Drained = 10 * time.Second

// Validate refuses bounds that are none.
func (b Bounds) Validate() error {
	between := func(name string, value, least, most any, outside bool) error {
		if !outside {
			return nil
		}
		return fmt.Errorf("--%s %v is not between %v and %v", name, value, least, most)
	}
	return errors.Join(
		between("runs", b.Runs, 1, mostRuns, b.Runs < 1 || b.Runs > mostRuns),
		between("duration", b.Duration, time.Second, mostDuration, b.Duration < time.Second ||
			b.Duration > mostDuration),
		between("rate", b.Rate, 40, mostRate, b.Rate < 40 || b.Rate > mostRate),
		between("throughput", b.Megabits, 1, mostMegabits, b.Megabits < 1 || b.Megabits > mostMegabits),
		between("link-share", b.LinkShare, 1, 100, b.LinkShare < 1 || b.LinkShare > 100),
		between("max-cpu-share", b.CPUShare, 1, 100, b.CPUShare < 0 || b.CPUShare > 100),
		between("max-round-trip", b.MaxRoundTrip, time.Millisecond, b.mostRoundTrip(),
			b.MaxRoundTrip < time.Millisecond || b.MaxRoundTrip > b.mostRoundTrip()),
		b.load(), b.rules())
}

func (b Bounds) rules() error {
	if len(b.PolicyRules) > mostLevels {
		return fmt.Errorf("--policy-rules has %d numbers, and at most %d are allowed", len(b.PolicyRules), mostLevels)
	}
	for i, rules := range b.PolicyRules {
		switch {
		case rules < 1 || rules > mostRules:
			return fmt.Errorf("--policy-rules %d is not between 1 and %d", rules, mostRules)
		case i > 0 && rules <= b.PolicyRules[i-1]:
			return fmt.Errorf("--policy-rules %d is not more than the number before it, %d", rules, b.PolicyRules[i-1])
		}
	}
	return nil
}

// TooManyRules says why a cluster with so many nodes must not have the rules; empty if it may.
func (b Bounds) TooManyRules(nodes int) string {
	if len(b.PolicyRules) == 0 {
		return ""
	}
	if each := b.rulesRead(); each*nodes > mostRulesRead {
		return fmt.Sprintf("--policy-rules in %d runs: the agents of %d nodes would read %d rules each, and with so "+
			"many nodes at most %d are allowed", b.Runs, nodes, each, mostRulesRead/nodes)
	}
	return ""
}

// rulesRead is how many rules of policy the agent of a node reads: each run makes and removes those of every level, and
// a watch sends an object again when it is deleted.
func (b Bounds) rulesRead() int {
	sum := 0
	for _, rules := range b.PolicyRules {
		sum += rules
	}
	return 2 * b.Runs * sum
}

// mostRoundTrip is the greatest bound on a round trip that can stop a measurement: probes that are younger are not
// judged, and those that are older than Timeout have no round trip.
func (b Bounds) mostRoundTrip() time.Duration {
	return max(time.Millisecond, min(Timeout, min(max(b.Duration, time.Second), mostDuration)/2))
}

func (b Bounds) load() error {
	if b.Runs < 1 || b.Runs > mostRuns || b.Duration < time.Second || b.Duration > mostDuration ||
		time.Duration(b.Runs)*b.Duration <= mostLoad {
		return nil
	}
	return fmt.Errorf("--runs %d of --duration %s are %s, and at most %s are allowed",
		b.Runs, b.Duration, time.Duration(b.Runs)*b.Duration, mostLoad)
}

// connectionShare and questionShare are the parts of the rate of new connections and of DNS questions.
const (
	connectionShare = 4
	questionShare   = 10
)

// probeRate is the most probes a second of the round trip, at rest and during the load.
const probeRate = 500

// many is the number of streams of the second measurement of throughput.
const many = 8

// Task is one measurement.
type Task struct {
	Kind Kind   `json:"kind"`
	Path string `json:"path"`
	// Target is where the load goes, as host:port. For DNS questions it is empty: the client reads its own resolv.conf.
	Target string `json:"target,omitempty"`
	// Streams is the number of TCP streams.
	Streams int `json:"streams,omitempty"`
	// Rate is the number of operations a second that are offered, or of Mbit/s for streams and UDP, at most.
	Rate int `json:"rate"`
	// Probed is the responder of the probes that watch the load, as host:port.
	Probed   string        `json:"probed"`
	Duration time.Duration `json:"durationNanos"`
	// Most stops operations whose own answers are slow or missing, as MaxRoundTrip does for probes: the probes do not
	// see the name server, nor what stands behind a Service. It is 0 for what has probes on its own path.
	Most time.Duration `json:"mostNanos,omitempty"`
	// Within is the node that the packets do not leave; empty if they cross from one node to another, or if that is
	// not known.
	Within string `json:"within,omitempty"`
}

// Name is the measurement's name in tables.
func (t Task) Name() string {
	switch {
	case t.Kind == Stream && t.Streams == 1:
		return "TCP, 1 stream"
	case t.Kind == Stream:
		return fmt.Sprintf("TCP, %d streams", t.Streams)
	}
	return string(t.Kind)
}

// Plan is what the client of one run carries out: all tasks in order.
type Plan struct {
	// First is the number of its first task among all of the benchmark.
	First int `json:"first,omitempty"`
	// Denied is a target, as host:port, that must be denied before the load begins; empty for none.
	Denied string `json:"denied,omitempty"`
	// Run is the number of the run that this client carries out, from 1, and Runs how many there are.
	Run  int `json:"run"`
	Runs int `json:"runs"`
	// Megabits, LinkShare, CPUShare, MaxRoundTrip and KeepGoing are those of the bounds.
	Megabits     int           `json:"megabitsPerSecond"`
	LinkShare    int           `json:"linkSharePercent"`
	CPUShare     int           `json:"maxCPUSharePercent,omitempty"`
	MaxRoundTrip time.Duration `json:"maxRoundTripNanos"`
	KeepGoing    bool          `json:"keepGoing,omitempty"`
	// ProbeRate is the number of probes a second during the load.
	ProbeRate int `json:"probeRate"`
	// Reach is how long a target may take to answer for the first time: the rules for a new Service take a while.
	Reach time.Duration `json:"reachNanos"`
	Tasks []Task        `json:"tasks"`
	// Counters are where the kernel's counters and limits of nodes are read, as host:port, by the node's name.
	Counters map[string]string `json:"counters"`
}

// Host is a responder: where it echoes datagrams, accepts connections, takes streams and serves HTTP, each as
// host:port.
type Host struct{ Echo, Accept, Sink, HTTP string }

// Paths are the ends of what is measured, by the names of the paths, in the order of the table.
type Paths struct {
	Name string
	Host Host
	// Within is Task.Within.
	Within string
}

// Names of the paths.
const (
	SameNode = "pod to pod, same node"
	TwoNodes = "pod to pod, two nodes"
	ToHost   = "pod to host, two nodes"
	OwnHost  = "pod to host, same node"
	Service  = "pod to Service"
	DNS      = "pod to DNS"
)

// Tasks are the measurements of the paths; service is the cluster IP with the port of the Service.
func (b Bounds) Tasks(paths []Paths, service string) []Task {
	var tasks []Task
	for _, path := range paths {
		add := func(kind Kind, target string, streams, rate int) {
			tasks = append(tasks, Task{kind, path.Name, target, streams, rate, path.Host.Echo, b.Duration, 0,
				path.Within})
		}
		add(RoundTrip, path.Host.Echo, 0, b.probes())
		add(Stream, path.Host.Sink, 1, b.Megabits)
		add(Stream, path.Host.Sink, many, b.Megabits)
		add(Blast, path.Host.Sink, 0, min(b.Megabits, mostBlast))
		add(Datagrams, path.Host.Echo, 0, b.Rate)
		add(Connections, path.Host.Accept, 0, b.Rate/connectionShare)
	}
	last := paths[min(1, len(paths)-1)].Host.Echo // on the other node, if there is one
	return append(tasks,
		Task{Requests, Service, service, 0, b.Rate, last, b.Duration, b.MaxRoundTrip, ""},
		Task{Questions, DNS, "", 0, b.Rate / questionShare, last, b.Duration, b.MaxRoundTrip, ""})
}

// PolicyTasks are the measurements of a path that are repeated with so many rules of policy.
func (b Bounds) PolicyTasks(path Paths, rules int) []Task {
	add := func(kind Kind, target string, streams, rate int) Task {
		return Task{kind, fmt.Sprintf("%s, %d policy rules", path.Name, rules), target, streams, rate, path.Host.Echo,
			b.Duration, 0, path.Within}
	}
	return []Task{add(RoundTrip, path.Host.Echo, 0, b.probes()), add(Stream, path.Host.Sink, 1, b.Megabits),
		add(Datagrams, path.Host.Echo, 0, b.Rate), add(Connections, path.Host.Accept, 0, b.Rate/connectionShare)}
}

func (b Bounds) probes() int { return min(b.Rate, probeRate) }

// Plan is the plan with tasks.
func (b Bounds) Plan(tasks []Task, counters map[string]string) Plan {
	return Plan{Run: 1, Runs: b.Runs, Megabits: b.Megabits, LinkShare: b.LinkShare, CPUShare: b.CPUShare,
		MaxRoundTrip: b.MaxRoundTrip, KeepGoing: b.KeepGoing, ProbeRate: b.probes(), Reach: reach,
		Tasks: tasks, Counters: counters}
}

// reach is Plan.Reach. Enforced is that of a run after which, or before which, the policies of the benchmark
// change, and how long a network may take to enforce them.
const (
	reach    = 20 * time.Second
	Enforced = 2 * time.Minute
)

// NotEnforced begins the error of measurements without the policies that they are about.
const NotEnforced = "the policies are not enforced"

// Settle is how long the client rests after a measurement, so that queues are empty before the next one.
const Settle = 500 * time.Millisecond

// spare is how long a run may take longer than its measurements.
const spare = 30 * time.Second

// Rest is how long the client watches the nodes' processors before the load, if it watches counters at all.
const Rest = 2 * time.Second

// Leash is how long the client of one run may live. The load then ends, whatever became of the process that made it.
func (p Plan) Leash() time.Duration {
	lasts := p.Reach + Rest + spare
	if p.Denied != "" { // until it is denied, and until the others are admitted again
		lasts += 2 * p.Reach
	}
	for _, task := range p.Tasks {
		lasts += task.Duration + Settle
		if task.Kind != RoundTrip { // its last answers may be late
			lasts += Timeout
		}
		if task.Kind == Stream { // a full network delivers what is on its way
			lasts += Drained
		}
		if p.KeepGoing { // the rest after a measurement that was stopped
			lasts += Timeout
		}
	}
	return lasts
}

// Entries are what a run adds at most to the connection tracking of a node.
func (p Plan) Entries() int64 {
	var n float64
	for _, task := range p.Tasks {
		if task.Kind == Connections || task.Kind == Questions {
			n += float64(task.Rate) * task.Duration.Seconds()
		}
	}
	return int64(n)
}

// Limits are what a node can carry, as far as it is known: 0 is unknown.
type Limits struct {
	// Link is the speed of the node's link in Mbit/s.
	Link int64 `json:"linkMegabits"`
	// Conntrack is how many connections the node tracks, and ConntrackMost how many it can.
	Conntrack     int64 `json:"conntrack"`
	ConntrackMost int64 `json:"conntrackMost"`
	// Boot identifies the boot of the node's kernel within one benchmark: two nodes with the same one share a machine.
	Boot string `json:"boot,omitempty"`
	// Processors is how many the node has, and Busy how long all of them together have worked, in microseconds; both
	// are 0 if that is not known.
	Processors int   `json:"processors,omitempty"`
	Busy       int64 `json:"busyMicros,omitempty"`
}

// Overworked says why a node must not have more load: between two readings of its limits, which lie so far apart, its
// processors were busier than the plan allows. It is empty if they were not, or if that is not known.
func (p Plan) Overworked(before, after Limits, apart time.Duration) string {
	if p.CPUShare <= 0 || p.CPUShare >= 100 || before.Processors == 0 || after.Processors == 0 || apart <= 0 {
		return ""
	}
	all := float64(apart.Microseconds()) * float64(after.Processors)
	if share := 100 * float64(after.Busy-before.Busy) / all; share > float64(p.CPUShare) {
		return fmt.Sprintf("its processors (%d) were %.0f%% busy for %.1f s, by all programs (--max-cpu-share %d)",
			after.Processors, min(100, share), apart.Seconds(), p.CPUShare)
	}
	return ""
}

// full is the share of a node's table of connections, in percent, from which on there is no load: a full one drops
// other connections.
const full = 70

// Exceeded says why a node with such limits must not have the load, or more of it: adds is how many connections more it
// would track.
func (l Limits) Exceeded(p Plan, adds int64) string {
	switch {
	case l.Link > 0 && int64(p.Megabits)*100 > l.Link*int64(p.LinkShare):
		return fmt.Sprintf("--throughput %d is more than %d%% of its link of %d Mbit/s (--link-share)",
			p.Megabits, p.LinkShare, l.Link)
	case l.ConntrackMost > 0 && (l.Conntrack+adds)*100 > l.ConntrackMost*full:
		return fmt.Sprintf("its conntrack table has %d of %d entries, and %d more would fill over %d%%",
			l.Conntrack, l.ConntrackMost, adds, full)
	}
	return ""
}

// inMegabits reports whether a kind is measured in Mbit/s.
func (k Kind) inMegabits() bool { return k == Stream || k == Blast }

// Cost is what a benchmark costs.
type Cost struct {
	// Time that the measurements take; making and removing pods comes on top.
	Time time.Duration `json:"timeNanos"`
	// Bytes of TCP streams and of UDP, and Operations: datagrams, connections, requests and questions. Both at most.
	Bytes      int64 `json:"bytes"`
	Operations int64 `json:"operations"`
	Connects   int64 `json:"connections"`
	Questions  int64 `json:"dnsQuestions"`
}

// Plus is the cost of both.
func (c Cost) Plus(other Cost) Cost {
	return Cost{c.Time + other.Time, c.Bytes + other.Bytes, c.Operations + other.Operations,
		c.Connects + other.Connects, c.Questions + other.Questions}
}

// Cost adds up what the tasks cost.
func (p Plan) Cost() Cost {
	var c Cost
	for _, task := range p.Tasks {
		n := int64(float64(p.Runs*task.Rate) * task.Duration.Seconds())
		c.Time += time.Duration(p.Runs) * (task.Duration + Settle)
		switch {
		case task.Kind.inMegabits():
			c.Bytes += n * 1e6 / 8
		case task.Kind == Connections:
			c.Connects += n
			c.Operations += n
		case task.Kind == Questions:
			c.Questions += n
			c.Operations += n
		default:
			c.Operations += n
		}
		if task.Kind != RoundTrip {
			// as long as the work may last
			c.Operations += int64(float64(p.Runs*p.ProbeRate) * (task.Duration + Timeout + Drained).Seconds())
		}
	}
	return c
}
