package kube

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// gatePatience is how long, beyond its bake, a gate waits for evidence. After that, missing evidence is a failure.
const gatePatience = 90 * time.Second

// Gate judges what the probes report. It implements engine.Gate.
type Gate struct {
	Actor *Actor
	// Since are the reports after which losses count: those of the previous gate. If empty, losses count from the first
	// answer of each path; if nil, from the beginning of this gate, for a run that is resumed after losses that a
	// person has accepted.
	Since []v1alpha1.ProbeReport
	// Lacks says what is missing for the result of a plan (step.Gate.Result), which then is no pass; "" if nothing is.
	Lacks string
	// Leaves are the nodes that have left the cluster, since they began to leave, and all that have left or are about
	// to (Evidence.Leaves); nil if no process looks.
	Leaves func() (left, away map[string]time.Time)
	// NoneCompares is true if no gate of the plan compares nodes (step.Gate.Compares): nothing is kept for a comparison
	// then.
	NoneCompares bool
	// Contrast compares the result of a plan with its baseline, which may lose probes; nil if that must lose none.
	Contrast *loss.Contrast
	// canary compares changed nodes with the others, from the first gate on.
	canary loss.Canary
}

// Ask implements engine.Gate: it waits for fresh evidence, at least for the bake, and judges it. It fails immediately
// on a loss or a leak.
func (g *Gate) Ask(ctx context.Context, gate step.Gate, follow func(context.Context) error) (engine.Verdict, error) {
	if gate.Compare && len(gate.Changed) == 0 {
		return engine.Verdict{Reason: "internal error: the nodes with the change are missing, so they cannot be " +
				"compared with the others"},
			nil
	}
	plans, asked, err := g.read(ctx)
	if err != nil {
		return engine.Verdict{}, classify(err)
	}
	paths := pathsOf(plans)
	if len(paths) == 0 {
		return engine.Verdict{Reason: "no path is measured: there is no ProbePlan"}, nil
	}
	limits := loss.Limits{MaxLost: gate.MaxLost, MaxGap: time.Duration(gate.MaxGap), Bake: time.Duration(gate.Bake),
		Changed: gate.Changed, Whole: gate.Result, Quiet: graceReports * g.Actor.reported(len(plans)).every}
	if len(gate.Changed) > 0 && limits.MaxLost == 0 {
		limits.MaxLost = math.MaxInt64 // gaps are bounded, and the comparison decides
	}
	lacks := g.Lacks
	if gate.Result && lacks == "" {
		lacks = unmeasured(g.Since, paths)
	}
	if g.Contrast != nil && gate.Baseline {
		*g.Contrast = *loss.NewContrast()
	}
	deadline := g.Actor.Clock.Now().Add(limits.Bake + gatePatience)
	if g.Actor.Note != nil {
		g.Actor.Note("measuring: " + gate.Title)
	}
	generations := map[string]int64{}
	for i := range plans {
		generations[plans[i].Name] = plans[i].Spec.Generation
	}
	every := g.Actor.reported(len(plans)).every
	watch := loss.NewWatch(limits,
		loss.Evidence{Generations: generations, Paths: paths, Since: g.since(asked), Asked: asked,
			Every: every, News: path.News(every)})
	asking := g.asking(gate, len(plans), paths)
	if asking.every > 0 {
		watch.Concern(asking.nodes)
	}
	for {
		if number := asking.ask(ctx, g.Actor, watch.Watches()); number != 0 {
			watch.Question(number)
		}
		left, away := g.leaves()
		watch.Leave(left)
		if !gate.Baseline { // there, what nodes lose that are about to leave would excuse what the network loses later
			away = left
		}
		now, verdict, err := g.look(ctx, watch, waitAge)
		over := g.Actor.Clock.Now().After(deadline)
		if err == nil && (verdict.Pass || over) && g.Actor.reports != nil { // everything that was written must be in it
			now, verdict, err = g.look(ctx, watch, 0)
		}
		if err != nil {
			return engine.Verdict{}, classify(err)
		}
		if over {
			verdict = watch.Judge(now)
		}
		if !g.NoneCompares || len(gate.Changed) > 0 {
			g.canary.Look(paths, now, gate.Changed, g.Actor.Clock.Now())
		}
		if g.Contrast != nil {
			g.Contrast.Look(paths, now, away, g.Actor.Clock.Now())
		}
		if len(gate.Changed) > 0 {
			g.compare(&verdict, func() loss.Verdict { return watch.Judge(now) }, over)
		}
		if gate.Sessions != nil && !verdict.Waiting {
			if err := g.whole(ctx, *gate.Sessions, now, &verdict); err != nil {
				return engine.Verdict{}, classify(err)
			}
		}
		if !verdict.Waiting || over {
			if lacks != "" && gate.Result {
				verdict.Pass, verdict.Reason = false, lacks+"; apart from that "+verdict.Reason
			}
			g.Since = now
			if g.Contrast != nil {
				g.Contrast.Last(paths, now, away, g.Actor.Clock.Now())
			}
			return g.contrast(gate, convert(verdict), now), nil
		}
		if err := follow(ctx); err != nil {
			return engine.Verdict{}, err
		}
		if err := g.Actor.Clock.Sleep(ctx, poll); err != nil {
			return engine.Verdict{}, fmt.Errorf("%s (%w)", verdict.Reason, err)
		}
	}
}

// waitAge is how old the proof may be that watched reports are current while a wait goes on: four looks share one. What
// has come since is in them too.
const waitAge = time.Second

