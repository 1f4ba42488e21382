package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

// busyClients is how many clients send 1,000 requests a second together.
const busyClients = "4"

// crowd are idle pods.
const crowd = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: crowd, namespace: shop}
spec:
  replicas: %d
  selector: {matchLabels: {app: crowd}}
  template:
    metadata: {labels: {app: crowd}}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      containers:
        - name: crowd
          image: theseus.dev/workload:lab
          imagePullPolicy: IfNotPresent
          resources: {requests: {cpu: 5m, memory: 8Mi}}
          args: [serve, "--http=:8080"]
`

// crowding is a report's section about moved pods.
type crowding struct {
	Totals struct {
		Pods, Evicted, Restarts  int
		Requests, Failed, Leaked int
	}
	Adopted struct {
		Pods, Measured, Sent, Lost                  int
		FlipMicros                                  [3]int64
		FlipGapMillis, LongestMillis, ControlMillis [3]float64
	}
	Moves []struct {
		Node, Step string
		Begin, End time.Time
	}
	Control Leg `json:"-"` // results of the same clients before the change
}

// AdoptBench says how many pods are moved, how often, and for how long the same traffic is counted before.
type AdoptBench struct {
	Runs, Pods int
	Control    time.Duration
}

// Run moves clusters by adoption, one after another, and prints a line per run. A loss is an error.
func (b AdoptBench) Run(ctx context.Context, r *Rig) error {
	r.Network, r.Strategy, r.Outside = "flannel", "adopt", true
	var lines strings.Builder
	table := tabwriter.NewWriter(&lines, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RUN\tPODS\tRECREATED\tRESTARTS\tREQUESTS\tFAILED\tLEAKED\tCONTROL\tPROBES\tLOST\tGAP AT "+
		"FLIP ms\tLONGEST ms\tCONTROL ms\tFLIP µs\tONE POD s\tBUSIEST NODE")
	var loss LossError
	for run := range b.Runs {
		one := *r
		one.Dir = filepath.Join(r.Dir, fmt.Sprint(run+1))
		seen, err := one.crowded(ctx, b)
		if down := one.Down(); err == nil {
			err = down
		}
		if err != nil {
			return fmt.Errorf("run %d: %w", run+1, err)
		}
		t, a, c := seen.Totals, seen.Adopted, seen.Control
		t.Requests, t.Failed, t.Leaked = t.Requests-int(c.Sent), t.Failed-int(c.Failed), t.Leaked-int(c.Leaked)
		loss.Failed, loss.Leaked = loss.Failed+uint64(t.Failed), loss.Leaked+uint64(t.Leaked)
		single, node := seen.times()
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d of %d\t%d\t%d\t%s\t%s\t%s\t%d/%d/%d\t%s\t%s\n",
			run+1, a.Pods, t.Evicted, t.Restarts, t.Requests, t.Failed, t.Leaked, c.Failed, c.Sent, a.Sent, a.Lost,
			triple(a.FlipGapMillis), triple(a.LongestMillis), triple(a.ControlMillis), a.FlipMicros[0], a.FlipMicros[1],
			a.FlipMicros[2], single, node)
	}
	r.Say("%s; three figures are the median, the p99 and the maximum over the pods; CONTROL: requests that failed in "+
		"%s before the change", spec.Count(b.Runs, "run"), b.Control)
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprint(r.Out, lines.String())
	if loss != (LossError{}) {
		return &loss
	}
	return nil
}

func triple(v [3]float64) string { return fmt.Sprintf("%.1f/%.1f/%.1f", v[0], v[1], v[2]) }

// times formats how long the moves of pods took, and, for the node with the most pods, the time from the first to the
// last.
func (c *crowding) times() (single, node string) {
	var each []float64
	type span struct {
		pods       int
		begin, end time.Time
	}
	spans := map[string]*span{}
	for _, m := range c.Moves {
		each = append(each, m.End.Sub(m.Begin).Seconds())
		key := m.Node + " " + m.Step
		s := spans[key]
		if s == nil {
			s = &span{begin: m.Begin, end: m.End}
			spans[key] = s
		}
		s.pods++
		if m.Begin.Before(s.begin) {
			s.begin = m.Begin
		}
		if m.End.After(s.end) {
			s.end = m.End
		}
	}
	if len(each) == 0 {
		return "-", "-"
	}
	slices.Sort(each)
	most := &span{}
	for _, s := range spans {
		if s.pods > most.pods {
			most = s
		}
	}
	at := func(q float64) float64 { return each[int(q*float64(len(each)-1)+0.5)] }
	return fmt.Sprintf("%.2f/%.2f/%.2f", at(0.5), at(0.99), at(1)), fmt.Sprintf("%s in %.1f s",
		spec.Count(most.pods, "pod"), most.end.Sub(most.begin).Seconds())
}

// crowded does one run.
func (r *Rig) crowded(ctx context.Context, b AdoptBench) (*crowding, error) {
	r.Say("a cluster of %s on flannel with %s", spec.Count(r.Nodes, "node"), spec.Count(b.Pods, "pod"))
	if err := r.Up(ctx, "flannel"); err != nil {
		return nil, err
	}
	if err := r.Traffic(ctx); err != nil { // everything is ready, and no request fails
		return nil, err
	}
	if _, err := r.Kubectl(ctx, nil, "-n", workload.Namespace, "scale", "deployment", "drive",
		"--replicas", busyClients); err != nil {
		return nil, err
	}
	there, err := r.Kubectl(ctx, nil, "get", "pods", "-A", "-o",
		`jsonpath={range .items[*]}{.spec.hostNetwork}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	missing := b.Pods - strings.Count(there, "\n") + strings.Count(there, "true\n")
	if _, err := r.Kubectl(ctx, strings.NewReader(fmt.Sprintf(crowd, max(missing, 0))),
		"apply", "-f", "-"); err != nil {
		return nil, err
	}
	for _, deployment := range []string{"drive", "crowd"} {
		if _, err := r.Kubectl(ctx, nil, "-n", workload.Namespace, "rollout", "status", "deployment/"+deployment,
			"--timeout=180s"); err != nil {
			return nil, err
		}
	}
	begun, err := r.Steady(ctx)
	if err != nil {
		return nil, err
	}
	r.Say("%s of the same traffic before the change", b.Control)
	before, err := r.countAfter(ctx, b.Control)
	if err != nil {
		return nil, err
	}
	if err := r.Migrate(ctx); err != nil {
		return nil, err
	}
	cost, err := r.Steady(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.Report(ctx, cost); err != nil {
		return nil, err
	}
	text, err := r.run(ctx, nil, nil, r.Theseus, "report", "--traffic", r.traffic(), "-o", "json")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(r.Dir, "report.json"), []byte(text), 0o644); err != nil {
		return nil, err
	}
	seen := &crowding{Control: legOf(begun, before)}
	return seen, json.Unmarshal([]byte(text), seen)
}
