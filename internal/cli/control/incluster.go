package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/follow"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// resumeInCluster lets the controller in the cluster continue a migration, and follows it. The current user approves the
// plan, unless that user has.
func resumeInCluster(ctx context.Context, a *app.App, client *kube.Client, name string, f *approval.Flags) error {
	if err := f.Validate(); err != nil {
		return err
	}
	p, migration, records, err := load(ctx, a, client, name)
	if err == nil {
		err = mayTakeOver(p, records, v1alpha1.DesireRun)
	}
	if err == nil {
		err = letController(ctx, a, client, p, migration, records, f)
	}
	if err != nil {
		return err
	}
	return follow.Run(ctx, a, client, name, len(records))
}

// letController asks the controller in the cluster to continue a migration. The current user approves the plan, unless that user
// has.
func letController(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, migration *v1alpha1.Migration, records []engine.Record, f *approval.Flags) error {
	err := admission.InCluster(p)
	if err == nil {
		err = incluster.Available(ctx, a, client)
	}
	if err != nil {
		return err
	}
	holder, err := holds(ctx, a, client, migration)
	if err != nil {
		return err
	}
	if !going(records) {
		holder = nil // whoever has the lock does something else, or only looks
	}
	if holder != nil && migration.Spec.Desire == v1alpha1.DesireRun {
		fmt.Fprintf(a.Err, "%s runs %s already\n", holder.Holder, p.Name)
		return nil
	}
	f.Held = migration.Spec.InCluster
	if f.Approved, err = incluster.Mine(ctx, a, client, p); err != nil {
		return err
	}
	if _, err := approval.Approve(ctx, a, client, p, records, f); err != nil {
		return err
	}
	if !f.Approved {
		if err := incluster.ApproveAndSay(ctx, a, client, p); err != nil {
			return err
		}
	}
	if err := request(ctx, a, client, p.Name, v1alpha1.DesireRun, holder); err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "the controller in the cluster continues %s\n", p.Name)
	return nil
}

// rollBackInCluster asks the controller in the cluster to roll a migration back, and follows it. That needs no approval of
// the plan: the controller runs only an approved one.
func rollBackInCluster(ctx context.Context, a *app.App, client *kube.Client, name string, records []engine.Record) error {
	if err := askController(ctx, a, client, name, records); err != nil {
		return err
	}
	return follow.Run(ctx, a, client, name, len(records))
}

// askController asks the controller in the cluster to roll a migration back.
func askController(ctx context.Context, a *app.App, client *kube.Client, name string, records []engine.Record) error {
	holder, err := heldBy(ctx, a, client)
	if err != nil {
		return err
	}
	if !going(records) {
		holder = nil
	}
	if err := request(ctx, a, client, name, v1alpha1.DesireRollback, holder); err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "asked the controller in the cluster to roll %s back\n", name)
	return nil
}

// going reports whether a run is under way: its journal ends neither with a pause nor with the need for a person.
func going(records []engine.Record) bool {
	state, err := engine.Replay(records)
	return err == nil && state.Phase != engine.PhasePaused && state.Phase != engine.PhaseNeedsPerson
}

// request writes what the controller shall do. While a process runs the migration, that is its desired state alone; else
// the controller tries again.
func request(ctx context.Context, a *app.App, client *kube.Client, name string, desire v1alpha1.Desire, holder *journal.HeldError) error {
	return a.Patiently(ctx, app.Begin, func(ctx context.Context) error {
		if holder != nil {
			return journal.SetDesire(ctx, client.Dynamic, name, desire)
		}
		return journal.HandOver(ctx, client.Dynamic, name, desire)
	})
}

// holds is who runs a migration that the controller has; nil if no process does. If the controller does not have it, it is
// an error that another process holds the lock.
func holds(ctx context.Context, a *app.App, client *kube.Client, migration *v1alpha1.Migration) (*journal.HeldError, error) {
	if !migration.Spec.InCluster {
		return nil, approval.Free(ctx, client)
	}
	return heldBy(ctx, a, client)
}

func heldBy(ctx context.Context, a *app.App, client *kube.Client) (holder *journal.HeldError, err error) {
	err = a.Patiently(ctx, app.Begin, func(ctx context.Context) (err error) {
		holder, err = journal.HeldBy(ctx, run.Leases(client))
		return err
	})
	return holder, err
}

// takeBack takes a migration from the controller in the cluster, and waits until that has released the lock. It returns the
// journal as it is then, and its head if a person has seen an earlier one.
func takeBack(ctx context.Context, a *app.App, client *kube.Client, name string, seen []engine.Record, head string) ([]engine.Record, string, error) {
	if err := a.Patiently(ctx, app.Begin, func(ctx context.Context) error { return journal.TakeBack(ctx, client.Dynamic, name) }); err != nil {
		return nil, "", err
	}
	if err := waitForRelease(ctx, a, client, name); err != nil {
		return nil, "", err
	}
	var records []engine.Record
	if err := a.Patiently(ctx, app.Begin, func(ctx context.Context) (err error) {
		records, err = journal.NewCluster(client.Dynamic, name).Records(ctx)
		return err
	}); err != nil {
		return nil, "", err
	}
	if len(records) < len(seen) {
		return nil, "", engine.NeedsPerson("`theseus status` shows the journal; find out who wrote to it", "the journal of %s lost records: it had %d, and has %d", name, len(seen), len(records))
	}
	if head == "" {
		return records, "", nil
	}
	if err := run.MustBeHead(name, records[:len(seen)], head); err != nil {
		return nil, "", err
	}
	return records, run.HeadOf(records), nil
}

// waitForRelease waits until no process holds the lock.
func waitForRelease(ctx context.Context, a *app.App, client *kube.Client, name string) error {
	first := ""
	for {
		err := approval.Free(ctx, client)
		var held *journal.HeldError
		switch {
		case ctx.Err() != nil:
			return exit.Fail(exit.Interrupted, fmt.Sprintf("the controller stops after its current action; `theseus resume %s` continues here, with --in-cluster the controller does", name),
				"interrupted while waiting for the controller to release %s", name)
		case !errors.As(err, &held):
			return err
		case first == "":
			first = held.Holder
			fmt.Fprintf(a.Err, "waiting until %s has finished its current action and releases %s\n", held.Holder, name)
		case first != held.Holder:
			return err
		}
	}
}
