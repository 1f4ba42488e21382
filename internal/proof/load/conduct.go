package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
)

// conductor carries out a plan.
type conductor struct {
	plan   bench.Plan
	worker string // URL
	client http.Client
	emit   func(bench.Line)
	// rest is how many microseconds of processor time each node uses in a second without load; nil if that cannot
	// be told.
	rest map[string]float64
	// shared is set if nodes share a machine, or if that is not known.
	shared bool
}

// Conduct carries out a plan with the worker at an address, and emits a line for each result. The last one says that it
// is done, or why it was stopped. It ends early with ctx, without such a line. It puts no load on a node whose limits
// the plan exceeds, whatever KeepGoing says.
func Conduct(ctx context.Context, plan bench.Plan, worker string, emit func(bench.Line)) {
	c := &conductor{plan: plan, worker: "http://" + worker + pathMeasure, emit: emit}
	before := c.counters(ctx)
	if why := c.exceeded(ctx, plan.Entries(), emit, nil); why != "" {
		emit(bench.Line{Stopped: "the load was not started: " + why})
		return
	}
	silent := c.reachAll(ctx)
	switch why := c.denied(ctx); {
	case why != "":
		for i := range silent {
			if silent[i] == "" {
				silent[i] = why
			}
		}
	case plan.Denied != "":
		// The first policy already denies. What answers now is admitted by the last one, so that is in force.
		silent = c.reachAll(ctx)
	}
	if why := c.watchRest(ctx); why != "" {
		emit(bench.Line{Stopped: "the load was not started: " + why})
		return
	}
	for i, task := range plan.Tasks {
		if ctx.Err() != nil {
			return
		}
		began, at := c.counted(ctx), time.Now()
		sample := bench.Sample{Error: silent[i]}
		var stopped error
		if sample.Error == "" {
			sample, stopped = c.measure(ctx, task)
		}
		if ctx.Err() != nil {
			return
		}
		var beyond limitError
		switch {
		case stopped == nil:
		case plan.KeepGoing && !errors.As(stopped, &beyond): // what was cut short is no result
			sample = bench.Sample{Error: "stopped: " + stopped.Error()}
			outage.Sleep(ctx, bench.Timeout) //nolint:errcheck // the loop sees it
		default:
			c.rises(ctx, before)
			emit(bench.Line{Stopped: fmt.Sprintf("%s, %s, run %d: %s", task.Path, task.Name(), plan.Run, stopped)})
			return
		}
		c.count(ctx, task, &sample, began, time.Since(at))
		sample.Task, sample.Run = plan.First+i, plan.Run
		emit(bench.Line{Sample: &sample})
		if silent[i] == "" {
			outage.Sleep(ctx, bench.Settle) //nolint:errcheck // the loop sees it
		}
	}
	c.rises(ctx, before)
	if ctx.Err() == nil {
		emit(bench.Line{Done: true})
	}
}

// limitError says that a limit of a node is exceeded: no more load may follow.
type limitError struct{ error }

