package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/notify"
)

// unsaid is the news that a run has left untold: its process was killed, or the endpoint was away.
type unsaid struct {
	version string // of the Migration when its journal was read
	until   int    // the last record whose news is told or queued
	telling *run.Telling
}

// target is what gets the news of runs; nil if nothing does.
func (c *Controller) target() *notify.Target {
	if c.Notify == nil {
		return nil
	}
	return c.Notify()
}

// tellUnsaid queues the news that runs have left untold, of Migrations that no run continues by itself. It does not
// wait for the endpoint. With several controllers, each may send it: its ID is the same.
func (c *Controller) tellUnsaid(ctx context.Context, all []v1alpha1.Migration) error {
	target := c.target()
	if target == nil {
		return nil
	}
	var failures []error
	for i := range all {
		if err := c.sayRest(ctx, &all[i], target); err != nil {
			failures = append(failures, fmt.Errorf("the notifications of %s: %w", all[i].Name, err))
		}
	}
	return errors.Join(failures...)
}

func (c *Controller) sayRest(ctx context.Context, m *v1alpha1.Migration, target *notify.Target) error {
	noted, found, err := journal.NotifiedIn(m)
	switch phase := engine.Phase(m.Status.Phase); {
	case !m.Spec.InCluster || !found || err != nil:
		return nil // a command line has its own endpoint, no process has sent any, or the next run begins again
	case phase != engine.PhaseDone && phase != engine.PhaseRolledBack && phase != engine.PhasePaused &&
		phase != engine.PhaseNeedsPerson:
		return nil // the run tells it
	}
	known := c.unsaid[m.Name]
	if known != nil && known.version == m.ResourceVersion {
		return nil
	}
	records, err := journal.NewCluster(c.Client.Dynamic, m.Name).Records(ctx)
	if err != nil && transient(err) {
		return err
	}
	if known == nil {
		known = &unsaid{until: run.ToldUntil(records, noted, func(text string) { c.say("%s: %s", m.Name, text) })}
		c.unsaid[m.Name] = known
	}
	known.version = m.ResourceVersion
	n := len(records)
	if err != nil || n == 0 || records[n-1].Seq <= known.until { // a journal that cannot be read is told by conditions
		return nil
	}
	if !run.HasNews(records, known.until) {
		known.until = records[n-1].Seq
		return nil
	}
	c.plan = nil // two do not fit into the memory
	p, _, err := journal.LoadWithin(ctx, c.Client.Dynamic, m.Name, c.Memory.PlanBytes())
	switch {
	case err != nil && transient(err):
		known.version = ""
		return err
	case err != nil:
		p = &plan.Plan{Name: m.Name, Hash: m.Spec.PlanHash} // the news names its steps by their IDs
	}
	known.telling.End()
	known.telling = run.Tell(ctx, c.Client.Dynamic, target, p, noted, func(text string) {
		c.say("%s: %s", m.Name, text)
	})
	for _, one := range records {
		known.telling.Record(one)
	}
	known.until = records[n-1].Seq
	return nil
}

// forgetUnsaid forgets what is unsaid of some Migrations. A later turn, or a run, begins with them again.
func (c *Controller) forgetUnsaid(which func(name string) bool) {
	for name, one := range c.unsaid {
		if which(name) {
			one.telling.End()
			delete(c.unsaid, name)
		}
	}
}
