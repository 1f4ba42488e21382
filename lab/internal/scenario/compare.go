package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/compare"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// CalicoNftables is Calico with its rules in nftables, and kube-proxy in that mode.
const CalicoNftables = "calico-nftables"

// Base is the network of the lab on which a compared network is made.
func Base(network string) string {
	if network == CalicoNftables {
		return "calico"
	}
	return network
}

// Compare measures several networks under the same load, each in a cluster of its own.
type Compare struct {
	Rig      Rig // settings of every cluster's rig; Name begins the names of the clusters, Dir has a folder for each
	Networks []string
	Rounds   int
	Duration time.Duration // of each measurement
	Rate     int           // datagrams and requests a second
	Megabits int           // of TCP, in Mbit/s
}

// FailedError says that some measurements of a comparison have no whole result.
type FailedError struct{ Runs []compare.Run }

func (e *FailedError) Error() string {
	var runs []string
	for _, run := range e.Runs {
		runs = append(runs, fmt.Sprintf("%s in round %d", run.Network, run.Round))
	}
	return "failed: " + strings.Join(runs, ", ")
}

// measureLimit bounds one benchmark: only one that hangs reaches it.
const measureLimit = 10 * time.Minute

// load are the flags of each benchmark. The bound on round trips is the greatest that theseus allows, so that a network
// that is slow under load is measured and not stopped. Where it loses packets, the other measurements follow.
func (c Compare) load() []string {
	return []string{"--runs", "1", "--duration", c.Duration.String(), "--rate", fmt.Sprint(c.Rate),
		"--throughput", fmt.Sprint(c.Megabits), "--link-share", "100", // no real link
		"--max-cpu-share", "100", // a network that fills the machine is measured
		"--max-round-trip", min(c.Duration/2, time.Second).String(), "--keep-going"}
}

// Run starts all clusters, measures the networks in rounds, and removes the clusters, also if ctx ends.
func (c Compare) Run(ctx context.Context) (err error) {
	result := &compare.Comparison{Began: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(),
		Nodes: c.Rig.Nodes, Rounds: c.Rounds, Load: c.load()}
	rigs := map[string]*Rig{}
	defer func() {
		c.Rig.Say("removing the clusters")
		for name, rig := range rigs {
			down := rig.Down()
			switch {
			case down != nil && err == nil:
				err = fmt.Errorf("remove the cluster of %s: %w", name, down)
			case down != nil: // the first error counts
				fmt.Fprintf(c.Rig.Out, "%s: %v\n", name, down)
			}
		}
	}()
	for i, name := range c.Networks {
		rig := c.rig(i, name)
		rigs[name] = rig
		c.Rig.Say("%s: a cluster of %s", name, spec.Count(rig.Nodes, "node"))
		err := rig.comparable(ctx, name)
		if err == nil && i == 0 { // bounds that theseus refuses are refused before there are more clusters
			_, err = rig.Run(ctx, c.bench(rig, "--dry-run")...)
		}
		if err != nil {
			return fmt.Errorf("the cluster of %s: %w", name, cmp.Or(ctx.Err(), err))
		}
		result.Networks = append(result.Networks, compare.Network{Name: name, With: with(name)})
	}
	for round := 1; round <= c.Rounds; round++ {
		c.Rig.Say("round %d of %d", round, c.Rounds)
		for _, name := range compare.Order(c.Networks, round) {
			run := c.measure(ctx, rigs[name], name, round)
			if err := ctx.Err(); err != nil {
				if len(result.Runs) > 0 {
					c.Rig.Say("results so far are in compare.json and compare.html in %s", c.Rig.Dir)
				}
				return fmt.Errorf("round %d, %s: %w", round, name, err)
			}
			fmt.Fprintf(c.Rig.Out, "%s: %.0f s %s\n", name, run.Seconds, run.Failed)
			result.Runs = append(result.Runs, run)
			if err := c.keep(ctx, result); err != nil {
				return err
			}
		}
	}
	return c.show(result)
}

// ClusterName is the name of the lab of the i-th network.
func ClusterName(name string, i int) string { return fmt.Sprintf("%s%c", name, 'a'+i) }

