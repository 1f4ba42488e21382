package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/asking"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/follow"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// resumeInCluster lets the controller in the cluster continue a migration, and follows it. The current user approves
// the plan, unless that user has; with a key, in any case.
func resumeInCluster(ctx context.Context, a *app.App, client *kube.Client, name string, f *approval.Flags,
	key string) error {
	if err := f.Validate(); err != nil {
		return err
	}
	p, migration, records, err := asking.Load(ctx, a, client, name)
	if err == nil {
		err = asking.MayTakeOver(p, records, v1alpha1.DesireRun)
	}
	if err == nil {
		f.Held = migration.Spec.InCluster
		unused := key != ""
		err = asking.LetController(ctx, a, client, p, migration, records, func() error {
			unused = false
			return approve(ctx, a, client, p, migration, records, f, key)
		})
		if err == nil && unused { // a process runs it already
			fmt.Fprintf(a.Err, "note: nothing was signed: theseus approve %s --plan FILE %s adds an approval\n", name,
				journal.SignsWith)
		}
	}
	if err != nil {
		return err
	}
	return follow.Run(ctx, a, client, name, len(records))
}

// approve approves a plan in the name of the current user, unless that user has. With a key, it signs the plan, as
// `theseus approve` does.
func approve(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, migration *v1alpha1.Migration,
	records []engine.Record, f *approval.Flags, key string) (err error) {
	signature := ""
	if key == "" {
		f.Approved, err = incluster.Mine(ctx, a, client, p)
	} else {
		signature, err = asking.Read(ctx, a, client, p, records, f, key)
		f.Approved = err == nil
	}
	if err == nil {
		_, err = approval.Approve(ctx, a, client, p, records, f)
	}
	if err != nil || f.Approved && key == "" {
		return err
	}
	return incluster.ApproveAndSay(ctx, a, client, p, signature, incluster.ApprovedWith(migration))
}

// rollBackInCluster asks the controller in the cluster to roll a migration back, and follows it. That needs no approval
// of the plan: the controller runs only an approved one.
func rollBackInCluster(ctx context.Context, a *app.App, client *kube.Client, name string,
	records []engine.Record) error {
	if err := asking.AskController(ctx, a, client, name, records); err != nil {
		return err
	}
	return follow.Run(ctx, a, client, name, len(records))
}

// takeBack takes a migration from the controller in the cluster, and waits until that has released the lock. It returns
// the journal as it is then, and its head if a person has seen an earlier one.
func takeBack(ctx context.Context, a *app.App, client *kube.Client, name string, seen []engine.Record,
	head string) ([]engine.Record, string, error) {
	if err := a.Patiently(ctx, app.Begin,
		func(ctx context.Context) error { return journal.TakeBack(ctx, client.Dynamic, name) }); err != nil {
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
		return nil, "", engine.NeedsPerson("`theseus status` shows the journal; find out who wrote to it",
			"the journal of %s lost records: it had %d, and has %d", name, len(seen), len(records))
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
			return exit.Fail(exit.Interrupted, fmt.Sprintf("the controller stops after its current action; `theseus "+
				"resume %s` continues here, with --in-cluster the controller does", name),
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
