package swarm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/audit"
	"github.com/theseus-cni/theseus/lab/internal/controlplane"
)

// Run is one command of theseus.
type Run struct {
	Said string // on both streams
	Code int
	Took time.Duration
	Peak int64 // memory, in bytes
	CPU  time.Duration
	Disk int64 // written, in bytes
}

// Theseus runs theseus to its end; Out gets what it says. It fails only if theseus cannot be run.
func (c *Cluster) Theseus(ctx context.Context, args ...string) (Run, error) {
	c.say("$ theseus %s", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, c.Options.Theseus, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Env = append(os.Environ(), "THESEUS_KUBECONFIG="+c.file("theseus.kubeconfig"),
		"THESEUS_STATE_DIR="+c.file("state"))
	var said strings.Builder
	cmd.Stdout = io.MultiWriter(&said, c.Out)
	cmd.Stderr = cmd.Stdout
	begun := time.Now()
	err := cmd.Start()
	if err == nil {
		c.runsAs(cmd.Process)
		err = cmd.Wait()
		c.runsAs(nil)
	}
	run := Run{Said: said.String(), Took: time.Since(begun)}
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended || ctx.Err() != nil {
		return run, errors.Join(err, ctx.Err())
	}
	run.Code = cmd.ProcessState.ExitCode()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		run.Peak, run.Disk = usage.Maxrss*1024, usage.Oublock*512
		run.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return run, nil
}

// runsAs sets the process of theseus; nil if it does not run.
func (c *Cluster) runsAs(self *os.Process) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.self = self
}

// Kill kills theseus, if it runs.
func (c *Cluster) Kill() error {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.self == nil {
		return nil
	}
	return c.self.Kill()
}

// Plan makes the plan of the change to Calico from a snapshot, into a file.
func (c *Cluster) Plan(ctx context.Context, more ...string) (file string, estimate time.Duration, err error) {
	file = c.file("plan.yaml")
	change := []string{"plan", "--from", c.file("snapshot.json"), "-o", file, "--to", "calico",
		"--manifest", c.file("calico.yaml"), "--strategy", c.Strategy, "--agent-image", "theseus.dev/agent:swarm"}
	if c.Strategy != "adopt" { // adopted pods keep their addresses
		change = append(change, "--pod-cidr", targetCIDR)
	}
	for _, args := range [][]string{{"snapshot", "-o", c.file("snapshot.json")}, append(change, more...)} {
		run, err := c.Theseus(ctx, args...)
		if err == nil && run.Code != 0 {
			err = fmt.Errorf("theseus %s ended with %d", args[0], run.Code)
		}
		if err != nil {
			return file, 0, err
		}
		estimate = Estimate(run.Said)
	}
	return file, estimate, nil
}

// about is the whole estimate of a plan, as its runbook has it.
var about = regexp.MustCompile(`steps, about ((?:\d+ h ?)?(?:\d+ min ?)?(?:\d+ s)?)`)

// Estimate is what a runbook says of how long the change takes; 0 if it does not.
func Estimate(runbook string) time.Duration {
	found := about.FindStringSubmatch(runbook)
	if found == nil {
		return 0
	}
	took, _ := time.ParseDuration(strings.NewReplacer(" ", "", "min", "m").Replace(found[1]))
	return took
}

// Load is what an API server was asked since it began.
type Load struct {
	Requests map[string]float64 // by verb and resource, of all clients
	Bytes    map[string]float64 // of the answers to GET and LIST, by the same
	Watched  map[string]float64 // bytes of the events of watches, by resource
	Theseus  map[string]float64 // requests of theseus alone, by verb and resource
	Agents   map[string]float64 // of Theseus' agents, by the same
}

// Load reads the API server's metrics, and its audit log for those of theseus and of its agents.
func (c *Cluster) Load(ctx context.Context) (Load, error) {
	load := Load{Theseus: map[string]float64{}, Agents: map[string]float64{}}
	text, err := c.Kubectl(ctx, "", "get", "--raw", "/metrics")
	if err != nil {
		return load, err
	}
	load.Requests, load.Bytes = sums(text, "apiserver_request_total"), sums(text, "apiserver_response_sizes_sum")
	load.Watched = sums(text, "apiserver_watch_events_sizes_sum")
	logs, err := c.config.AuditLogs()
	for _, log := range logs {
		err = errors.Join(err, load.add(log))
	}
	return load, err
}

