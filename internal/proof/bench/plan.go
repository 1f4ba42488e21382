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
	// Rate is the number of datagrams a second, and of requests. New connections are a quarter of that, DNS questions a tenth, as each
	// leaves an entry in the connection tracking of nodes, and name servers serve others.
	Rate int `json:"ratePerSecond"`
	// Megabits is the throughput of all TCP streams together, in Mbit/s.
	Megabits int `json:"megabitsPerSecond"`
	// MaxRoundTrip stops the benchmark when more than half of a second's probes beside the load take longer.
	MaxRoundTrip time.Duration `json:"maxRoundTripNanos"`
}

// Defaults are modest: a few percent of a link of 10 Gbit/s.
func Defaults() Bounds {
	return Bounds{Runs: 3, Duration: 5 * time.Second, Rate: 2000, Megabits: 500, MaxRoundTrip: 100 * time.Millisecond}
}

// The limits of the bounds.
const (
	mostRuns     = 20
	mostDuration = time.Minute
	mostRate     = 20000
	mostMegabits = 100000
)

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
		between("duration", b.Duration, time.Second, mostDuration, b.Duration < time.Second || b.Duration > mostDuration),
		between("rate", b.Rate, 40, mostRate, b.Rate < 40 || b.Rate > mostRate),
		between("throughput", b.Megabits, 1, mostMegabits, b.Megabits < 1 || b.Megabits > mostMegabits),
		between("max-round-trip", b.MaxRoundTrip, time.Millisecond, 5*time.Second, b.MaxRoundTrip < time.Millisecond || b.MaxRoundTrip > 5*time.Second))
}

// connectionShare and questionShare are the parts of the rate of new connections and of DNS questions.
const (
	connectionShare = 4
	questionShare   = 10
)

// probeRate is the most probes a second of the round trip, at rest and beside the load.
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
	// Rate is the number of operations a second that are offered, or of Mbit/s for streams, at most.
	Rate int `json:"rate"`
	// Beside is the responder of the probes that watch the load, as host:port.
	Beside   string        `json:"beside"`
	Duration time.Duration `json:"durationNanos"`
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

// Plan is what the client carries out: all tasks in order, and all of them again for every run.
type Plan struct {
	Runs         int           `json:"runs"`
	MaxRoundTrip time.Duration `json:"maxRoundTripNanos"`
	// ProbeRate is the number of probes a second beside the load.
	ProbeRate int `json:"probeRate"`
	// Reach is how long a target may take to answer for the first time: the rules for a new Service take a while.
	Reach time.Duration `json:"reachNanos"`
	Tasks []Task        `json:"tasks"`
	// Counters are where the kernel's counters of nodes are read, as host:port, by the node's name.
	Counters map[string]string `json:"counters"`
}

// Host is a responder: where it echoes datagrams, accepts connections, takes streams and serves HTTP, each as host:port.
type Host struct{ Echo, Accept, Sink, HTTP string }

// Paths are the ends of what is measured, by the names of the paths, in the order of the table.
type Paths struct {
	Name string
	Host Host
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
			tasks = append(tasks, Task{kind, path.Name, target, streams, rate, path.Host.Echo, b.Duration})
		}
		add(RoundTrip, path.Host.Echo, 0, b.probes())
		add(Stream, path.Host.Sink, 1, b.Megabits)
		add(Stream, path.Host.Sink, many, b.Megabits)
		add(Datagrams, path.Host.Echo, 0, b.Rate)
		add(Connections, path.Host.Accept, 0, b.Rate/connectionShare)
	}
	last := paths[min(1, len(paths)-1)].Host.Echo // on the other node, if there is one
	return append(tasks,
		Task{Requests, Service, service, 0, b.Rate, last, b.Duration},
		Task{Questions, DNS, "", 0, b.Rate / questionShare, last, b.Duration})
}

func (b Bounds) probes() int { return min(b.Rate, probeRate) }

// Plan is the plan with tasks.
func (b Bounds) Plan(tasks []Task, counters map[string]string) Plan {
	return Plan{Runs: b.Runs, MaxRoundTrip: b.MaxRoundTrip, ProbeRate: b.probes(), Reach: reach, Tasks: tasks, Counters: counters}
}

// reach is Plan.Reach.
const reach = 20 * time.Second

// Settle is how long the client rests after a measurement, so that queues are empty before the next one.
const Settle = 500 * time.Millisecond

// Cost is what a benchmark costs.
type Cost struct {
	// Time that the measurements take; making and removing pods comes on top.
	Time time.Duration `json:"timeNanos"`
	// Bytes of TCP streams, and Operations: datagrams, connections, requests and questions. Both at most.
	Bytes      int64 `json:"bytes"`
	Operations int64 `json:"operations"`
	Connects   int64 `json:"connections"`
	Questions  int64 `json:"dnsQuestions"`
}

// Cost adds up what the tasks cost.
func (p Plan) Cost() Cost {
	var c Cost
	for _, task := range p.Tasks {
		n := int64(float64(p.Runs*task.Rate) * task.Duration.Seconds())
		c.Time += time.Duration(p.Runs) * (task.Duration + Settle)
		switch task.Kind {
		case Stream:
			c.Bytes += n * 1e6 / 8
		case Connections:
			c.Connects += n
			c.Operations += n
		case Questions:
			c.Questions += n
			c.Operations += n
		default:
			c.Operations += n
		}
		if task.Kind != RoundTrip {
			c.Operations += int64(float64(p.Runs*p.ProbeRate) * task.Duration.Seconds())
		}
	}
	return c
}
