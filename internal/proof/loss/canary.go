package loss

import (
	"fmt"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// slotLength is the shortest time between two calls of Look that count as separate slots.
const slotLength = time.Second

// enough nodes without the change are compared with alone. If there are fewer, the results of nodes before they were
// changed are compared with, too.
const enough = 10

// Canary compares nodes that have a change with those that do not: what they lose, and how long answers take. Look may
// be called any number of times. The zero value is ready.
type Canary struct {
	lost            comparison
	last            map[string]v1alpha1.PathResult
	at              time.Time
	changed, others Tally
	slow            slowness
	// losing is true if the node that was changed last lost probes in the last slot, and no other node did.
	losing bool
}

// Look evaluates reports. changed are the nodes that have the change by now, the latest last. A path counts for the
// latest of its changed ends. It counts for the other nodes only if none of its ends is changed, or could be (a
// Service's).
func (c *Canary) Look(paths []v1alpha1.Path, reports []v1alpha1.ProbeReport, changed []string, at time.Time) {
	if !c.at.IsZero() && at.Sub(c.at) < slotLength {
		return
	}
	results := byPath(reports)
	fresh, old, turns := map[string]nodeSum{}, map[string]nodeSum{}, turnsOf(changed)
	for _, path := range paths {
		now, ok := results[path.ID]
		then, known := c.last[path.ID]
		if !ok || path.Denied || !known || restarted(then, now) {
			continue
		}
		counts := between(path.Denied, then, now)
		sent, lost := counts.Sent, counts.Lost
		if lost > 0 && explained(then, now) {
			lost = 0 // lost by the target's prober: gates check whether it was absent
		}
		latest := max(turns[path.Source.Node], turns[path.Target.Node]) - 1
		switch {
		case sent == 0:
		case latest >= 0:
			n := fresh[changed[latest]]
			fresh[changed[latest]] = nodeSum{n.sent + sent, n.lost + lost}
			c.changed.add(sent, lost)
		case path.Target.Node != "" || len(changed) == 0:
			n := old[path.Source.Node]
			old[path.Source.Node] = nodeSum{n.sent + sent, n.lost + lost}
			c.others.add(sent, lost)
		}
	}
	c.at, c.last = at, results
	c.losing = len(changed) > 0 && fresh[changed[len(changed)-1]].lost > 0 && !lossy(old)
	c.lost.bet(fresh, old)
	c.slow.look(paths, results, changed, at)
}

// explained reports whether a path's second responder answered in each gap that ended, or continued, since an earlier
// result.
func explained(then, now v1alpha1.PathResult) bool {
	gaps := slices.DeleteFunc(slices.Clone(now.Gaps), func(gap v1alpha1.Gap) bool {
		return !gap.From.Add(time.Duration(gap.Millis * float64(time.Millisecond))).After(then.Last)
	})
	if now.Open != nil {
		gaps = append(gaps, *now.Open)
	}
	return len(gaps) > 0 && !slices.ContainsFunc(gaps, func(gap v1alpha1.Gap) bool { return !seconded(gap.Second) })
}

// turnsOf counts the changed nodes from 1 on.
func turnsOf(changed []string) map[string]int {
	turns := map[string]int{}
	for i, node := range changed {
		turns[node] = i + 1
	}
	return turns
}

// lossy reports whether any of the given nodes lost probes.
func lossy(nodes map[string]nodeSum) bool {
	for _, n := range nodes {
		if n.lost > 0 {
			return true
		}
	}
	return false
}

// Stop reports whether the evidence against the change is enough to stop, and why in plain words.
func (c *Canary) Stop() (stop bool, why string) {
	figures := fmt.Sprintf("%s of %s probes lost on changed nodes, %s of %s on the others",
		count(c.changed.Lost), count(c.changed.Sent), count(c.others.Lost), count(c.others.Sent))
	if stop, because, _ := c.lost.stop(Alpha); stop {
		return true, figures + because
	}
	if stop, because, names := c.slow.stop(Alpha); stop {
		return true, c.slow.figures(names) + because
	}
	return false, figures
}

// doubt is the evidence from which a gate does not pass yet. Without a fault, one in ten rollouts reaches it.
const doubt = 10

// Doubt reports whether to continue watching, although the evidence is not enough to stop: while the node that was
// changed last is losing probes, however briefly, and while the evidence is strong. Evidence that does not repeat
// fades.
func (c *Canary) Doubt() bool { return c.losing || max(c.lost.most(), c.slow.most()) >= doubt }
