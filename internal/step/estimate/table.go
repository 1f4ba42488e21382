package estimate

import (
	"cmp"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// cost is what a part takes: Once, and More for each action or pod beyond the first.
type cost struct{ once, more time.Duration }

// What one more action asks of the API server, where the part is not held up by anything else: TestRequests of
// internal/cluster/kube counts it.
const (
	RequestsOfVerb  = 1 // POST of the task; its answer comes by a watch
	RequestsOfWrite = 2 // GET of the object, and the write
)

// usual is the cost of what the table does not name.
var usual = cost{400 * time.Millisecond, RequestsOfWrite * perRequest}

// waiting is the most that one more action takes beyond a crowd, where it waits for something: it asks for that several
// times.
const waiting = 40 * time.Millisecond

// table has what parts took in the lab (testdata/runs.json, and TestRuns compares): all nodes on one machine of two
// processors, that clients kept busy. The time of hooks depends on the user's cloud, and was not measured.
var table = map[string]cost{
	"apply":   {100 * time.Millisecond, RequestsOfWrite * perRequest},
	"patch":   {150 * time.Millisecond, RequestsOfWrite * perRequest},
	"delete":  {150 * time.Millisecond, waiting},
	"taint":   {150 * time.Millisecond, waiting},
	"untaint": {150 * time.Millisecond, waiting},

	"delete/runs": {1500 * time.Millisecond, 300 * time.Millisecond}, // until the pods have ended
	"restart":     {8 * time.Second, time.Second},

	"wait/established": {200 * time.Millisecond, 10 * time.Millisecond},
	// an agent of a network, with its init containers
	"wait/pod-ready":            {6 * time.Second, 500 * time.Millisecond},
	"wait/pod-ready/own":        {1500 * time.Millisecond, 500 * time.Millisecond},
	"wait/pod-gone":             {100 * time.Millisecond, 0}, // its DaemonSet was deleted with them
	"wait/rolled/DaemonSet":     {200 * time.Millisecond, 0}, // its pods were waited for before
	"wait/rolled/DaemonSet/own": {1500 * time.Millisecond, 0},
	"wait/rolled/Deployment":    {4 * time.Second, 0},

	"probe":       {3200 * time.Millisecond, 20 * time.Millisecond},
	"probe/more":  {3200 * time.Millisecond, 140 * time.Millisecond}, // of a node and its neighbours
	"probe/fewer": {700 * time.Millisecond, 20 * time.Millisecond},

	"evict":      {500 * time.Millisecond, 5500 * time.Millisecond},  // until a workload has recreated a pod elsewhere
	"evict/rest": {4 * time.Second, 0},                               // until the last have ended
	"node/adopt": {1500 * time.Millisecond, 1250 * time.Millisecond}, // per turn of pods that move side by side

	// until agents have told each other of a range, and made routes
	"node/carried": {5500 * time.Millisecond, 40 * time.Millisecond},
	"node/hold":    {3 * time.Second, 40 * time.Millisecond},
	"node/yield":   {1500 * time.Millisecond, 100 * time.Millisecond},
	"node/settle":  {1500 * time.Millisecond, 100 * time.Millisecond},

	"hook/add":    {3 * time.Minute, 0},
	"hook/remove": {time.Minute, 0},
}

// Takes is how long the part takes.
func (p Part) Takes() time.Duration {
	if p.Kind == "gate" {
		return p.waits() + 800*time.Millisecond
	}
	c, known := table[p.Kind]
	if !known {
		c = usual
	}
	switch p.Kind {
	case "evict":
		chain, ending := time.Duration(p.Chain)*c.more, time.Duration(p.Ending)*(c.more+ends)
		all := time.Duration(p.Pods)*c.more + time.Duration(p.Ended)*ends
		return c.once + max(chain, ending, all/time.Duration(max(step.SideBySide, p.N)))
	case "node/adopt":
		if p.Most == 0 { // the agent finds nothing to move
			c = usual
		}
		return c.once + time.Duration(p.Turns)*c.more + time.Duration(p.N-1)*usual.more
	}
	more := max(p.N-1, 0)
	crowded := min(more, crowd)
	return c.once + time.Duration(crowded)*c.more + time.Duration(more-crowded)*min(c.more, waiting)
}

// waits is how long a gate waits for reports: for two of every node, or for the answers of those that it asks. They
// answer after its bake, or after the time until every probe is decided.
func (p Part) waits() time.Duration {
	if !path.Asks(p.N) {
		return max(2*path.ReportEvery(p.N), time.Duration(p.Bake))
	}
	span := max(time.Duration(p.Bake), loss.DefaultTimeout+loss.DefaultTimeout/4)
	return span + path.AskedEvery(p.N, cmp.Or(p.Asked, p.N))
}

// perRequest is the time between two requests of a run to the API server.
const perRequest = time.Second / 100

// ends is how long pods of workloads that wait for it take to end: those of the lab serve on for as long. How long
// they may take says nothing of how long they do.
const ends = 10 * time.Second

// crowd is how many nodes are in each other's way: those of the lab share two processors, those of others have their
// own.
const crowd = 8
