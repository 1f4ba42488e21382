package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/workload"
	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// Bench compares swaps: each is done in a cluster of its own, with the same workload and the same clients.
type Bench struct {
	Rig   Rig // settings of every run's rig; Dir has a folder per run
	Swaps []Swap
	Runs  int           // of each swap
	Limit time.Duration // of each swap, and again for the cluster to be healthy after it

	// Images makes the images of a network that the nodes of another do not have, and returns their files.
	Images func(ctx context.Context, network string) ([]string, error)
}

// Outcome is the result of one run of a swap.
type Outcome struct {
	Swap string `json:"swap"`
	Name string `json:"name"`
	Run  int    `json:"run"`

	Nodes       int     `json:"nodes"`
	Sent        uint64  `json:"sent"`         // requests that policy allows
	Failed      uint64  `json:"failed"`       // of these
	FailedHosts uint64  `json:"failedHosts"`  // of these, sent by clients on the nodes' own network
	LongestGap  float64 `json:"longestGapMs"` // as one client saw it
	P99Gap      float64 `json:"p99GapMs"`     // of all gaps of all clients
	Outage      float64 `json:"outageMs"`     // the longest time in which no client was served, of any kind of request
	Denied      uint64  `json:"denied"`       // requests that policy denies
	Leaked      uint64  `json:"leaked"`       // of these, got through
	Created     int     `json:"podsCreated"`  // pods of the workload that were recreated
	Restarted   int     `json:"restarts"`     // container restarts of the workload
	Wall        float64 `json:"wallSeconds"`  // from the first command to the end of the last
	WallPerNode float64 `json:"wallPerNodeSeconds"`

	Problem string        `json:"problem,omitempty"` // why the swap failed, or why the cluster is unhealthy after it
	Clients tally.Summary `json:"clients"`           // the clients' counts
}

// results is the file with all results.
type results struct {
	Started  time.Time `json:"started"`
	CPUs     int       `json:"cpus"`
	Outcomes []Outcome `json:"runs"`
}

// Run does every swap Runs times, in turn, and prints the table. A swap that fails, or after which the
// cluster never becomes healthy, is a result; a cluster that is unhealthy before the swap is an error.
func (b Bench) Run(ctx context.Context) error {
	all := results{Started: time.Now().UTC(), CPUs: runtime.NumCPU()}
	file := filepath.Join(b.Rig.Dir, "bench-loss.json")
	for n := range b.Runs {
		for _, swap := range b.Swaps {
			b.Rig.Say("run %d of %d: (%s) %s", n+1, b.Runs, swap.Key, swap.Name)
			rig := b.Rig
			rig.Outside, rig.Network, rig.To, rig.Nodes = true, swap.Network, swap.To, cmp.Or(swap.Nodes, rig.Nodes)
			if swap.To == network.Cilium {
				images, err := b.Images(ctx, swap.To)
				if err != nil {
					return err
				}
				rig.Images = images
			}
			rig.Dir = filepath.Join(b.Rig.Dir, fmt.Sprintf("%s-%d", swap.Key, n+1))
			outcome, err := b.once(ctx, &rig, swap)
			if err != nil {
				return fmt.Errorf("(%s), run %d: %w", swap.Key, n+1, err)
			}
			outcome.Run = n + 1
			all.Outcomes = append(all.Outcomes, outcome)
			text, err := json.MarshalIndent(all, "", "  ")
			if err != nil {
				return err
			}
			if err := os.WriteFile(file, text, 0o644); err != nil {
				return err
			}
			b.Rig.Say("run %d of %d: (%s) in %.0f s, %d of %d requests failed, %d of %d denied ones got through. %s",
				n+1, b.Runs, swap.Key, outcome.Wall, outcome.Failed, outcome.Sent, outcome.Leaked,
				outcome.Denied, outcome.Problem)
		}
	}
	b.Rig.Say("medians of %d; the single runs are in %s", b.Runs, file)
	return printMedians(b.Rig.Out, all.Outcomes)
}

