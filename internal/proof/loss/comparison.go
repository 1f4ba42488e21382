package loss

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// comparison is the evidence that changed nodes are bad more often than others: of all of them together, and of each.
type comparison struct {
	pooled Process
	single map[string]*evidence
	before past
}

// evidence is the evidence against one node: half of the stake is bet against other nodes in the same slot, half
// against nodes before the change.
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

// bet adds a slot to the evidence: the results of changed nodes, and of the others.
func (c *comparison) bet(fresh, old map[string]nodeSum) {
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

// stop reports whether the evidence is enough, with a chance of alpha of being wrong, and against which nodes; none if
// it is against all of them together.
func (c *comparison) stop(alpha float64) (stop bool, because string, names []string) {
	names, values := c.ranked()
	bad := worst(values, alpha)
	switch {
	case bad > 0:
		names = names[:bad]
		return true, fmt.Sprintf(": stop, because of %s (evidence %s to 1)",
			strings.Join(names, ", "), stake(values[0])), names
	case c.pooled.Value() >= 1/alpha:
		return true, fmt.Sprintf(": stop (evidence %s to 1)", stake(c.pooled.Value())), nil
	}
	return false, "", nil
}

func stake(value float64) string { return count(int64(min(value, 1e15))) }

// most is the strongest evidence.
func (c *comparison) most() float64 {
	most := c.pooled.Value()
	for _, e := range c.single {
		most = max(most, e.value())
	}
	return most
}

// ranked are the changed nodes and the evidence against each, the strongest first.
func (c *comparison) ranked() (names []string, values []float64) {
	names = slices.Collect(maps.Keys(c.single))
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
