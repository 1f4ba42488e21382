package survey

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/registry"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/run/propose"
	"github.com/theseus-cni/theseus/internal/step"
)

// Check gathers the evidence for checks, and runs them on it.
func Check(ctx context.Context, a *app.App, from []string, change v1alpha1.ChangeSpec,
	options preflight.Options) (propose.Checked, error) {
	return checkOn(ctx, change, options, len(from) == 0, func() (*cluster.Snapshot, error) { return See(ctx, a, from) })
}

// CheckNodes is Check on the running cluster, with what Theseus' agent reads on every node.
func CheckNodes(ctx context.Context, a *app.App, change v1alpha1.ChangeSpec,
	options preflight.Options) (propose.Checked, error) {
	return checkOn(ctx, change, options, true, func() (*cluster.Snapshot, error) {
		snapshot, err := See(ctx, a, nil)
		if err != nil {
			return nil, err
		}
		snapshot.Facts, err = LookAtNodes(ctx, a, snapshot, change.AgentImage)
		return snapshot, err
	})
}

// checkOn refuses invalid input before it reads the cluster, which may install agents there.
func checkOn(ctx context.Context, change v1alpha1.ChangeSpec, options preflight.Options, live bool,
	see func() (*cluster.Snapshot, error)) (propose.Checked, error) {
	in := propose.Input{Change: change, Options: options}
	err := options.Validate(preflight.All())
	if err != nil {
		return propose.Checked{}, exit.Fail(exit.Usage, "theseus check --list", "%w", err)
	}
	if in.Manifest, err = readManifest(change); err != nil {
		return propose.Checked{}, err
	}
	if in.Snapshot, err = see(); err != nil {
		return propose.Checked{}, err
	}
	if live {
		in.Served = func() *check.Served { return Served(ctx, change.AgentImage) }
	}
	checked, err := propose.Check(in)
	if invalid, ok := errors.AsType[propose.Invalid](err); ok {
		return checked, exit.Fail(exit.Usage, exit.HintOf(invalid), "%w", invalid)
	}
	return checked, err
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
	return propose.Options(change, time.Now())
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
	return preflight.Text(a.Out, finding.NewResult(found, nil),
		preflight.Style{Color: terminal.Is(a.Out) && os.Getenv("NO_COLOR") == ""})
}

// AcceptHint is the hint of findings that block a plan.
const AcceptHint = "fix the findings, or accept them: --accept ID=REASON"
