package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cli/view"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// NewStatus makes the command theseus status.
func NewStatus(a *app.App) *cobra.Command {
	return migrations.Command(a, "status", "Show how far a migration is, and how to continue",
		"Reads the journal in the cluster, and shows which steps are done and what you can do next.",
		func(ctx context.Context, client *kube.Client, name string) error {
			return status(ctx, a, client, name)
		})
}

func status(ctx context.Context, a *app.App, client *kube.Client, name string) error {
	var p *plan.Outline
	var migration *v1alpha1.Migration
	var records []engine.Record
	var state engine.State
	var holder *journal.HeldError
	var kept journal.Copy
	err := a.Patiently(ctx, app.Glance, func(ctx context.Context) (err error) {
		if p, migration, err = outline(ctx, a, client, name); err != nil {
			return err
		}
		if kept, err = approval.Kept(p.Name); err != nil { // before the cluster's, which may grow meanwhile
			return err
		}
		if records, state, err = migrations.Standing(ctx, client, name); err != nil {
			return err
		}
		holder, err = migrations.Holder(ctx, a, client, state.End())
		return err
	})
	if err != nil {
		return err
	}
	local, contradiction := approval.Compare(kept, p.Name, p.Hash, p.Steps, records)
	stand := engine.Judge(p.Steps, state, holder != nil)
	seen, unread := seen(ctx, client, p, state.Over())
	times := incluster.Times{}
	if !state.Over() {
		times = incluster.TimesOf(ctx, client, migration, time.Now())
	}
	var absent error
	if migration.Spec.InCluster && !state.Over() && holder == nil {
		if absent, err = incluster.Absent(ctx, client); err != nil {
			absent = fmt.Errorf("looking for the controller: %w", err)
		}
	}
	if a.Output == "json" {
		stands := map[string]any{"name": name, "state": stand.Word, "resume": stand.Resume, "rollback": stand.Rollback,
			"since": stand.Since, "leftSeconds": int(stand.Left.Seconds()), "gate": stand.Gate, "waits": stand.Waits,
			"phase": state.Phase, "step": state.Step, "steps": len(p.Steps), "records": len(records),
			"desire": migration.Spec.Desire, "cause": state.Cause, "plan": p.Hash, "head": state.Head,
			"inCluster": migration.Spec.InCluster}
		if len(migration.Status.Conditions) > 0 {
			stands["conditions"] = migration.Status.Conditions
		}
		if migration.Status.Approval != nil {
			stands["approval"] = migration.Status.Approval
		}
		if data, err := json.Marshal(times); err == nil {
			_ = json.Unmarshal(data, &stands) // adds its fields
		}
		if seen.Paths > 0 {
			stands["evidence"] = seen
		}
		if unread != nil {
			stands["evidenceError"] = unread.Error()
		}
		if absent != nil {
			stands["controllerError"] = absent.Error()
		}
		if holder != nil {
			stands["heldBy"] = holder.Holder
		}
		return errors.Join(json.NewEncoder(a.Out).Encode(stands), contradiction)
	}
	fmt.Fprintf(a.Out, "%s: %s -> %s, %s\n", name, p.From, p.To, stand.Word)
	at := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == state.Step })
	if at >= 0 && !state.Over() {
		fmt.Fprintf(a.Out, "step %d of %d: %s\n", at+1, len(p.Steps), p.Steps[at].Title)
	}
	if stand.Gate != "" {
		fmt.Fprintf(a.Out, "gate: %s: %s\n", stand.Gate, stand.Waits)
	}
	switch {
	case seen.Paths > 0 && unread != nil:
		fmt.Fprintf(a.Out, "probes: %s (as kept; some evidence in the cluster cannot be read: %v)\n", seen, unread)
	case seen.Paths > 0:
		fmt.Fprintf(a.Out, "probes: %s\n", seen)
	}
	if !state.Over() && !stand.Since.IsZero() {
		line := "last action: " + step.Duration(time.Since(stand.Since)).About() + " ago"
		if stand.Left > 0 {
			line += "; left: " + view.About(stand.Left)
		}
		fmt.Fprintln(a.Out, line)
	}
	approval.PrintIdentity(a, p.Hash, records, local)
	if state.Cause != "" && !state.Measures() { // it measures as it should
		fmt.Fprintf(a.Out, "cause: %s\n", state.Cause)
		if _, hint := outage.Hindering(state.Cause); hint != "" { // the journal has the cause alone
			fmt.Fprintf(a.Out, "hint: %s\n", hint)
		}
	}
	if migration.Spec.Desire != v1alpha1.DesireRun && !state.Over() {
		fmt.Fprintf(a.Out, "asked to: %s\n", strings.ToLower(string(migration.Spec.Desire)))
	}
	for _, line := range times.Lines() {
		fmt.Fprintln(a.Out, line)
	}
	who(a, migration, state, holder, stand, absent)
	return contradiction
}

// outline reads a migration and the outline of its plan. A plan that this machine has proven before is not proven
// again.
func outline(ctx context.Context, a *app.App, client *kube.Client, name string) (*plan.Outline, *v1alpha1.Migration,
	error) {
	known := approval.Proven(name, a.Version)
	p, migration, digest, err := journal.LoadOutline(ctx, client.Dynamic, name, known)
	if err == nil && digest != known {
		approval.KeepProven(name, digest, a.Version)
	}
	return p, migration, err
}

// who says which process runs a migration, and what the controller in the cluster waits for; absent is why that one
// does not run.
func who(a *app.App, migration *v1alpha1.Migration, state engine.State, holder *journal.HeldError,
	stand engine.Standing, absent error) {
	inCluster := migration.Spec.InCluster && !state.Over()
	var waits []string
	if inCluster {
		waits = incluster.Waits(migration)
	}
	for _, line := range waits {
		fmt.Fprintln(a.Out, "waits: "+line)
	}
	switch {
	case holder != nil:
		fmt.Fprintln(a.Out, holder)
	case inCluster:
		line := "the controller in the cluster has it, but does not run it now"
		switch {
		case absent != nil:
			line += ": " + absent.Error()
			if hint := exit.HintOf(absent); hint != "" {
				line += "\nhint: " + hint
			}
		case len(waits) == 0: // else they say what to do
			line += ": `theseus resume --in-cluster` makes it try again"
		}
		fmt.Fprintln(a.Out, line)
		fmt.Fprintln(a.Out, "from this machine: "+stand.Ways)
	case !state.Over():
		fmt.Fprintln(a.Out, "no process runs it: "+stand.Ways)
	}
}

// seen summarizes a migration's probes, from the evidence on this machine and in the cluster; over is true if it has
// ended. If a part of the evidence cannot be read, the error says why, and the summary covers the rest.
func seen(ctx context.Context, client *kube.Client, p *plan.Outline, over bool) (run.Seen, error) {
	if !p.OnNodes {
		return run.Seen{}, nil
	}
	dir, err := statedir.Of(p.Name)
	if err != nil {
		return run.Seen{}, err
	}
	actor := run.NewActor(client)
	evidence, err := run.Gather(ctx, actor, p.Name, dir, over)
	return run.SeenIn(evidence), err
}
