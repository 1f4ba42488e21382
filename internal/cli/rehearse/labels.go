package rehearse

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/planning"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/mirror/scratch"
	"github.com/theseus-cni/theseus/internal/run/propose"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
)

// labelsWatch is how long the copy is watched after each part of a change of labels: what lasts is seen to last.
const labelsWatch = rehearsal.Lasts + 15*time.Second

// labelsAlone refuses what-ifs that cannot be made on a scratch cluster, and a change of labels together with another
// change.
func (o *options) labelsAlone(spec v1alpha1.ChangeSpec) error {
	const name = "name the labels: --remove-label KEY, --add-label KEY=VALUE"
	switch {
	case spec.KubernetesTo != "" || spec.ReplaceNodes != "" || len(spec.ClusterIDs)+len(spec.Peered) > 0:
		return exit.Fail(exit.Usage, name+"; theseus check --kubernetes-to says which an upgrade changes",
			"kubernetesTo, replaceNodes, clusterIDs and peered cannot be rehearsed")
	case !whatif.Asked(spec):
		return nil
	case spec.To != "" || spec.Strategy != "" || spec.Dataplane != "" || spec.Pool != "" || spec.Encapsulation != "" ||
		spec.Reflectors != "" || spec.Flag != "":
		return exit.Fail(exit.Usage, "rehearse one after the other",
			"a change of labels cannot be rehearsed together with another change")
	case o.once || len(o.faults) > 0:
		return exit.Fail(exit.Usage, "leave them out", "--once and --faults are for changes with a plan, and a change "+
			"of labels has none")
	}
	if err := whatif.Validate(spec); err != nil {
		return exit.Fail(exit.Usage, name, "%w", err)
	}
	return nil
}

// lookLabels checks a change of labels on the original.
func (o *options) lookLabels(ctx context.Context, a *app.App, spec v1alpha1.ChangeSpec,
	side rehearsal.Side) (original, error) {
	checked, err := survey.Check(ctx, a, o.from, spec, survey.Options(spec))
	if err != nil {
		return original{}, err
	}
	if err := survey.MustNotBlock(a, checked.Result, survey.AcceptHint); err != nil {
		return original{}, err
	}
	if labelsOf(checked.Pass.WhatIf.Effects) == "" {
		return original{}, exit.Fail(exit.Usage, "theseus check with the same flags says what the change does",
			"the change of labels changes no node")
	}
	side.Findings = checked.Result
	return original{Side: side, effects: checked.Pass.WhatIf.Effects,
		image: planning.Pinned(ctx, a, nil, spec.AgentImage)}, nil
}

// onceMade plans the change on the copy; the plan of a change of labels is nil.
func (o *options) onceMade(ctx context.Context, a *app.App, spec v1alpha1.ChangeSpec,
	from original) (*plan.Plan, propose.Checked, error) {
	if from.plan != nil {
		return planning.Propose(ctx, a, nil, spec, planning.Flags{})
	}
	checked, err := survey.Check(ctx, a, nil, spec, survey.Options(spec))
	if err != nil {
		return nil, checked, err
	}
	return nil, checked, survey.MustNotBlock(a, checked.Result, survey.AcceptHint)
}

// does says what the change does to the scratch cluster.
func (o original) does() string {
	if o.plan == nil {
		return "labels of its nodes are changed: " + labelsOf(o.effects)
	}
	return fmt.Sprintf("the network of that cluster is changed: %s -> %s", o.plan.From(), o.plan.To())
}

// labelsOf is a change of labels in a line, as on the original.
func labelsOf(effects []whatif.Effect) string {
	var all []string
	for _, e := range effects {
		if e.What != whatif.Label {
			continue
		}
		text := "remove the label " + e.Key
		if !e.Removed {
			text = "set the label " + e.Key + "=" + e.Value
		}
		all = append(all, text+" of "+cluster.Count(len(e.Nodes), "node"))
	}
	return strings.Join(all, ", ")
}

