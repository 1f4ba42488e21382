package survey

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/mirror/registry"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/step"
)

// Check gathers the evidence for checks without a plan, and runs them on it. refused says why the new network is not
// among the evidence.
func Check(ctx context.Context, a *app.App, from []string, change v1alpha1.ChangeSpec, options preflight.Options) (pass *check.Pass, result finding.Result, refused, err error) {
	pass, refused, err = Evidence(ctx, a, from, change, options)
	if err != nil {
		return nil, result, nil, err
	}
	return pass, preflight.Run(preflight.All(), pass, options), refused, nil
}

// Evidence gathers the evidence for checks without a plan. refused says why the new network is not among it.
func Evidence(ctx context.Context, a *app.App, from []string, change v1alpha1.ChangeSpec, options preflight.Options) (pass *check.Pass, refused, err error) {
	if err := options.Validate(preflight.All()); err != nil {
		return nil, nil, exit.Fail(exit.Usage, "theseus check --list", "%w", err)
	}
	snapshot, err := See(ctx, a, from)
	if err != nil {
		return nil, nil, err
	}
	objects, err := readManifest(change.Manifest)
	if err != nil {
		return nil, nil, err
	}
	if err := plan.Possible(snapshot, change, drivers.All(), objects); err != nil {
		return nil, nil, err
	}
	chosen, why := plan.Chosen(snapshot, change, drivers.All(), objects)
	if pass, refused = passOf(snapshot, chosen, objects); refused != nil && why != nil {
		refused = why // a new network needs a range for pods, and this says why
	}
	if pass.WhatIf, err = whatif.Apply(snapshot, change); err != nil {
		return nil, nil, exit.Fail(exit.Usage, "theseus check --help", "%w", err)
	}
	if len(from) == 0 {
		pass.Served = Served(ctx, change.AgentImage)
	}
	return pass, refused, nil
}

// AddPlan adds the steps of a plan to the evidence, and, unless the cluster was read from files, what they write.
func AddPlan(ctx context.Context, a *app.App, from []string, pass *check.Pass, steps []step.Step) error {
	pass.Steps = steps
	if len(from) > 0 {
		return nil
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	return kube.AddWritten(ctx, client, pass.Snapshot, steps)
}

// Served asks the registry of the agent's image for its digest; nil if no image is named.
func Served(ctx context.Context, image string) *check.Served {
	if image == "" {
		return nil
	}
	pinned, err := registry.Digest(ctx, image)
	if err == nil {
		return &check.Served{Pinned: pinned}
	}
	var absent *registry.Absent
	return &check.Served{Missing: errors.As(err, &absent) && absent.Missing(), Why: err.Error()}
}

// Options are a change's options for the checks.
func Options(change v1alpha1.ChangeSpec) preflight.Options {
	return preflight.Options{Accept: change.Accept, Accepted: change.Accepted, Now: time.Now()}
}

// MustNotBlock prints blocking findings, and returns an error if there are any.
func MustNotBlock(a *app.App, result finding.Result, hint string) error {
	if !result.Blocks() {
		return nil
	}
	if err := preflight.Text(a.Err, result, preflight.Style{}); err != nil {
		return err
	}
	return exit.Fail(exit.Blocked, hint, "findings block this change: %d", result.Summary.Block)
}

// PrintFindings prints findings as text, if there are any.
func PrintFindings(a *app.App, found []finding.Finding) error {
	if len(found) == 0 {
		return nil
	}
	return preflight.Text(a.Out, finding.NewResult(found, nil), preflight.Style{Color: terminal.Is(a.Out) && os.Getenv("NO_COLOR") == ""})
}

// AcceptHint is the hint of findings that block a plan.
const AcceptHint = "fix the findings, or accept them: --accept ID=REASON"