// add counts the requests in one file of an audit log.
func (l Load) add(log string) error {
	file, err := os.Open(log)
	if err != nil {
		return err
	}
	defer file.Close()
	events, err := audit.Read(file)
	for _, event := range events {
		what := key(event.Verb, event.ObjectRef.Resource, event.ObjectRef.Subresource)
		switch event.User.Username {
		case controlplane.Operator:
			l.Theseus[what]++
		case controlplane.Agents:
			l.Agents[what]++
		}
	}
	return err
}

// verbs are the names of the API server's verbs in its metrics, by those in its audit log. Metrics tell server-side
// apply from other patches, and the log does not.
var verbs = map[string]string{"CREATE": "POST", "UPDATE": "PUT", "APPLY": "PATCH", "DELETECOLLECTION": "DELETE"}

func key(verb, resource, sub string) string {
	verb = strings.ToUpper(verb)
	return cmp.Or(verbs[verb], verb) + " " + strings.TrimSuffix(cmp.Or(resource, "other")+"/"+sub, "/")
}

// label matches one label of a metric.
var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// sums adds up a metric by verb and resource.
func sums(text, metric string) map[string]float64 {
	by := map[string]float64{}
	for line := range strings.Lines(text) {
		rest, is := strings.CutPrefix(line, metric+"{")
		labels, value, whole := strings.Cut(strings.TrimSpace(rest), "} ")
		if !is || !whole {
			continue
		}
		of := map[string]string{}
		for _, found := range label.FindAllStringSubmatch(labels, -1) {
			of[found[1]] = found[2]
		}
		n, err := strconv.ParseFloat(value, 64)
		if err == nil {
			by[key(of["verb"], of["resource"], of["subresource"])] += n
		}
	}
	return by
}

// Since is what was asked since an earlier look.
func (l Load) Since(before Load) Load {
	less := func(now, then map[string]float64) map[string]float64 {
		grown := map[string]float64{}
		for key, n := range now {
			if n > then[key] {
				grown[key] = n - then[key]
			}
		}
		return grown
	}
	return Load{less(l.Requests, before.Requests), less(l.Bytes, before.Bytes), less(l.Watched, before.Watched),
		less(l.Theseus, before.Theseus), less(l.Agents, before.Agents)}
}

// Report is a whole change and what it took.
type Report struct {
	Nodes, Pods int
	Times       float64 // as in Options
	Estimate    time.Duration
	Apply       Run
	Load        Load
	Usage       map[string]Usage // of each program next to theseus, during the run
}

// Of the requests, the most frequent are printed, and those that theseus or its agents have made that often for a
// node.
const (
	shown     = 25
	shownNode = 0.3
)

// writes are the requests that write, of all clients, but for leases: those of a model's nodes are renewed less often
// than those of kubelets.
func (r Report) writes() (all float64) {
	for key, n := range r.Load.Requests {
		if verb, what, _ := strings.Cut(key, " "); what != "leases" &&
			slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, verb) {
			all += n
		}
	}
	return all
}

// reports are the bytes of reports that all clients have read.
func (r Report) reports() float64 {
	return r.Load.Bytes["LIST probereports"] + r.Load.Watched[key("", "probereports", "")]
}

func (r Report) gates() float64 { return float64(strings.Count(r.Apply.Said, " gate: ")) }

// Head is the head of a table in Markdown whose rows are those of Row.
const Head = "| nodes | pods a node | times | estimate | time | time/estimate | exit | gates | " +
	"kB of reports, a node and gate | memory of theseus, MiB | processor time of theseus, s | " +
	"requests of theseus, a node | of agents, a node | writes a second, all but leases | " +
	"an agent's CPU, cores | an agent's memory, MiB | API server's CPU, cores |\n" +
	"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"

// Row is the change as one row of a table. Agents have their share of the program in which they all run, with the model
// of their nodes.
func (r Report) Row() string {
	nodes, took := float64(r.Nodes), max(r.Apply.Took.Seconds(), 1)
	agents := r.Usage["nodes"]
	return fmt.Sprintf("| %d | %d | %g | %s | %s | %.2f | %d | %.0f | "+
		"%.1f | %d | %.0f | %s | %s | %.1f | %.4f | %.1f | %.2f |\n",
		r.Nodes, r.Pods/max(r.Nodes, 1), r.Times, r.Estimate, r.Apply.Took.Round(time.Second),
		took/max(r.Estimate.Seconds(), 1), r.Apply.Code, r.gates(), r.reports()/1e3/nodes/max(r.gates(), 1),
		r.Apply.Peak>>20, r.Apply.CPU.Seconds(), byVerb(r.Load.Theseus, nodes), byVerb(r.Load.Agents, nodes),
		r.writes()/took, agents.CPU.Seconds()/took/nodes, float64(agents.Peak)/(1<<20)/nodes,
		r.Usage["kube-apiserver"].CPU.Seconds()/took)
}

