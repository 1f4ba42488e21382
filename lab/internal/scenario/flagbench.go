package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// Leg is one switch of a data plane, with the clients' results.
type Leg struct {
	By     string `json:"by"` // "theseus", or "hand": one edit of the cluster's value
	To     string `json:"to"`
	Run    int    `json:"run"`
	Sent   uint64 `json:"sent"`   // requests, from before the switch until the traffic was steady again
	Failed uint64 `json:"failed"` // of those that policy allows
	Leaked uint64 `json:"leaked"` // of those that policy denies
	// New connections from pods to a server outside of the cluster, which nodes masquerade, by protocol; failed ones
	// are in Failed too.
	Outside map[string]Share `json:"outside"`
	Wall    float64          `json:"wallSeconds"`
}

// Share is a part of the requests, and how many of them failed.
type Share struct {
	Sent   uint64 `json:"sent"`
	Failed uint64 `json:"failed"`
}

func (s Share) String() string { return fmt.Sprintf("%d of %d", s.Failed, s.Sent) }

func (s Share) and(other Share) Share { return Share{s.Sent + other.Sent, s.Failed + other.Failed} }

// The kinds of new connections to the outside.
const outsideTCP, outsideUDP = "outside-tcp-new", "outside-udp-new"

// outsideRate is how many new connections a second each client opens to the outside, by TCP and by UDP.
const outsideRate = 50

// FlagBench says how often a data plane is switched each way.
type FlagBench struct {
	Runs     int // by Theseus
	Controls int // by one edit of the cluster's value
}

// Run switches Calico's data plane to nftables and back, by Theseus, and then by hand as the control, in one cluster
// under traffic. A leak or loss with Theseus is an error, and so is a control without leaks: then the comparison proves
// nothing.
func (b FlagBench) Run(ctx context.Context, r *Rig) error {
	// Losses and leaks are counted below; a machine that is busy for half a second must not stop a run.
	r.Flags = append(r.Flags, "--bake", "1s", "--max-gap", "5s")
	r.WorldRate = outsideRate
	r.Say("a cluster of %s on Calico, with an application and clients of all its servers, including denied ones",
		spec.Count(r.Nodes, "node"))
	if err := r.Up(ctx, "calico"); err != nil {
		return err
	}
	if err := r.Traffic(ctx); err != nil {
		return err
	}
	var legs []Leg
	for _, by := range []struct {
		name   string
		runs   int
		do     func(ctx context.Context, value string) error
		settle time.Duration // until the requests of a leg are recorded
		after  func(ctx context.Context) error
	}{
		{"theseus", b.Runs, func(ctx context.Context, value string) error {
			return r.Rollout(ctx, filepath.Join(r.Dir, value+".yaml"), "nftablesMode="+value)
		}, 2 * time.Second, nil},
		{"hand", b.Controls, r.switchByHand, 5 * time.Second, r.forget},
	} {
		before, err := r.Steady(ctx)
		if err != nil {
			return err
		}
		for run := range by.runs {
			for _, value := range []string{"Enabled", "Disabled"} {
				begun := time.Now()
				if err := by.do(ctx, value); err != nil {
					return fmt.Errorf("%s to nftablesMode=%s, run %d: %w", by.name, value, run+1, err)
				}
				wall := time.Since(begun)
				if run == by.runs-1 && value == "Disabled" {
					by.settle = patience // no later leg counts the late requests of the last one
				}
				after, err := r.countAfter(ctx, by.settle)
				if err != nil {
					return err
				}
				leg := legOf(before, after)
				leg.By, leg.To, leg.Run, leg.Wall = by.name, value, run+1, wall.Seconds()
				legs, before = append(legs, leg), after
				r.Say("%s, run %d of %d, nftablesMode=%s: %d lost, %d leaked of %d, in %.0f s; of new connections to "+
					"the outside, TCP lost %v, UDP %v",
					by.name, run+1, by.runs, value, leg.Failed, leg.Leaked, leg.Sent, leg.Wall,
					leg.Outside[outsideTCP], leg.Outside[outsideUDP])
				if by.after != nil {
					if err := by.after(ctx); err != nil {
						return err
					}
					if before, err = r.Steady(ctx); err != nil {
						return err
					}
				}
				text, err := json.MarshalIndent(legs, "", "  ")
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(r.Dir, "bench-flags.json"), text, 0o644); err != nil {
					return err
				}
			}
		}
	}
	return r.printLegs(legs)
}

