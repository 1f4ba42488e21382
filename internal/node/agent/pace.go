package agent

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// pace is how often reports are published. The zero value is set by its first plan.
type pace struct {
	every, fast time.Duration
	until       time.Time           // fast counts until then, and every after it
	asked       map[string]question // the last one of each plan
	planned     time.Time           // when the agent got the paths that it measures
	answer      time.Time           // a report that is counted from then on answers the last question
	measure     time.Duration       // how long it asks to measure
	within      time.Duration       // over which answers to it are spread
	told        time.Time           // until when the last report in the cluster was counted
}

// Probers write their counts twice within publishInterval. A report that must answer a question waits for as long for
// counts that are new enough, and looks for them now and again.
const (
	patience    = publishInterval
	answerAgain = publishInterval / 5
)

// question is one of a gate: its number, and when this agent saw it.
type question struct {
	number int64
	seen   time.Time
}

// The least time between two reports that a gate may ask for, and the longest time for which it may.
const (
	leastAsked   = publishInterval / 2
	longestAsked = 2 * time.Minute
)

// plan sets the interval of a new plan: reports come four times as often as news at first, because a gate waits. But
// one that the agent was asked for lasts as long as it does.
func (p *pace) plan(every time.Duration, now time.Time) {
	if first := path.News(every) / 4; !now.Before(p.until) || first < p.fast {
		p.fast, p.until = first, now.Add(beginning)
	}
	p.every = every
}

// again is when a report that was read at a time and not written counts as published: the next one is due as soon as
// news are, however long the interval.
func (p *pace) again(read time.Time) time.Time { return read.Add(path.News(p.every) - p.every) }

// paths begins with new paths: a node measures for a question since it has had both.
func (p *pace) paths(now time.Time) {
	p.planned = now
	if now.Before(p.answer) {
		p.answer = now.Add(p.measure)
	}
}

// waits reports whether a report must wait for newer counts, so that it answers a question.
func (p *pace) waits(counted, read time.Time) bool {
	return p.told.Before(p.answer) && counted.Before(p.answer) && !read.Before(p.answer) &&
		read.Before(p.answer.Add(patience))
}

// owes reports whether a report that was read at a time and not written should have answered a question that a gate may
// still wait for.
func (p *pace) owes(read time.Time) bool {
	return p.told.Before(p.answer) && !read.Before(p.answer) && read.Before(p.answer.Add(longestAsked))
}

// ask takes over what a gate asks for in a plan, if it is new. Reports come faster from now on, or one must come after
// the time that it returns, unless it is 0.
func (p *pace) ask(plan string, asked *v1alpha1.Asked, now time.Time) (faster bool, after time.Duration) {
	if asked == nil || asked.Number == p.asked[plan].number {
		return false, 0
	}
	if p.asked == nil {
		p.asked = map[string]question{}
	}
	p.asked[plan] = question{asked.Number, now}
	fast := max(ofMillis(asked.ReportMillis), leastAsked)
	if measure := ofMillis(asked.MeasureMillis); measure > 0 {
		p.answer, p.measure, p.within = now.Add(measure), measure, min(fast, p.every)
		if fast >= p.every {
			return false, 0 // the next regular report after that answers
		}
		return false, measure + spread(fast)
	}
	until := now.Add(min(ofMillis(asked.ForMillis), longestAsked))
	if fast >= p.interval(now) {
		if now.Before(p.until) && fast < p.every && until.After(p.until) {
			p.until = until
		}
		return false, 0 // reports come as often anyway
	}
	p.fast, p.until = fast, until
	return true, 0
}

// ofMillis is a time that others wrote, in ms, within a day.
func ofMillis(millis int64) time.Duration {
	return time.Duration(max(0, min(millis, 24*time.Hour.Milliseconds()))) * time.Millisecond
}

// answers are what a report whose counts reach until a time answers.
func (p *pace) answers(counted time.Time) []loss.Answer {
	var all []loss.Answer
	for _, plan := range slices.Sorted(maps.Keys(p.asked)) {
		one := p.asked[plan]
		since := one.seen
		if since.Before(p.planned) {
			since = p.planned
		}
		all = append(all, loss.Answer{Number: one.number, Seen: since.Round(0), Measured: max(0, counted.Sub(since))})
	}
	return all
}

// interval is the time until the next report.
func (p *pace) interval(now time.Time) time.Duration {
	if now.Before(p.until) {
		return p.fast
	}
	return p.every
}

// spread is a random part of an interval: many agents are asked at the same moment, and must not all report at once.
func spread(interval time.Duration) time.Duration { return rand.N(max(interval, 1)) + 1 }

// followAsks tells what gates ask all nodes for.
func (a *Agent) followAsks(ctx context.Context, asks chan<- *v1alpha1.Asked) {
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + v1alpha1.PlanOfAll}
	a.follow(ctx, "what gates ask for", a.resource("ProbePlan"), options,
		func(objects map[string]*unstructured.Unstructured) {
			object, has := objects[v1alpha1.PlanOfAll]
			if !has {
				return
			}
			var plan v1alpha1.ProbePlan
			if err := decode(object, &plan); err != nil {
				a.Log.Error("what gates ask for cannot be read", "error", err)
				return
			}
			select {
			case asks <- plan.Spec.Asked:
			case <-ctx.Done():
			}
		})
}