// once does a swap in a new cluster.
func (b Bench) once(ctx context.Context, r *Rig, swap Swap) (o Outcome, err error) {
	defer func() {
		if down := r.Down(); err == nil {
			err = down
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := r.prepare(ctx, swap.Before); err != nil {
		return o, err
	}
	before, err := r.Kubectl(ctx, nil, podList...)
	if err != nil {
		return o, err
	}
	watched := r.watchPods(ctx)

	start := time.Now()
	within, over := context.WithTimeout(ctx, b.Limit)
	defer over()
	done := swap.Do(r, within)
	wall := time.Since(start)
	switch {
	case done != nil && within.Err() != nil:
		done = fmt.Errorf("not done within %s: %w", b.Limit, done)
	case done != nil:
		done = fmt.Errorf("ended after %.0f s: %w", wall.Seconds(), done)
	}
	healthy := r.healthy(ctx, cmp.Or(swap.Done, onCalico), b.Limit)
	if err := ctx.Err(); err != nil {
		return o, err // interrupted: not a result
	}
	clients, err := r.Count(ctx)
	if err != nil {
		return o, err
	}
	o = cost(clients, start)
	o.Swap, o.Name, o.Nodes = swap.Key, swap.Name, r.Nodes
	o.Wall, o.WallPerNode = wall.Seconds(), wall.Seconds()/float64(r.Nodes)
	o.Created, o.Restarted = made(before, watched())
	if err := errors.Join(done, healthy); err != nil {
		o.Problem = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return o, nil
}

// prepare starts a cluster with traffic that loses nothing. A machine that is busy with other things may need
// more than one attempt. before, if not nil, runs before the traffic.
func (r *Rig) prepare(ctx context.Context, before func(*Rig, context.Context) error) error {
	for try := 1; ; try++ {
		if err := r.Up(ctx, cmp.Or(r.Network, "flannel")); err != nil {
			return err
		}
		if err := r.Load(ctx, r.Images); err != nil {
			return err
		}
		if before != nil {
			if err := before(r, ctx); err != nil {
				return err
			}
		}
		err := r.Traffic(ctx)
		if err == nil || try == 3 || ctx.Err() != nil {
			return err
		}
		r.Say("retrying with a new cluster: %v", err)
		if err := r.Down(); err != nil {
			return err
		}
	}
}

// cost is the clients' counts in a swap that began at start.
func cost(clients tally.Summary, start time.Time) Outcome {
	o := Outcome{Clients: clients}
	var all tally.Count
	for kind, count := range clients.Kinds {
		if strings.HasPrefix(kind, deniedPrefix) {
			o.Denied += count.Sent
			o.Leaked += count.Failed
			continue
		}
		if strings.HasPrefix(kind, hostPrefix) {
			o.FailedHosts += count.Failed
		}
		all = tally.Merge(all, count)
		o.Outage = max(o.Outage, tally.Millis(count.Fine.Hole(start, clients.Updated.Add(-unrecorded))))
	}
	o.Sent, o.Failed, o.LongestGap, o.P99Gap = all.Sent, all.Failed, all.LongestGap, all.P99Gap()
	return o
}

// unrecorded is the age of requests that clients may not have recorded yet: they record every second, and only
// requests whose predecessors are all decided.
const unrecorded = 3 * time.Second

// healthy waits until all pods are ready, every node is only on the new network, and the clients lose nothing any more.
func (r *Rig) healthy(ctx context.Context, done string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := r.show(ctx, "-n", workload.Namespace, "wait", "--for=condition=Ready", "pods",
		"--all", waitLimit); err != nil {
		return fmt.Errorf("not all pods are ready: %w", err)
	}
	for _, node := range r.NodeNames() {
		if _, err := r.OnNode(ctx, node, "sh", "-c", done); err != nil {
			return fmt.Errorf("%s is not on the new network, or has pods on the old one", node)
		}
	}
	_, err := r.Steady(ctx)
	return err
}

// podList prints a line per pod of the workload: its UID, and the restart counts of its containers.
var podList = []string{"-n", workload.Namespace, "get", "pods", "-o", "jsonpath=" +
	`{range .items[*]}` + podLine + `{end}`}

const podLine = `{.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}`

// watchPods watches the workload's pods until the returned function is called, which returns a line of
// podLine for each change.
func (r *Rig) watchPods(ctx context.Context) (stop func() string) {
	ctx, cancel := context.WithCancel(ctx)
	seen := make(chan string, 1)
	go func() {
		var lines strings.Builder
		for ctx.Err() == nil { // the API server may end a watch at any time
			text, _ := r.Kubectl(ctx, nil, "-n", workload.Namespace, "get", "pods",
				"--watch", "-o", "jsonpath="+podLine)
			lines.WriteString(text)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		seen <- lines.String()
	}()
	return func() string {
		cancel()
		return <-seen
	}
}

// made counts the pods that are only in after, and the container restarts.
func made(before, after string) (created, restarted int) {
	old := restarts(before)
	for uid, n := range restarts(after) {
		earlier, known := old[uid]
		restarted += n - earlier
		if !known {
			created++
		}
	}
	return created, restarted
}

// restarts reads lines of podLine: per pod, the restart counts in its last line.
func restarts(lines string) map[string]int {
	pods := map[string]int{}
	for line := range strings.Lines(lines) {
		uid, counts, _ := strings.Cut(strings.TrimSpace(line), " ")
		sum := 0
		for _, count := range strings.Fields(counts) {
			n, _ := strconv.Atoi(count) // kubectl prints numbers
			sum += n
		}
		pods[uid] = max(pods[uid], sum)
	}
	return pods
}

// printMedians prints a line per swap, in the order in which they were first done.
func printMedians(w io.Writer, all []Outcome) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tfailed\tof these, from hosts\tsent\tlongest gap\tp99 gap\tlongest outage\tdenied, got "+
		"through\tpods made\trestarts\twall\twall per node\thealthy after\t")
	var order []string
	runs := map[string][]Outcome{}
	for _, o := range all {
		if runs[o.Swap] == nil {
			order = append(order, o.Swap)
		}
		runs[o.Swap] = append(runs[o.Swap], o)
	}
	for _, key := range order {
		of := func(value func(Outcome) float64) float64 { return median(runs[key], value) }
		well := 0
		for _, o := range runs[key] {
			if o.Problem == "" {
				well++
			}
		}
		fmt.Fprintf(table, "(%s) %s\t%.0f\t%.0f\t%.0f\t%.2f s\t%.2f s\t%.1f s\t%.0f\t%.0f\t%.0f\t%.0f s\t%.0f s\t%d "+
			"of %d\t\n", key, runs[key][0].Name,
			of(func(o Outcome) float64 { return float64(o.Failed) }),
			of(func(o Outcome) float64 { return float64(o.FailedHosts) }),
			of(func(o Outcome) float64 { return float64(o.Sent) }),
			of(func(o Outcome) float64 { return o.LongestGap / 1000 }),
			of(func(o Outcome) float64 { return o.P99Gap / 1000 }),
			of(func(o Outcome) float64 { return o.Outage / 1000 }),
			of(func(o Outcome) float64 { return float64(o.Leaked) }),
			of(func(o Outcome) float64 { return float64(o.Created) }),
			of(func(o Outcome) float64 { return float64(o.Restarted) }),
			of(func(o Outcome) float64 { return o.Wall }),
			of(func(o Outcome) float64 { return o.WallPerNode }),
			well, len(runs[key]))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, o := range all {
		if o.Problem != "" {
			if _, err := fmt.Fprintf(w, "(%s), run %d: %s\n", o.Swap, o.Run, o.Problem); err != nil {
				return err
			}
		}
	}
	return nil
}

// median is the middle of the values, or the mean of the two in the middle.
func median(all []Outcome, value func(Outcome) float64) float64 {
	var values []float64
	for _, o := range all {
		values = append(values, value(o))
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