// measure carries out one task, with probes during it if it is load. stopped is why it was cut short.
func (c *conductor) measure(ctx context.Context, task bench.Task) (s bench.Sample, stopped error) {
	if task.Kind == bench.RoundTrip {
		return Measure(ctx, task), nil
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	// Work that goes on for longer, such as full queues that drain, is watched, too.
	probes, end, err := startEchoes(watching, task.Probed, c.plan.ProbeRate, task.Duration+timeout+drained)
	if err != nil {
		return bench.Sample{Error: "the probes under load: " + failure(err)}, nil
	}
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go probes.watch(working, c.plan.MaxRoundTrip, "probes under load", cancel)
	go func() {
		readings := map[string]reading{}
		c.exceeded(working, 0, nil, readings)
		for outage.Sleep(working, limitsEvery) == nil {
			if why := c.exceeded(working, 0, nil, readings); why != "" {
				cancel(limitError{errors.New(why)})
			}
		}
	}()
	s, err = c.work(working, task)
	why := context.Cause(working)
	cancel(nil) // probes that are not sent any more are not late
	loaded := int(probes.sent.Load())
	stop()
	end()
	if why != nil && ctx.Err() == nil {
		return s, why
	}
	if err != nil {
		return bench.Sample{Error: failure(err)}, nil
	}
	latency, _ := probes.sum(loaded)
	s.UnderLoad = &latency
	if s.Stopped != "" {
		return s, errors.New(s.Stopped)
	}
	return s, nil
}

// limitsEvery is the time between two looks at the nodes' limits.
const limitsEvery = time.Second

// reading is a node's limits at a time.
type reading struct {
	at     time.Time
	limits bench.Limits
}

// exceeded says which node's limits the plan exceeds, if it adds so many connections; empty if none. With note, it says
// whose limits are not known. With the readings of an earlier call, it compares how busy the nodes were since then, and
// replaces them.
func (c *conductor) exceeded(ctx context.Context, adds int64, note func(bench.Line),
	readings map[string]reading) string {
	for _, node := range slices.Sorted(maps.Keys(c.plan.Counters)) {
		var limits bench.Limits
		err := c.read(ctx, c.plan.Counters[node]+pathLimits, &limits)
		if now := (reading{time.Now(), limits}); err == nil && readings != nil && !c.shared {
			before, ok := readings[node]
			if why := c.plan.Overworked(before.limits, limits, now.at.Sub(before.at)); ok && why != "" {
				return fmt.Sprintf("node %s: %s", node, why)
			}
			readings[node] = now
		}
		if why := limits.Exceeded(c.plan, adds); err == nil && why != "" {
			return fmt.Sprintf("node %s: %s", node, why)
		}
		if note == nil || ctx.Err() != nil {
			continue
		}
		if err != nil || limits.Link == 0 {
			note(bench.Line{Note: fmt.Sprintf(
				"the link speed of node %s is unknown, so --throughput was not compared with it", node)})
		}
		if err != nil || limits.ConntrackMost == 0 {
			note(bench.Line{Note: fmt.Sprintf(
				"the conntrack table of node %s could not be read, so it was not watched", node)})
		}
	}
	return ""
}

// read gets the JSON of a responder, at an address with a path.
func (c *conductor) read(ctx context.Context, at string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at, nil)
	if err != nil {
		return err
	}
	return c.get(r, into)
}

// work has the worker carry out a task.
func (c *conductor) work(ctx context.Context, task bench.Task) (s bench.Sample, err error) {
	text, err := json.Marshal(task)
	if err != nil {
		return s, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.worker, bytes.NewReader(text))
	if err != nil {
		return s, err
	}
	return s, c.get(r, &s)
}

// get sends a request and decodes the answer.
func (c *conductor) get(r *http.Request, into any) error {
	answer, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := bounded.ReadAll(answer.Body, 1<<20)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, bytes.TrimSpace(text))
	}
	return json.Unmarshal(text, into)
}

// counters reads the counters of the nodes that answer.
func (c *conductor) counters(ctx context.Context) map[string]map[string]int64 {
	all := map[string]map[string]int64{}
	for node, address := range c.plan.Counters {
		var counters map[string]int64
		if err := c.read(ctx, address+pathCounters, &counters); err == nil {
			all[node] = counters
		} else if ctx.Err() == nil {
			c.emit(bench.Line{Note: fmt.Sprintf("the kernel's counters of node %s could not be read: %s",
				node, failure(err))})
		}
	}
	return all
}

// counted reads the counters of the nodes that answer, without a word about those that do not.
func (c *conductor) counted(ctx context.Context) map[string]map[string]int64 {
	all := map[string]map[string]int64{}
	for node, address := range c.plan.Counters {
		var counters map[string]int64
		if c.read(ctx, address+pathCounters, &counters) == nil {
			all[node] = counters
		}
	}
	return all
}

// watchRest measures how busy the nodes are without load, and says which one is too busy for any; empty if none is.
// Nodes that share a machine also share its processors: then nothing can be told.
func (c *conductor) watchRest(ctx context.Context) string {
	boots, readings := map[string]string{}, map[string]reading{}
	c.shared = true // until it is known
	for _, node := range slices.Sorted(maps.Keys(c.plan.Counters)) {
		var limits bench.Limits
		if c.read(ctx, c.plan.Counters[node]+pathLimits, &limits) != nil || limits.Boot == "" {
			if ctx.Err() == nil {
				c.emit(bench.Line{Note: fmt.Sprintf("the kernel of node %s could not be identified, so nodes may "+
					"share a machine: their processor time is not known, and --max-cpu-share does not apply", node)})
			}
			return ""
		}
		if other := boots[limits.Boot]; other != "" {
			c.emit(bench.Line{Note: fmt.Sprintf("nodes %s and %s run on one machine, so their processor time "+
				"cannot be separated, and --max-cpu-share does not apply", other, node)})
			return ""
		}
		boots[limits.Boot] = node
	}
	if len(boots) == 0 {
		return ""
	}
	c.shared = false
	c.exceeded(ctx, 0, nil, readings)
	before, at := c.counted(ctx), time.Now()
	if outage.Sleep(ctx, bench.Rest) != nil {
		return ""
	}
	after, took := c.counted(ctx), time.Since(at)
	c.rest = map[string]float64{}
	for node := range after {
		if busy, ok := busier(before[node], after[node]); ok {
			c.rest[node] = busy / took.Seconds()
		}
	}
	if why := c.exceeded(ctx, 0, nil, readings); why != "" {
		return why + ", without load"
	}
	return ""
}