// look reads the reports, with a proof that is at most as old as age, and judges them.
func (g *Gate) look(ctx context.Context, watch *loss.Watch, age time.Duration) ([]v1alpha1.ProbeReport, loss.Verdict,
	error) {
	now, err := g.Actor.reportsWithin(ctx, age)
	if err != nil {
		return nil, loss.Verdict{}, err
	}
	watch.Hear(&g.Actor.heard, g.Actor.Clock.Now())
	return now, watch.Look(now), nil
}

// contrast adds to the verdict of a baseline what it lost, and to that of a result how that compares with it.
func (g *Gate) contrast(gate step.Gate, verdict engine.Verdict, now []v1alpha1.ProbeReport) engine.Verdict {
	switch {
	case g.Contrast == nil:
	case gate.Baseline:
		verdict.Lossy = g.Contrast.Begin(now, g.Actor.Clock.Now())
	case gate.Result:
		against := g.Contrast.Answer(true)
		verdict.Against = &against
	}
	return verdict
}

// unmeasured says which paths that former reports have counts of are not among the paths; "" if all are. What those
// have lost is unknown. Paths that never answered have no counts: they were left out.
func unmeasured(reports []v1alpha1.ProbeReport, paths []v1alpha1.Path) string {
	planned := map[string]bool{}
	for i := range paths {
		planned[paths[i].ID] = true
	}
	gone, first := 0, ""
	for _, report := range reports {
		for _, result := range report.Status.Paths {
			if !planned[result.ID] && result.Sent > 0 {
				gone++
				first = cmp.Or(first, result.ID)
			}
		}
	}
	if gone == 0 {
		return ""
	}
	return fmt.Sprintf("%s of the baseline are no longer measured, such as %s: find out who changed or deleted the "+
		"ProbePlans", cluster.Count(gone, "path"), first)
}

// Glance is what the reports say at one moment, without a demand on how fresh they are.
type Glance struct {
	engine.Verdict
	// Proven is true if probes were lost, or denied ones answered, beyond a limit, and no later report can explain it.
	Proven bool
	// Reports are how many reports each source has published, and Every is the time between two of them. After News, a
	// source has told what is more than a count.
	Reports     map[string]int64
	Every, News time.Duration
}

// Begin makes the next gate count what is lost from now on.
func (g *Gate) Begin(ctx context.Context) error {
	_, now, err := g.read(ctx)
	if err != nil {
		return classify(err)
	}
	g.Since = append([]v1alpha1.ProbeReport{}, now...) // not nil: that would be from when the gate is asked
	return nil
}

// leaves are the nodes that have left, and all that have left or are about to.
func (g *Gate) leaves() (left, away map[string]time.Time) {
	if g.Leaves == nil {
		return nil, nil
	}
	return g.Leaves()
}

// Look judges, without waiting, what was lost since the previous gate. maxLost is how many lost probes are allowed.
// Losses on the paths of a node that is about to leave do not count yet: they do if the node stays.
func (g *Gate) Look(ctx context.Context, maxLost int64) (Glance, error) {
	plans, now, err := g.read(ctx)
	if err != nil {
		return Glance{}, classify(err)
	}
	if g.Since == nil {
		g.Since = now
	}
	generations := map[string]int64{}
	for i := range plans {
		generations[plans[i].Name] = plans[i].Spec.Generation
	}
	left, away := g.leaves()
	every := g.Actor.reported(len(plans)).every
	verdict := loss.Judge(loss.Limits{MaxLost: maxLost}, loss.Evidence{Generations: generations,
		Paths: pathsOf(plans), Since: g.Since, Asked: g.Since, Now: now, Left: away, Every: every,
		News: path.News(every)})
	glance := Glance{Verdict: convert(verdict), Reports: map[string]int64{}, Every: every, News: path.News(every),
		Proven: !verdict.Pass && !verdict.Waiting && (verdict.Lost > maxLost || verdict.Leaked > 0)}
	if g.Contrast != nil {
		g.Contrast.Look(pathsOf(plans), now, away, g.Actor.Clock.Now())
		against := g.Contrast.Answer(false)
		glance.Against = &against
	}
	for _, node := range loss.Sources(pathsOf(plans)) {
		glance.Reports[node] = 0
	}
	for i := range now {
		glance.Reports[now[i].Name] = now[i].Status.Seq
	}
	for node := range left {
		delete(glance.Reports, node)
	}
	return glance, nil
}

// compare passes a verdict only if changed nodes are not worse than the others. While that is uncertain, it keeps
// watching until the time is over. If it stops the gate, the counts are those of all.
func (g *Gate) compare(verdict *loss.Verdict, all func() loss.Verdict, over bool) {
	stop, why := g.canary.Stop()
	if stop {
		*verdict = all() // a verdict that waits may lack them
		verdict.Pass, verdict.Waiting, verdict.Reason = false, false, why
		return
	}
	if verdict.Pass && !over && g.canary.Doubt() {
		verdict.Pass, verdict.Waiting = false, true
	}
	verdict.Reason += "; " + why
}

func (g *Gate) since(asked []v1alpha1.ProbeReport) []v1alpha1.ProbeReport {
	if g.Since == nil {
		return asked
	}
	return g.Since
}

func (g *Gate) read(ctx context.Context) ([]v1alpha1.ProbePlan, []v1alpha1.ProbeReport, error) {
	plans, err := g.Actor.probePlans(ctx)
	if err != nil {
		return nil, nil, err
	}
	reports, err := g.Actor.probeReports(ctx)
	return plans, reports, err
}

func convert(v loss.Verdict) engine.Verdict {
	return engine.Verdict{
		Pass: v.Pass, Reason: v.Reason, Paths: v.Paths, Sent: v.Sent, Lost: v.Lost, Leaked: v.Leaked,
		LongestGapMillis: float64(v.LongestGap) / float64(time.Millisecond), Bad: v.Bad,
	}
}
