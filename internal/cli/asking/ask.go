package asking

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Describe says what a person confirms before Ask: what the plan in the cluster does, and its hash. It is an error if
// the migration cannot go that way any more.
func Describe(ctx context.Context, a *app.App, client *kube.Client, name string, desire v1alpha1.Desire) (text string,
	p *plan.Plan, err error) {
	p, _, records, err := Load(ctx, a, client, name)
	if err == nil {
		err = MayTakeOver(p, records, desire)
	}
	if err != nil {
		return "", nil, err
	}
	b := &strings.Builder{}
	if desire == v1alpha1.DesireRollback {
		fmt.Fprintln(b, "Undoes every step that was done, newest first.")
	}
	err = approval.Describe(b, p, records)
	return b.String(), p, err
}

// Read makes sure that a plan may be approved, and that the person has read it, and no other. It returns a signature of
// it, if a key is given. The plan that this machine was told to run does not count, since another person may have
// chosen it; nor does an approval in the cluster, which another user may have written.
func Read(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, records []engine.Record,
	f *approval.Flags, key string) (signature string, err error) {
	if err := Approvable(ctx, a, client, p, records); err != nil {
		return "", err
	}
	named, err := f.Named(p)
	if err != nil {
		return "", err
	}
	_, asks := a.Terminal()
	if !named && !asks {
		return "", exit.Fail(exit.Usage, "name the plan that you have read with --plan FILE, or its hash with "+
			"--expect HASH; on a terminal, Theseus shows the plan and asks",
			"no plan is named for the approval of %s", p.Name)
	}
	if err := approval.Describe(a.Err, p, records); err != nil {
		return "", err
	}
	if !named {
		if err := a.Typed(ctx, p.To()); err != nil {
			return "", err
		}
	}
	return planfile.SignHash(a, p, key)
}

// Ask asks the process that runs a migration, or the controller in the cluster, to continue it or to roll it back.
// Nothing of the plan runs on this machine, and nothing is approved. hash is that of the plan that a person has
// confirmed. here is true on that person's own machine: what this machine knows of the run must not contradict the
// cluster.
func Ask(ctx context.Context, a *app.App, client *kube.Client, name string, desire v1alpha1.Desire,
	hash string, here bool) error {
	p, migration, records, err := Load(ctx, a, client, name)
	if err == nil {
		err = MayTakeOver(p, records, desire)
	}
	if err != nil {
		return err
	}
	f := &approval.Flags{Expect: hash}
	if _, err := f.Named(p); err != nil {
		return err
	}
	if migration.Spec.InCluster {
		ready := func() error {
			if lacks := incluster.Unapproved(migration); lacks != nil {
				how := cmp.Or(incluster.ApprovedWith(migration), "Approve on this page or with theseus approve "+name)
				return exit.Fail(exit.NeedsPerson, "approve it first, with "+how, "the plan of %s is not approved: %s",
					name, lacks.Message)
			}
			if !here {
				return approval.SameCluster(ctx, a, client, p)
			}
			f.Held = true
			_, err := approval.Approve(ctx, a, client, p, records, f)
			return err
		}
		return askInCluster(ctx, a, client, p, migration, records, desire, ready)
	}
	holder, err := heldBy(ctx, a, client)
	switch {
	case err != nil:
		return err
	case holder == nil:
		command := "theseus resume "
		if desire == v1alpha1.DesireRollback {
			command = "theseus rollback "
		}
		return exit.Fail(exit.Failed, "run it on the machine that will run the migration: "+command+name,
			"no process runs %s", name)
	case desire == v1alpha1.DesireRollback:
		return AskHolder(ctx, a, client, name, holder)
	case migration.Spec.Desire == v1alpha1.DesireRun:
		return exit.Fail(exit.Failed, "", "%s runs %s already", holder.Holder, name)
	}
	if err := a.Patiently(ctx, app.Begin,
		func(ctx context.Context) error { return journal.SetDesire(ctx, client.Dynamic, name, desire) }); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "told %s, which runs %s, not to pause\n", holder.Holder, name)
	return nil
}

// askInCluster asks the controller, which has the migration.
func askInCluster(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, migration *v1alpha1.Migration,
	records []engine.Record, desire v1alpha1.Desire, ready func() error) error {
	if desire == v1alpha1.DesireRun {
		return LetController(ctx, a, client, p, migration, records, ready)
	}
	if len(records) == 0 {
		return exit.Fail(exit.Failed, "theseus rollback "+p.Name+" ends the migration",
			"%s has not begun: there is nothing to undo", p.Name)
	}
	err := incluster.Able(migration)
	if err == nil {
		err = incluster.Available(ctx, a, client)
	}
	if err != nil {
		return exit.Fail(exit.Failed, "roll it back from this machine: theseus rollback "+p.Name,
			"the controller cannot roll %s back: %w", p.Name, err)
	}
	return AskController(ctx, a, client, p.Name, records)
}