// busier is how many microseconds of processor time lie between two readings.
func busier(before, after map[string]int64) (micros float64, ok bool) {
	from, had := before[bench.Busy]
	to, has := after[bench.Busy]
	return float64(to - from), had && has
}

// count adds to a sample what the nodes' counters rose by during it, and the processor time for each packet of
// datagrams, of the nodes that carry them: each of them, and each probe that was sent during them, is a packet there
// and one back.
func (c *conductor) count(ctx context.Context, task bench.Task, s *bench.Sample, before map[string]map[string]int64,
	took time.Duration) {
	if len(before) == 0 {
		return
	}
	s.Rises = map[string]map[string]int64{} // by the traffic of the whole node, so of all nodes
	for node, after := range c.counted(ctx) {
		if before[node] == nil {
			continue
		}
		s.Rises[node] = bench.Rises(before[node], after)
		rest, known := c.rest[node]
		busy, ok := busier(before[node], after)
		if !known || !ok || task.Kind != bench.Datagrams || s.Latency == nil || s.UnderLoad == nil ||
			task.Within != "" && task.Within != node {
			continue
		}
		if s.Processor == nil {
			s.Processor = map[string]float64{}
		}
		packets := 2 * max(1, s.Latency.Answered+s.UnderLoad.Answered)
		s.Processor[node] = max(0, busy-rest*took.Seconds()) / float64(packets)
	}
}

// rises emits what the counters rose by.
func (c *conductor) rises(ctx context.Context, before map[string]map[string]int64) {
	rises := map[string]map[string]int64{}
	for node, after := range c.counters(ctx) {
		if from, ok := before[node]; ok {
			rises[node] = bench.Rises(from, after)
		}
	}
	c.emit(bench.Line{Counters: rises})
}

// reachAll waits until every target has answered once, each for as long as the plan allows. It returns why a target
// does not answer, by the task's number.
func (c *conductor) reachAll(ctx context.Context) []string {
	silent := make([]string, len(c.plan.Tasks))
	var all sync.WaitGroup
	until := time.Now().Add(c.plan.Reach)
	for i, task := range c.plan.Tasks {
		all.Go(func() {
			for {
				silent[i] = Reaches(ctx, task)
				if silent[i] == "" || time.Now().After(until) || outage.Sleep(ctx, 250*time.Millisecond) != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return silent
}

// deniedFor is how often in a row the denied target must not answer.
const deniedFor = 3

// denied waits until the target that must be denied is; it returns why not.
func (c *conductor) denied(ctx context.Context) string {
	if c.plan.Denied == "" {
		return ""
	}
	for n, until := 0, time.Now().Add(c.plan.Reach); n < deniedFor; n++ {
		if Reaches(ctx, bench.Task{Kind: bench.Requests, Target: c.plan.Denied}) == "" {
			n = -1
		}
		if time.Now().After(until) {
			return fmt.Sprintf("%s: after %s, the denied port of the responder still answers", bench.NotEnforced,
				c.plan.Reach)
		}
		if outage.Sleep(ctx, 250*time.Millisecond) != nil {
			return ""
		}
	}
	return ""
}

// Reaches tries a task once; it returns why there is no answer.
func Reaches(ctx context.Context, task bench.Task) string {
	once := task
	once.Rate, once.Duration, once.Most = 1, time.Second, 0
	if task.Kind == bench.Stream || task.Kind == bench.Blast {
		once.Streams, once.Duration = 1, 10*time.Millisecond
	}
	s := Measure(ctx, once)
	if s.Error == "" && s.Latency != nil && s.Latency.Answered == 0 {
		return fmt.Sprintf("%s does not answer", task.Target)
	}
	return s.Error
}
