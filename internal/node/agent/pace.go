package agent

import (
	"context"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// pace is how often reports are published. The zero value is set by its first plan.
type pace struct {
	every, fast time.Duration
	until       time.Time        // fast counts until then, and every after it
	asked       map[string]int64 // the number that was last seen in each plan
}

// The least time between two reports that a gate may ask for, and the longest time for which it may.
const (
	leastAsked   = publishInterval / 2
	longestAsked = 2 * time.Minute
)

// plan sets the interval of a new plan: reports come four times as often at first, because a gate waits. But one that
// the agent was asked for lasts as long as it does.
func (p *pace) plan(every time.Duration, now time.Time) {
	if !now.Before(p.until) || every/4 < p.fast {
		p.fast, p.until = every/4, now.Add(beginning)
	}
	p.every = every
}

// ask takes over what a gate asks for in a plan, if it is new.
func (p *pace) ask(plan string, asked *v1alpha1.Asked, now time.Time) bool {
	if asked == nil || asked.Number == p.asked[plan] {
		return false
	}
	if p.asked == nil {
		p.asked = map[string]int64{}
	}
	p.asked[plan] = asked.Number
	fast := max(time.Duration(asked.ReportMillis)*time.Millisecond, leastAsked)
	until := now.Add(min(time.Duration(asked.ForMillis)*time.Millisecond, longestAsked))
	if fast >= p.interval(now) {
		if now.Before(p.until) && fast < p.every {
			p.until = later(p.until, until)
		}
		return false // reports come as often anyway
	}
	p.fast, p.until = fast, until
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
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
