package node

import (
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed clock_skew.md
var clockSkewDoc string

// skewed is how far a clock may be from the others.
const skewed = 2 * time.Second

// ClockSkew reports nodes whose clocks differ from the others.
func ClockSkew() check.Check {
	return check.Check{
		ID:    "node/clock-skew",
		Title: "A node's clock differs from the others",
		Doc:   clockSkewDoc,
		Needs: []string{"nodes", "host"},
		Run:   clockSkew,
	}
}

func clockSkew(pass *check.Pass) []finding.Finding {
	// A node's clock is ahead of the asker's by something between low and high.
	type bounds struct{ low, high time.Duration }
	all := make([]bounds, len(pass.Snapshot.Facts))
	var middles []time.Duration
	for i := range all {
		clock := pass.Snapshot.Facts[i].Host.Clock
		all[i] = bounds{clock.At.Sub(clock.Answered), clock.At.Sub(clock.Asked)}
		middles = append(middles, (all[i].low+all[i].high)/2)
	}
	slices.Sort(middles)
	var found []finding.Finding
	var alone []string
	for i, b := range all {
		facts := &pass.Snapshot.Facts[i]
		usual := middles[len(middles)/2]
		ahead, behind := b.low-usual, usual-b.high
		if off := max(ahead, behind); off > skewed {
			word := "ahead of"
			if behind > ahead {
				word = "behind"
			}
			found = append(found, finding.Finding{
				ID: "node/clock-skew", Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: facts.Node},
				Message: fmt.Sprintf("its clock is at least %s %s the other nodes': newly issued certificates and "+
					"tokens are not valid there yet, or no longer, and its logs cannot be compared with the others'",
					off.Round(time.Millisecond), word),
				Evidence: map[string]any{"seconds": off.Seconds(), "unsynchronised": facts.Host.Clock.Unsynchronised},
				Fix:      "on the node: chronyc makestep, or timedatectl set-ntp true",
			})
		} else if facts.Host.Clock.Unsynchronised {
			alone = append(alone, facts.Node)
		}
	}
	if len(alone) > 0 {
		found = append(found, finding.Finding{
			ID: "node/clock-skew", Severity: finding.Info, Subject: finding.Subject{Kind: "Node", Name: alone[0]},
			Message: fmt.Sprintf("the clocks of %s are not synchronised (%s), but they agree today",
				cluster.Count(len(alone), "node"), check.Names(alone)),
			Evidence: map[string]any{"nodes": alone},
			Fix:      "run chrony or systemd-timesyncd on every node",
		})
	}
	return found
}
