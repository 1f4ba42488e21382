package planning

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/flags/origin"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cli/slo"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/propose"
	"github.com/theseus-cni/theseus/internal/step"
)

// Flags are the feature flags of a plan: sources, whose values are all stored, or one flag that decides what is rolled
// out.
type Flags struct {
	Sources     []string
	Origin, Key string
	// SignKey is the file of the SSH key for the signature of the plan's file; "" for none.
	SignKey string
	// Window is how long each window of the change is; 0 plans it in one go.
	Window time.Duration
	// AskSignals says that the signals of the change are of the user's own flags: they are asked once, unless the
	// cluster is read from files. Those of a document may be of someone else.
	AskSignals bool
}

// toAsk are the signals that planning asks.
func (f Flags) toAsk(from []string, change v1alpha1.ChangeSpec) []string {
	if !f.AskSignals || len(from) > 0 {
		return nil
	}
	return change.SLO
}

// Make reads the cluster, or the files from, plans a change, and prints or writes the plan.
func Make(ctx context.Context, a *app.App, from []string, change v1alpha1.ChangeSpec, with Flags) error {
	p, checked, err := Propose(ctx, a, from, change, with)
	if err != nil {
		return err
	}
	if n := checked.Result.Summary.NotChecked; n > 0 {
		fmt.Fprintf(a.Err, "note: %s could not run: theseus check with the same flags says why\n",
			cluster.Count(n, "check"))
	}
	if p.Cluster.UID == "" {
		fmt.Fprintln(a.Err, "note: the input does not identify its cluster (by the UID of Namespace kube-system), so "+
			"theseus apply will refuse this plan")
	}
	if err := slo.Note(ctx, a.Err, with.toAsk(from, p.Change)); err != nil {
		return err
	}
	return planfile.Write(a, p, with.SignKey)
}

// Propose reads the cluster, or the files from, and plans a change. It refuses a change that findings block, and prints
// those.
func Propose(ctx context.Context, a *app.App, from []string, change v1alpha1.ChangeSpec,
	with Flags) (*plan.Plan, propose.Checked, error) {
	others := change
	if change.Strategy == surge.Name {
		others.ReplaceNodes = "" // for plans, it selects the nodes to replace
	}
	if whatif.Asked(others) {
		return nil, propose.Checked{}, exit.Fail(exit.Usage,
			"use kubernetesTo, removeLabels, addLabels and replaceNodes only with theseus check",
			"a plan only changes the network")
	}
	if len(change.Windows) > 0 {
		return nil, propose.Checked{}, exit.Fail(exit.Usage, "leave windows out, and give them to the run: "+
			"theseus apply --in-cluster --window 'Sat 22:00-05:00 Europe/Berlin'",
			"only the controller keeps to the windows of a Change")
	}
	options := plan.Options{Version: a.Version, Now: time.Now(), Window: step.Duration(with.Window)}
	if with.Origin != "" {
		change.Flag = with.Origin // its setting is read below; for checks it is a rollout
	}
	checked, err := survey.Check(ctx, a, from, change, survey.Options(change))
	if err != nil {
		return nil, checked, err
	}
	if checked.Unnamed != nil {
		return nil, checked, checked.Unnamed
	}
	if err := survey.MustNotBlock(a, checked.Result, survey.AcceptHint); err != nil {
		return nil, checked, err
	}
	pass := checked.Pass
	if with.Origin != "" {
		options.Flags, options.Decided, err = origin.Decide(ctx, a, pass.Snapshot, with.Origin, with.Key)
		if err == nil {
			change.Flag = options.Decided.Knob
			err = checkDecided(a, pass, options.Decided)
		}
	} else {
		options.Flags, err = origin.Resolve(ctx, a, pass.Snapshot, with.Sources)
	}
	if err != nil {
		return nil, checked, err
	}
	change.AgentImage = Pinned(ctx, a, pass.Served, change.AgentImage)
	if len(from) == 0 {
		client, err := a.Client()
		if err != nil {
			return nil, checked, err
		}
		options.Learnt = earlier(ctx, client.Dynamic, pass.Snapshot.UID, a.Version, a.Tell)
	}
	p, err := propose.Plan(checked, change, options)
	if err != nil {
		return nil, checked, err
	}
	if err := maintained(ctx, a, from, &checked, p); err != nil {
		return nil, checked, err
	}
	if len(from) == 0 {
		if err := MayCarryOut(ctx, a, pass, p,
			"ask for the rights, or accept the finding: --accept api/rights=REASON"); err != nil {
			return nil, checked, err
		}
	}
	return p, checked, nil
}

// Pinned is the agent's image by its digest in the registry, so that no one can replace it once the plan was read. If
// the registry cannot be asked, the image keeps its tag, and the plan warns. known is the registry's answer to the
// checks, or nil.
func Pinned(ctx context.Context, a *app.App, known *check.Served, image string) string {
	if image == "" {
		return ""
	}
	if known == nil {
		known = survey.Served(ctx, image)
	}
	switch {
	case known.Pinned != "":
		return known.Pinned
	case known.Missing:
		fmt.Fprintf(a.Err,
			"note: the registry does not have %s: the agent only starts on nodes that already have the image\n", image)
	default:
		fmt.Fprintf(a.Err, "note: the agent's image is named by tag, not by digest: %s\n", known.Why)
	}
	return image
}

// checkDecided runs the checks of a setting whose values a flag set decides, for each of the values.
func checkDecided(a *app.App, pass *check.Pass, decided *plan.Decided) error {
	for _, value := range slices.Compact(slices.Sorted(maps.Values(decided.Values))) {
		with := *pass
		with.Change.Flag = decided.Knob + "=" + value
		if err := survey.MustNotBlock(a, preflight.Run(preflight.Named("felix/kube-proxy-mode"), &with,
			survey.Options(with.Change)), survey.AcceptHint); err != nil {
			return err
		}
	}
	return nil
}

// maintained refuses a plan of which something else would take the writes back, and adds to the plan what was found.
func maintained(ctx context.Context, a *app.App, from []string, checked *propose.Checked, p *plan.Plan) error {
	if err := survey.AddPlan(ctx, a, from, checked.Pass, p.Steps); err != nil {
		return err
	}
	return survey.MustNotBlock(a, propose.Planned(checked, p, survey.Options(p.Change)), survey.AcceptHint)
}

// MayCarryOut refuses a plan that this user lacks permissions for. hint says what to do then.
func MayCarryOut(ctx context.Context, a *app.App, pass *check.Pass, p *plan.Plan, hint string) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	if err := admission.AskRights(ctx, client, pass.Snapshot, p); err != nil {
		return err
	}
	return survey.MustNotBlock(a, propose.Rights(pass, survey.Options(p.Change)), hint)
}
