package loss

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// slotLength is the shortest time between two looks that count as slots of their own.
const slotLength = time.Second

// enough nodes without the change are compared with alone. Where there are fewer, what nodes did before they were
// changed is compared with too.
const enough = 10

// Canary compares nodes that have a change with those that have not, over as many looks as one likes. The zero value is
// ready.
type Canary struct {
	pooled          Process
	single          map[string]*evidence
	last            map[string]v1alpha1.PathResult
	at              time.Time
	before          past
	changed, others Tally
}

// evidence is that against one node: half the stake is bet on what others do at the same time, half on what nodes did
// before.
type evidence struct{ now, before Process }

func (e *evidence) value() float64 { return (e.now.Value() + e.before.Value()) / 2 }

// past sums up slots of nodes that were not changed yet.
type past struct{ slots, bad, sent int64 }

// odds of a slot being bad, per probe sent. One bad slot that was not seen is added, so that luck is no proof.
func (h past) odds() float64 {
	return float64(h.bad+1) / float64(h.slots-h.bad+1) / (float64(h.sent) / float64(h.slots))
}

// nodeSum is what one node sent and lost in a slot.
type nodeSum struct{ sent, lost int64 }

// Look takes in reports. changed are the nodes that have the change by now, the latest last. A path counts for the
// latest of its changed ends; for the others it counts only when none of its ends is changed, or could be (a Service's).
func (c *Canary) Look(paths []v1alpha1.Path, reports []v1alpha1.ProbeReport, changed []string, at time.Time) {
	if !c.at.IsZero() && at.Sub(c.at) < slotLength {
		return
	}
	results := byPath(reports)
	fresh, old := map[string]nodeSum{}, map[string]nodeSum{}
	for _, path := range paths {
		now, ok := results[path.ID]
		then, known := c.last[path.ID]
		if !ok || path.Denied || !known || restarted(then, now) {
			continue
		}
		sent := now.Sent - then.Sent
		lost := sent - (now.Answered - then.Answered)
		latest := max(slices.Index(changed, path.Source.Node), slices.Index(changed, path.Target.Node))
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
	c.bet(fresh, old)
}

// bet adds the slot to the evidence.
func (c *Canary) bet(fresh, old map[string]nodeSum) {
	slot := Slot{Changed: len(fresh), Control: len(old)}
	var sent, controls int64
	for _, n := range fresh {
		slot.ChangedBad += one(n.lost > 0)
		sent += n.sent
	}
	for _, n := range old {
		slot.ControlBad += one(n.lost > 0)
		controls += n.sent
	}
	per := float64(controls) / float64(max(len(old), 1))
	if len(fresh) > 0 && controls > 0 {
		slot.Exposure = float64(sent) / float64(len(fresh)) / per
	}
	c.pooled.Add(slot)
	remember := len(old) < enough && slot.ControlBad == 0 && c.before.slots > 0
	for name, n := range fresh {
		if c.single == nil {
			c.single = map[string]*evidence{}
		}
		if c.single[name] == nil {
			c.single[name] = &evidence{}
		}
		if controls > 0 {
			alone := slot
			alone.Changed, alone.ChangedBad, alone.Exposure = 1, one(n.lost > 0), float64(n.sent)/per
			c.single[name].now.Add(alone)
		}
		if remember {
			c.single[name].before.AddKnown(c.before.odds()*float64(n.sent), n.lost > 0)
		}
	}
	c.before = past{c.before.slots + int64(len(old)), c.before.bad + int64(slot.ControlBad), c.before.sent + controls}
}

func one(holds bool) int {
	if holds {
		return 1
	}
	return 0
}

// Stop says whether the evidence against the change is enough to stop, and why in plain words.
func (c *Canary) Stop() (stop bool, why string) {
	figures := fmt.Sprintf("%s of %s probes lost on changed nodes, %s of %s on the others", count(c.changed.Lost), count(c.changed.Sent),
		count(c.others.Lost), count(c.others.Sent))
	names, values := c.ranked()
	bad := worst(values, Alpha)
	switch {
	case bad > 0:
		return true, fmt.Sprintf("%s: stop, because of %s (evidence %s to 1)", figures, strings.Join(names[:bad], ", "), count(int64(min(values[0], 1e15))))
	case c.pooled.Value() >= 1/Alpha:
		return true, fmt.Sprintf("%s: stop (evidence %s to 1)", figures, count(int64(min(c.pooled.Value(), 1e15))))
	}
	return false, figures
}

// ranked are the changed nodes and the evidence against each, the strongest first.
func (c *Canary) ranked() (names []string, values []float64) {
	for name := range c.single {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := c.single[a].value(), c.single[b].value()
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		values = append(values, c.single[name].value())
	}
	return names, values
}