// printed prints what a change does to labels, if it changes any.
func printed(a *app.App, relabels []rehearsal.Relabel) error {
	if len(relabels) == 0 {
		return nil
	}
	return a.Printed(func(to io.Writer) error {
		t := rehearsal.RelabelTable(relabels)
		fmt.Fprintf(to, "\n%s:\n", t.Title)
		rows := tabwriter.NewWriter(to, 0, 4, 2, ' ', 0)
		for _, row := range append([][]string{t.Head}, t.Rows...) {
			fmt.Fprintf(rows, "  %s\t%s\n", printable.Line(row[0]), printable.Line(row[1]))
		}
		return rows.Flush()
	})
}

// relabelled makes a change of labels on the copy, with new pods, takes it back, and makes it again if all went well.
func (o *options) relabelled(ctx context.Context, a *app.App, s *scratch.Scratch, made *rehearsal.Copy,
	all []rehearsal.Relabel, unplaced []string, r *result, w *watcher) (err error) {
	users := map[string]bool{}
	for _, one := range made.Workloads {
		users[one.Kind+" "+one.Namespace+"/"+one.Name] = true
	}
	fmt.Fprintf(a.Err, "the change begins: %s\n", r.Labels)
	defer func() { // also when it is interrupted
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), healing)
		defer cancel()
		if undone := s.Unlabel(back, all); err == nil {
			err = undone
		}
	}()
	why, err := o.labelled(ctx, a, s, made, all, users, unplaced, r)
	if err != nil {
		return err
	}
	wrong := cmp.Or(w.wrong(), why)
	fmt.Fprintln(a.Err, "the change is taken back")
	if err := s.Unlabel(ctx, all); err != nil {
		return err
	}
	now, failed := s.Ready(ctx, made, o.wait)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if why := unready(unplaced, now, failed); why != "" && wrong == "" {
		wrong = "after the change was taken back: " + why
	}
	w.final()
	w.hear(ctx)
	if wrong = cmp.Or(wrong, w.wrong()); wrong == "" {
		fmt.Fprintln(a.Err, "the change is made again")
		if wrong, err = o.labelled(ctx, a, s, made, all, nil, unplaced, r); err != nil {
			return err
		}
		w.hear(ctx)
	}
	r.Passed, r.Why = wrong == "", cmp.Or(wrong, "the copy's workloads stayed ready")
	return nil
}

// labelled changes the labels of nodes, and evicts a pod of each of these workloads; those that keep their pods are not
// covered. It returns what is not as before.
func (o *options) labelled(ctx context.Context, a *app.App, s *scratch.Scratch, made *rehearsal.Copy,
	all []rehearsal.Relabel, evicts map[string]bool, unplaced []string, r *result) (why string,
	err error) {
	if err := s.Relabel(ctx, all); err != nil {
		return "", err
	}
	if err := outage.Sleep(ctx, labelsWatch); err != nil {
		return "", err
	}
	if len(evicts) > 0 {
		n, kept, err := s.Renew(ctx, evicts)
		if err != nil {
			return "", err
		}
		if len(kept) > 0 {
			r.Uncovered = append(r.Uncovered, "no new pod was made of: "+strings.Join(kept, ", "))
		}
		fmt.Fprintf(a.Err, "evicted %s: a new pod must find a node\n", cluster.Count(n, "pod"))
		if err := outage.Sleep(ctx, labelsWatch); err != nil {
			return "", err
		}
	}
	now, err := s.Ready(ctx, made, o.wait)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if why := unready(unplaced, now, err); why != "" {
		return "with the change: " + why, nil
	}
	return "", nil
}

// trapped makes a change of labels one that did not pass if pods found no node with it: no gate judges it.
func (r *result) trapped() {
	for _, one := range r.Shown {
		if r.Labels != "" && r.Passed && one.Trap == rehearsal.TrapNode {
			r.Passed, r.Why = false, fmt.Sprintf("%s: %s", one.Object, one.What)
		}
	}
}
