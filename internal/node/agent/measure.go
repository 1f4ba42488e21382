package agent

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/proof/probe"
)

// measure follows the plan of paths and publishes what this node's sources see.
func (a *Agent) measure(ctx context.Context) {
	a.forget()
	plans := make(chan v1alpha1.ProbePlanSpec, 1)
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + a.Name}
	go func() { // ends with the context
		defer close(plans)
		a.follow(ctx, "the probe plan", a.resource("ProbePlan"), options,
			func(objects map[string]*unstructured.Unstructured) {
				plan, err := a.current(objects)
				if err != nil {
					a.Log.Error("the probe plan cannot be read", "error", err)
					return
				}
				select { // only the latest plan counts
				case <-plans:
				default:
				}
				plans <- plan
			})
	}()
	asks := make(chan *v1alpha1.Asked)
	go a.followAsks(ctx, asks) // ends with the context
	out := publisher{agent: a, trouble: trouble{log: a.Log, what: "cannot publish the report"}}
	wanted := map[string][]v1alpha1.Path{}
	var plan v1alpha1.ProbePlanSpec
	ordered, pace := false, pace{every: publishInterval}
	var published, hurried time.Time // hurried is the last time that news did not wait for their turn
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	answer := time.NewTimer(0) // fires when a report must answer a gate's question
	defer answer.Stop()
	ask := func(name string, asked *v1alpha1.Asked) {
		if asked != nil && !loss.Asks(asked.Of, a.Name) {
			return
		}
		faster, after := pace.ask(name, asked, time.Now())
		if faster {
			ticker.Reset(spread(pace.fast))
		}
		if after > 0 {
			answer.Reset(after)
		}
	}
	look := func(due bool) {
		now := time.Now()
		if due && pace.told.Before(pace.answer) && pace.waits(countedAt(wanted, a.results(), now), now) {
			answer.Reset(answerAgain)
			return
		}
		var sessions *v1alpha1.BGP
		if due && len(plan.Paths) > 0 {
			sessions = a.Node.BGP(ctx) // may take a moment, and the counts must not get old meanwhile
		}
		read := time.Now()
		found := a.results()
		counted := countedAt(wanted, found, read)
		if due && pace.waits(counted, read) {
			answer.Reset(answerAgain)
			return
		}
		status := combine(a.Name, plan.Generation, wanted, found, read)
		status.Parts = append(status.Parts, v1alpha1.Part{Name: v1alpha1.PartAgent, Pod: a.Pod, Since: a.since})
		switch {
		case !due:
			if status.BGP = out.full.BGP; !out.news(status) {
				return
			}
			hurried = read
		default:
			status.BGP = sessions
		}
		published, out.answers = read, pace.answers(counted)
		if out.publish(ctx, status) {
			pace.told = counted
			return
		}
		published = pace.again(read)
		if pace.owes(read) {
			answer.Reset(spread(pace.within))
		}
	}
	for {
		select {
		case next, more := <-plans:
			if !more {
				return
			}
			asked := next.Asked
			if next.Asked = nil; ordered && reflect.DeepEqual(plan, next) {
				ask(a.Name, asked)
				continue // or a watch has begun again
			}
			if !ordered || next.Generation != plan.Generation {
				pace.paths(time.Now())
			}
			plan, wanted, ordered = next, split(next.Paths, a.Name), true
			a.order(plan.Generation, wanted)
			out.fullEvery = time.Duration(plan.FullMillis) * time.Millisecond
			pace.plan(cmp.Or(time.Duration(plan.ReportMillis)*time.Millisecond, publishInterval), time.Now())
			ask(a.Name, asked)
			ticker.Reset(tick(pace.interval(time.Now())))
		case asked := <-asks:
			ask(v1alpha1.PlanOfAll, asked)
		case <-answer.C:
			switch wait := time.Until(pace.answer); {
			case !ordered || !pace.told.Before(pace.answer): // a regular report has answered
			case wait > 0:
				answer.Reset(wait)
			default:
				before := published
				if look(true); published.After(before) { // many were asked at once, and would report at once ever after
					published = published.Add(-spread(pace.every / 2))
				}
			}
		case <-ticker.C:
			every := pace.interval(time.Now())
			ticker.Reset(tick(every))
			if !ordered {
				continue // what is measured is not known yet, nor whether it is what the plan says
			}
			due := time.Since(published) >= every-tick(every)/2
			if !due && time.Since(hurried) < path.News(pace.every)-tick(every)/2 {
				continue
			}
			look(due)
		}
	}
}

// tick is the time between two looks at what was measured: a part of the time between two reports, so that news are
// known within publishInterval.
func tick(pace time.Duration) time.Duration {
	return pace / max(1, (pace+publishInterval-1)/publishInterval)
}

// forget begins with no results: counts of an earlier migration are no evidence for this one. A prober that runs writes
// its own again within a publication.
func (a *Agent) forget() {
	if err := a.Probers.Forget(networks()); err != nil {
		a.Log.Error("cannot remove the results of earlier probers", "error", err)
	}
}

// current is this node's plan among the objects; without one there are no paths.
func (a *Agent) current(objects map[string]*unstructured.Unstructured) (v1alpha1.ProbePlanSpec, error) {
	object, has := objects[a.Name]
	if !has {
		return v1alpha1.ProbePlanSpec{}, nil
	}
	var plan v1alpha1.ProbePlan
	err := decode(object, &plan)
	return plan.Spec, err
}

// order hands the paths to those who measure them.
func (a *Agent) order(generation int64, wanted map[string][]v1alpha1.Path) {
	a.Log.Info("paths to measure", "generation", generation,
		"old", len(wanted["old"]), "new", len(wanted["new"]), "host", len(wanted["host"]))
	for _, network := range networks() {
		if err := a.Probers.Order(network,
			probe.PathsFile{Generation: generation, Paths: wanted[network]}); err != nil {
			a.Log.Error("cannot hand paths to a prober", "network", network, "error", err)
		}
	}
}

// results reads what the probers have seen. A prober that has gone leaves its last results.
func (a *Agent) results() map[string]probe.ResultsFile {
	results := map[string]probe.ResultsFile{}
	for _, network := range networks() {
		file, err := a.Probers.Results(network)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			a.Log.Error("cannot read the results of a prober", "network", network, "error", err)
			continue
		}
		results[network] = file
	}
	return results
}
