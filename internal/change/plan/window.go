package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// divide cuts a plan into windows, by the estimates of its steps. Each window but the first begins with a step that
// checks the cluster, and has as many steps as fit, up to a stopping place. A plan that fits into one window stays as
// it is.
func divide(p *Plan) error {
	window := time.Duration(p.Window)
	total := took(p.Steps)
	if window == 0 || total <= window {
		return nil
	}
	var places []kind.Stop
	if k := of(p); k.Stops != nil {
		places = k.Stops(p)
	}
	if len(places) == 0 {
		return kind.Refuse("give --window "+short(total)+" or longer, or leave it out",
			"this change by strategy %s takes about %s and has no stopping place: it cannot be left half "+
				"done between two windows of %s",
			p.Strategy, step.Duration(total).About(), short(window))
	}
	return cut(p, places)
}

// cut puts a check at the last stopping place of each window.
func cut(p *Plan, places []kind.Stop) error {
	var steps []step.Step
	var left, shortest time.Duration
	left = time.Duration(p.Window)
	tooShort, from, windows := error(nil), 0, 1
	for i := range len(places) + 1 {
		to := len(p.Steps)
		if i < len(places) {
			to = places[i].After + 1
		}
		part := p.Steps[from:to]
		need := took(part)
		var check []step.Step
		if i > 0 {
			check = []step.Step{checkAt(p, &places[i-1], windows+1)}
		}
		shortest = max(shortest, took(check)+need)
		if i > 0 && need > left {
			windows++
			steps, left = append(steps, check...), time.Duration(p.Window)-took(check)
		}
		if left -= need; left < 0 && tooShort == nil {
			tooShort = fmt.Errorf("a window of %s is too short: steps %d to %d take about %s, and the "+
				"run must not stop among them",
				short(time.Duration(p.Window)), from+1, to, step.Duration(took(check)+need).About())
		}
		steps, from = append(steps, part...), to
	}
	if tooShort != nil {
		return kind.Refuse("give --window "+short(shortest)+" or longer", "%v", tooShort)
	}
	p.Steps = steps
	return nil
}

// checkAt is the step that begins a window: the run stops before it, and it checks that the cluster is as the run left
// it.
func checkAt(p *Plan, place *kind.Stop, window int) step.Step {
	s := step.Step{Group: fmt.Sprintf("window-%d", window), Does: "check", Stop: true,
		Alone: true, Actions: []step.Action{}, Gate: joint.Gate(p.Change, "no pod has lost another", true),
		Title:  "Check that the cluster is as the run left it",
		Why:    "The run stops before this step, for hours if need be. Nodes, agents and paths may have changed since.",
		Before: []step.Condition{{Is: step.NodesAmong{Nodes: place.Nodes}}}}
	for _, agent := range place.Agents {
		s.After = append(s.After, step.Condition{Is: step.Rolled{Ref: agent}})
	}
	s.Number()
	timed := []step.Step{s}
	estimate.Steps(timed, len(place.Nodes), nil)
	return timed[0]
}

// took is the estimate of some steps.
func took(steps []step.Step) (sum time.Duration) {
	for i := range steps {
		sum += time.Duration(steps[i].Estimate)
	}
	return sum
}

// short is a duration as --window takes it, rounded up to seconds, and to minutes from ten of them on: 1h30m, 47m, 95s.
func short(d time.Duration) string {
	unit := time.Second
	if d >= 10*time.Minute {
		unit = time.Minute
	}
	text := ((d + unit - 1) / unit * unit).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// stoppingPlaces says where a run of the plan may be left, or what is done in which window.
func stoppingPlaces(p *Plan) string {
	k := of(p)
	switch {
	case p.Window > 0:
		return windowsOf(p)
	case k.Stops == nil:
		return ""
	}
	var after []string
	for _, place := range k.Stops(p) {
		after = append(after, fmt.Sprint(place.After+1))
	}
	if len(after) == 0 {
		return ""
	}
	if len(after) > 12 {
		after = slices.Concat(after[:9], []string{"..."}, after[len(after)-2:])
	}
	return "Stopping places: after steps " + strings.Join(after, ", ") +
		". Until the next step, both networks stay joined, " +
		"and all pods reach each other. --window chooses among them.\n"
}

// windowsOf says what is done in which window.
func windowsOf(p *Plan) string {
	legs := p.Legs()
	if len(legs) == 1 {
		return fmt.Sprintf("Windows: the change fits into one of %s.\n", short(time.Duration(p.Window)))
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "Windows: %d of %s each, by the estimates. The run stops after each, with both networks joined; "+
		"`theseus resume` begins the next.\n", len(legs), short(time.Duration(p.Window)))
	for i, leg := range legs {
		then := ", then stop with both networks joined"
		if i == len(legs)-1 {
			then = ""
		}
		fmt.Fprintf(b, "  window %d: steps %d to %d, about %s%s\n", i+1, leg.From+1, leg.To, leg.Takes.About(), then)
	}
	return b.String()
}