// byVerb are requests for each node: all, and those of each verb.
func byVerb(requests map[string]float64, nodes float64) string {
	by := map[string]float64{}
	for key, n := range requests {
		verb, _, _ := strings.Cut(key, " ")
		by[verb] += n / nodes
	}
	text := fmt.Sprintf("%.1f", Sum(by))
	for _, verb := range slices.Sorted(maps.Keys(by)) {
		text += fmt.Sprintf(", %s %.1f", verb, by[verb])
	}
	return text
}

// Print prints the tables.
func (r Report) Print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	total, bytes, nodes := Sum(r.Load.Requests), Sum(r.Load.Bytes), float64(r.Nodes)
	own, agents := Sum(r.Load.Theseus), Sum(r.Load.Agents)
	writes, reports, gates := r.writes(), r.reports(), r.gates()
	fmt.Fprintln(table, "NODES\tPODS\tESTIMATE\tRUN\tRUN/ESTIMATE\tEXIT\tPEAK MEMORY MiB\tCPU s\tDISK MB")
	fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%.2f\t%d\t%d\t%.0f\t%.0f\n",
		r.Nodes, r.Pods, r.Estimate, r.Apply.Took.Round(time.Second),
		r.Apply.Took.Seconds()/max(r.Estimate.Seconds(), 1), r.Apply.Code, r.Apply.Peak>>20,
		r.Apply.CPU.Seconds(), float64(r.Apply.Disk)/1e6)
	fmt.Fprintln(table, "\nREQUESTS\tOF THESEUS\tOF THESEUS A NODE\tOF AGENTS A NODE\tWRITES A SECOND (NO LEASES)\t"+
		"READ MB\tREPORTS READ MB\tGATES\tREPORTS kB A NODE AND GATE")
	fmt.Fprintf(table, "%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\n",
		total, own, own/nodes, agents/nodes, writes/max(r.Apply.Took.Seconds(), 1), bytes/1e6, reports/1e6, gates,
		reports/1e3/nodes/max(gates, 1))
	fmt.Fprintln(table, "\nPROGRAM\tCPU s\tCORES\tPEAK MEMORY MiB")
	for _, name := range slices.Sorted(maps.Keys(r.Usage)) {
		one := r.Usage[name]
		fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%d\n", name, one.CPU.Seconds(),
			one.CPU.Seconds()/max(r.Apply.Took.Seconds(), 1), one.Peak>>20)
	}
	fmt.Fprintln(table, "\nREQUEST\tALL\tOF THESEUS\tOF THESEUS A NODE\tOF AGENTS A NODE\tREAD MB (ALL)")
	keys := map[string]bool{}
	for _, by := range []map[string]float64{r.Load.Requests, r.Load.Theseus, r.Load.Agents} {
		for key := range by {
			keys[key] = true
		}
	}
	sorted := slices.SortedFunc(maps.Keys(keys), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Load.Requests[b], r.Load.Requests[a]), cmp.Compare(a, b))
	})
	for i, key := range sorted {
		own, agents := r.Load.Theseus[key]/nodes, r.Load.Agents[key]/nodes
		if i < shown || own >= shownNode || agents >= shownNode {
			fmt.Fprintf(table, "%s\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\n", key, r.Load.Requests[key],
				r.Load.Theseus[key], own, agents, r.Load.Bytes[key]/1e6)
		}
	}
	return table.Flush()
}

// Sum adds up requests.
func Sum(of map[string]float64) (total float64) {
	for _, n := range of {
		total += n
	}
	return total
}

// Change changes the network of the cluster, and reports what it took. The error is of what could not be run; how
// theseus ended is in the report.
func (c *Cluster) Change(ctx context.Context, more ...string) (Report, error) {
	report := Report{Nodes: c.Nodes, Pods: c.Nodes * c.Pods, Times: c.Times}
	plan, estimate, err := c.Plan(ctx, more...)
	if err != nil {
		return report, err
	}
	report.Estimate = estimate
	before, err := c.Load(ctx)
	if err != nil {
		return report, err
	}
	used := c.Usage()
	report.Apply, err = c.Theseus(ctx, "apply", plan, "--yes")
	report.Usage = c.Usage()
	for name, one := range report.Usage {
		if one.CPU >= used[name].CPU { // or it was started again
			report.Usage[name] = Usage{one.CPU - used[name].CPU, one.Peak}
		}
	}
	// What was asked until then is known too where the time was over.
	after, unread := c.Load(context.WithoutCancel(ctx))
	report.Load = after.Since(before)
	return report, errors.Join(err, unread)
}
