package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// Leg is one switch of a data plane, and what the clients saw of it.
type Leg struct {
	By     string  `json:"by"` // "theseus", or "hand": one edit of the cluster's value
	To     string  `json:"to"`
	Run    int     `json:"run"`
	Sent   uint64  `json:"sent"`   // requests, from before the switch until the traffic was steady again
	Failed uint64  `json:"failed"` // of those that policy allows
	Leaked uint64  `json:"leaked"` // of those that policy denies
	Wall   float64 `json:"wallSeconds"`
}

// BenchFlags switches Calico's data plane to nftables and back, so often each way: by Theseus, and then by one edit of the
// cluster's value as the control, in one cluster under traffic. A leak or loss by Theseus is an error.
func BenchFlags(ctx context.Context, r *Rig, runs int) error {
	r.Say("a cluster of %d nodes on Calico, and clients that use all of it, denied ones among them", r.Nodes)
	if err := r.Up(ctx, "calico"); err != nil {
		return err
	}
	if err := r.Traffic(ctx); err != nil {
		return err
	}
	var legs []Leg
	for _, by := range []struct {
		name string
		do   func(ctx context.Context, value string) error
	}{{"theseus", func(ctx context.Context, value string) error {
		return r.Rollout(ctx, filepath.Join(r.Dir, value+".yaml"), "nftablesMode="+value)
	}}, {"hand", r.switchByHand}} {
		for run := range runs {
			for _, value := range []string{"Enabled", "Disabled"} {
				leg, err := r.leg(ctx, func() error { return by.do(ctx, value) })
				if err != nil {
					return fmt.Errorf("%s to nftablesMode=%s, run %d: %w", by.name, value, run+1, err)
				}
				leg.By, leg.To, leg.Run = by.name, value, run+1
				legs = append(legs, leg)
				r.Say("%s, run %d of %d, nftablesMode=%s: %d lost, %d leaked of %d, in %.0f s", by.name, run+1, runs, value, leg.Failed, leg.Leaked, leg.Sent, leg.Wall)
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

// leg counts what the clients see of a switch.
func (r *Rig) leg(ctx context.Context, do func() error) (Leg, error) {
	before, err := r.Count(ctx)
	if err != nil {
		return Leg{}, err
	}
	begun := time.Now()
	if err := do(); err != nil {
		return Leg{}, err
	}
	wall := time.Since(begun)
	settle, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	after, err := r.Steady(settle)
	if err != nil && settle.Err() == nil {
		return Leg{}, err // what leaks without end is counted
	}
	failedBefore, leakedBefore := losses(before)
	failed, leaked := losses(after)
	return Leg{Sent: after.Sent() - before.Sent(), Failed: failed - failedBefore, Leaked: leaked - leakedBefore, Wall: wall.Seconds()}, ctx.Err()
}

// switchByHand edits the cluster's value, and waits until every node has its rules in one data plane.
func (r *Rig) switchByHand(ctx context.Context, value string) error {
	patch := fmt.Sprintf(`{"spec": {"nftablesMode": %q}}`, value)
	if _, err := r.Kubectl(ctx, nil, "patch", "felixconfiguration", "default", "--type", "merge", "-p", patch); err != nil {
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
				return fmt.Errorf("the rules of %s never came: %w", node, ctx.Err())
			case <-time.After(500 * time.Millisecond):
			}
		}
	}
	return nil
}

func (r *Rig) printLegs(legs []Leg) error {
	table := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "BY\tnftablesMode\tRUNS\tREQUESTS\tLOST\tLEAKED\tSECONDS EACH")
	var mine LossError
	for _, by := range []string{"theseus", "hand"} {
		for _, to := range []string{"Enabled", "Disabled"} {
			sum, n := Leg{}, 0
			for _, leg := range legs {
				if leg.By == by && leg.To == to {
					sum.Sent, sum.Failed, sum.Leaked, sum.Wall = sum.Sent+leg.Sent, sum.Failed+leg.Failed, sum.Leaked+leg.Leaked, sum.Wall+leg.Wall
					n++
				}
			}
			if by == "theseus" {
				mine.Failed, mine.Leaked = mine.Failed+sum.Failed, mine.Leaked+sum.Leaked
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%.0f\n", by, to, n, sum.Sent, sum.Failed, sum.Leaked, sum.Wall/float64(n))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if mine.Failed+mine.Leaked > 0 {
		return &mine
	}
	return nil
}