// rig is the rig of the i-th network.
func (c Compare) rig(i int, name string) *Rig {
	rig := c.Rig
	rig.Name, rig.Network = ClusterName(c.Rig.Name, i), Base(name)
	rig.Dir = filepath.Join(c.Rig.Dir, name)
	if name == CalicoNftables {
		rig.Proxy = "nftables"
	}
	return &rig
}

// comparable starts the cluster of a network.
func (r *Rig) comparable(ctx context.Context, name string) error {
	if err := r.Up(ctx, r.Network); err != nil {
		return err
	}
	if name != CalicoNftables {
		return nil
	}
	return r.switchByHand(ctx, "Enabled")
}

// with says what runs with a network.
func with(name string) string {
	switch name {
	case "flannel", "bridge", "kindnet":
		return "kube-router, which enforces policy"
	case CalicoNftables:
		return "kube-proxy in mode nftables, the others with iptables"
	}
	return ""
}

// bench is the command of one benchmark.
func (c Compare) bench(r *Rig, more ...string) []string {
	args := append([]string{"bench", "network", "--agent-image", AgentImage, "--nodes",
		strings.Join(r.NodeNames()[:2], ",")}, c.load()...)
	return append(args, more...)
}

// measure runs one benchmark. One that fails, or is stopped by its load, is a result.
func (c Compare) measure(ctx context.Context, r *Rig, name string, round int) compare.Run {
	ctx, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	start := time.Now()
	out, err := r.run(ctx, nil, nil, r.Theseus, c.bench(r, "--yes", "-o", "json")...)
	run := compare.Run{Network: name, Round: round, Seconds: time.Since(start).Seconds()}
	if json.Valid([]byte(out)) {
		run.Result = json.RawMessage(out)
	}
	switch {
	case err != nil:
		run.Failed = reason(err)
		log := filepath.Join(c.Rig.Dir, fmt.Sprintf("round-%d-%s.log", round, name))
		if kept := os.WriteFile(log, []byte(err.Error()+"\n"), 0o644); kept != nil {
			run.Failed += "; " + kept.Error()
		}
	case run.Result == nil:
		run.Failed = "theseus printed no result"
	}
	return run
}

// reason is the line of theseus's error, if it printed one.
func reason(err error) string {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err.Error()
	}
	_, printed, _ := strings.Cut(err.Error(), exit.String()+" ") // as Rig.run puts it
	for line := range strings.Lines(printed) {
		if text, ok := strings.CutPrefix(line, "error: "); ok {
			return strings.TrimSpace(text)
		}
	}
	return "theseus bench network: " + exit.String()
}

// drawings are those of all results so far, drawn by theseus itself.
func (c Compare) drawings(ctx context.Context, result *compare.Comparison) (d compare.Drawings, err error) {
	args := []string{"bench", "draw"}
	for _, run := range result.Runs {
		if len(run.Result) == 0 {
			continue
		}
		file := filepath.Join(c.Rig.Dir, fmt.Sprintf("round-%d-%s.json", run.Round, run.Network))
		if err := os.WriteFile(file, run.Result, 0o644); err != nil {
			return d, err
		}
		args = append(args, run.Network+"="+file)
	}
	if len(args) == 2 {
		return d, nil
	}
	page, err := c.Rig.run(ctx, nil, nil, c.Rig.Theseus, args...)
	if err != nil {
		return d, err
	}
	return compare.DrawingsOf(page)
}

// keep writes what is known so far as JSON and as a page.
func (c Compare) keep(ctx context.Context, result *compare.Comparison) error {
	if err := result.Sum(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Rig.Dir, "compare.json"), text, 0o644); err != nil {
		return err
	}
	drawings, err := c.drawings(ctx, result)
	if err != nil {
		return fmt.Errorf("theseus bench draw: %w", err)
	}
	page, err := os.Create(filepath.Join(c.Rig.Dir, "compare.html"))
	if err != nil {
		return err
	}
	return errors.Join(result.WritePage(page, drawings), page.Close())
}

// show prints the table. Failed measurements are an error.
func (c Compare) show(result *compare.Comparison) error {
	c.Rig.Say("results; also in compare.json and compare.html in %s", c.Rig.Dir)
	if err := result.WriteTable(c.Rig.Out); err != nil {
		return err
	}
	if failed := result.FailedRuns(); len(failed) > 0 {
		return &FailedError{failed}
	}
	return nil
}
