package asking

import (
	"context"
	"fmt"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// LetController asks the controller in the cluster to continue a migration, once ready returns no error: a person knows
// that plan, and it is approved.
func LetController(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, migration *v1alpha1.Migration,
	records []engine.Record, ready func() error) error {
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
	if err := ready(); err != nil {
		return err
	}
	if err := request(ctx, a, client, p.Name, v1alpha1.DesireRun, holder); err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "the controller in the cluster continues %s\n", p.Name)
	return nil
}

// AskController asks the controller in the cluster to roll a migration back.
func AskController(ctx context.Context, a *app.App, client *kube.Client, name string, records []engine.Record) error {
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

// request writes what the controller shall do. While a process runs the migration, that is its desired state alone;
// else the controller tries again.
func request(ctx context.Context, a *app.App, client *kube.Client, name string, desire v1alpha1.Desire,
	holder *journal.HeldError) error {
	return a.Patiently(ctx, app.Begin, func(ctx context.Context) error {
		if holder != nil {
			return journal.SetDesire(ctx, client.Dynamic, name, desire)
		}
		return journal.HandOver(ctx, client.Dynamic, name, desire)
	})
}

// holds is who runs a migration that the controller has; nil if no process does. If the controller does not have it, it
// is an error that another process holds the lock.
func holds(ctx context.Context, a *app.App, client *kube.Client,
	migration *v1alpha1.Migration) (*journal.HeldError, error) {
	if !migration.Spec.InCluster {
		return nil, approval.Free(ctx, client)
	}
	return heldBy(ctx, a, client)
}

// heldBy is who runs a migration that has not ended; nil if no process does.
func heldBy(ctx context.Context, a *app.App, client *kube.Client) (holder *journal.HeldError, err error) {
	err = a.Patiently(ctx, app.Begin, func(ctx context.Context) (err error) {
		holder, err = migrations.Holder(ctx, a, client, time.Time{})
		return err
	})
	return holder, err
}