// patience is longer than clients wait for an answer.
const patience = 7 * time.Second

// countAfter counts after some time.
func (r *Rig) countAfter(ctx context.Context, pause time.Duration) (tally.Summary, error) {
	select {
	case <-ctx.Done():
		return tally.Summary{}, ctx.Err()
	case <-time.After(pause):
		return r.Count(ctx)
	}
}

// legOf has the clients' results between two counts.
func legOf(before, after tally.Summary) Leg {
	failedBefore, leakedBefore := losses(before)
	failed, leaked := losses(after)
	leg := Leg{Sent: after.Sent() - before.Sent(), Failed: failed - failedBefore, Leaked: leaked - leakedBefore,
		Outside: map[string]Share{}}
	for _, kind := range []string{outsideTCP, outsideUDP} {
		leg.Outside[kind] = Share{after.Kinds[kind].Sent - before.Kinds[kind].Sent,
			after.Kinds[kind].Failed - before.Kinds[kind].Failed}
	}
	return leg
}

// forget removes flows that policy denies from the nodes' connection tracking: leaked flows would leak forever.
func (r *Rig) forget(ctx context.Context) error {
	for _, node := range r.NodeNames() {
		// conntrack fails if there is no such entry.
		if _, err := r.OnNode(ctx, node, "sh", "-c",
			"conntrack -D -p udp --orig-port-dst 8082 2>/dev/null || true"); err != nil {
			return err
		}
	}
	return nil
}

// switchByHand edits the cluster's value, and waits until every node has its rules in one data plane.
func (r *Rig) switchByHand(ctx context.Context, value string) error {
	patch := fmt.Sprintf(`{"spec": {"nftablesMode": %q}}`, value)
	if _, err := r.Kubectl(ctx, nil, "patch", "felixconfiguration", "default", "--type",
		"merge", "-p", patch); err != nil {
		return err
	}
	const rules = `echo $( (iptables-nft-save; iptables-legacy-save) 2>/dev/null | grep -c '^:cali-') $(nft list tables | grep -c 'calico$')`
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for _, node := range r.NodeNames() {
		for {
			out, err := r.OnNode(ctx, node, "sh", "-c", rules)
			if err != nil {
				return err
			}
			has := strings.Fields(out)
			if len(has) == 2 && (has[0] == "0") == (value == "Enabled") && (has[1] == "0") == (value == "Disabled") {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s did not get its rules: %w", node, ctx.Err())
			case <-time.After(500 * time.Millisecond):
			}
		}
	}
	return nil
}

func (r *Rig) printLegs(legs []Leg) error {
	table := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "BY\tnftablesMode\tRUNS\tREQUESTS\tLOST\tLEAKED\tTO OUTSIDE, TCP LOST\tUDP "+
		"LOST\tRUNS THAT LEAKED\tSECONDS EACH")
	sums := map[string]*LossError{"theseus": {}, "hand": {}}
	for _, by := range []string{"theseus", "hand"} {
		for _, to := range []string{"Enabled", "Disabled"} {
			sum, tcp, udp, n, leaking := Leg{}, Share{}, Share{}, 0, 0
			for _, leg := range legs {
				if leg.By == by && leg.To == to {
					sum.Sent, sum.Failed, sum.Leaked, sum.Wall = sum.Sent+leg.Sent, sum.Failed+leg.Failed,
						sum.Leaked+leg.Leaked, sum.Wall+leg.Wall
					tcp, udp = tcp.and(leg.Outside[outsideTCP]), udp.and(leg.Outside[outsideUDP])
					n++
					if leg.Leaked > 0 {
						leaking++
					}
				}
			}
			if n > 0 {
				fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%v\t%v\t%d\t%.0f\n",
					by, to, n, sum.Sent, sum.Failed, sum.Leaked, tcp, udp, leaking, sum.Wall/float64(n))
			}
			sums[by].Failed, sums[by].Leaked = sums[by].Failed+sum.Failed, sums[by].Leaked+sum.Leaked
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if mine := sums["theseus"]; mine.Failed+mine.Leaked > 0 {
		return mine
	}
	if sums["hand"].Leaked == 0 {
		return errors.New("the control had no leaks, so the comparison proves nothing")
	}
	return nil
}
