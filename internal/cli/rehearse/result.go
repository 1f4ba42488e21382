package rehearse

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/view"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/mirror/scratch"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// result is what a rehearsal showed.
type result struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Original is the UID of the original's namespace kube-system.
	Original  string `json:"original"`
	Migration string `json:"migration"`
	From      string `json:"from"`
	To        string `json:"to"`
	Strategy  string `json:"strategy"`
	// Labels is the change, if it is one of the nodes' labels: no network is changed then, and there is no migration.
	Labels string `json:"labels,omitempty"`
	// Passed says that the change ran to its end, and that no path lost more than the change allows.
	Passed bool `json:"passed"`
	// Covered is false if the copy lacks something that the change of the original meets; Uncovered says what.
	Covered   bool                 `json:"covered"`
	Uncovered []string             `json:"uncovered,omitempty"`
	Why       string               `json:"why"`
	Copy      *rehearsal.Copy      `json:"copy"`
	Coverage  []rehearsal.Coverage `json:"coverage"`
	// Planned is the estimate for the original, and Learnt the same with the pace of the copy, if the run there came to
	// its end.
	Planned step.Duration `json:"planned,omitempty"`
	Learnt  step.Duration `json:"learnt,omitempty"`
	Kept    bool          `json:"kept,omitempty"`
	// Back is how the change was rolled back from its middle, before it ran to its end; nil if it was not.
	Back *back `json:"back,omitempty"`
	// Faults are the runs with faults, which were rolled back too.
	Faults []*faulted `json:"faults,omitempty"`
	// Shown are the troubles with pods of the copy that lasted while the change ran.
	Shown []rehearsal.Shown `json:"shown,omitempty"`
	// Traffic is what became of connections between stand-ins.
	Traffic []rehearsal.Asked `json:"traffic,omitempty"`
	Report  *report.Model     `json:"report,omitempty"`
}

// judge reads the journal and the measurements of the run on the copy. original is the plan for the original.
func (r *result) judge(ctx context.Context, client *kube.Client, p, original *plan.Plan) error {
	dir, err := statedir.Of(p.Name)
	if err != nil {
		return err
	}
	input, err := run.ReportInput(ctx, client, p, dir, func(string) {})
	if err != nil {
		return err
	}
	model := report.Build(input)
	r.Report = &model
	r.Passed, r.Why = passed(&model)
	r.Planned = original.Estimate
	if model.Run.Outcome == report.Done {
		runs := [][]engine.Record{input.Records}
		if r.Back != nil { // the images were on the nodes when the second run began
			runs = [][]engine.Record{r.Back.records, input.Records}
		}
		r.Learnt = learnt(original, p, runs...)
	}
	return nil
}

// passed judges the run: every level at which a gate would let the change go on, and that was measured.
func passed(model *report.Model) (bool, string) {
	switch model.Verdict.Level {
	case report.Good, report.Partial, report.Fair:
		return true, model.Verdict.Title
	}
	why := model.Verdict.Title
	if model.Verdict.Why != "" {
		why += ": " + model.Verdict.Why
	}
	return false, why
}

// uncovered says what the change of the original meets, and that of the copy does not.
func uncovered(made *rehearsal.Copy, unplaced []string, coverage []rehearsal.Coverage) (all []string) {
	if len(made.Workloads) == 0 {
		all = append(all, "the original has no workloads of users")
	}
	if len(unplaced) > 0 {
		all = append(all, fmt.Sprintf("%s found no node: %s", cluster.Count(len(unplaced), "workload"),
			strings.Join(names(unplaced), ", ")))
	}
	for _, lack := range made.Lacks {
		if lack.What == rehearsal.MixedLabels {
			all = append(all, lack.What+": "+lack.Follows)
		}
	}
	if len(made.Unasked) > 0 {
		all = append(all, "webhooks that must answer are not in the copy: "+strings.Join(made.Unasked, ", "))
	}
	if missing := slices.Concat(made.Unbounded, made.Unlike()); len(missing) > 0 {
		all = append(all, "quotas and LimitRanges differ from those of the original: "+strings.Join(missing, ", "))
	}
	for _, area := range coverage {
		if area.IsSettings() && area.Alike < area.All {
			all = append(all, strings.Replace(area.Area, "settings", "settings differ", 1)+": "+
				strings.Join(area.Not, "; "))
		}
		if len(area.Unevaluated) > 0 {
			all = append(all, "policies that are not evaluated are not in the copy: "+
				strings.Join(area.Unevaluated, ", "))
		}
	}
	return all
}

// unlikePlans are kinds of steps of the plan for the original that the plan for the copy does not have.
func unlikePlans(original, copied *plan.Plan) (all []string) {
	has := kinds(copied)
	for _, kind := range slices.Sorted(maps.Keys(kinds(original))) {
		if !has[kind] {
			all = append(all, "the plan of the original has steps that the copy's lacks: "+kind)
		}
	}
	return all
}

// kinds are what the actions of a plan do: operations, and the verbs of agents.
func kinds(p *plan.Plan) map[string]bool {
	all := map[string]bool{}
	for i := range p.Steps {
		for _, action := range p.Steps[i].Actions {
			all[strings.TrimSpace(string(action.Op())+" "+action.Verb())] = true
		}
	}
	return all
}

// names are the workloads of lines such as "Deployment shop/web: why".
func names(lines []string) (all []string) {
	for _, line := range lines {
		name, _, _ := strings.Cut(line, ": ")
		all = append(all, name)
	}
	return all
}

// unready says why the copy's workloads are less ready than before; "" if they are not. Those that were not placed
// before need not be now.
func unready(before, now []string, err error) string {
	lost := slices.DeleteFunc(names(now), func(name string) bool { return slices.Contains(names(before), name) })
	switch {
	case err != nil:
		return exit.OneLine(err.Error())
	case len(lost) > 0:
		return "no node fits these: " + strings.Join(lost, ", ")
	}
	return ""
}

// after judges how ready the copy's workloads are after the change.
func (r *result) after(before, now []string, err error) {
	if why := unready(before, now, err); why != "" {
		r.Passed, r.Why = false, "after the change: "+why
	}
}

// fault runs the change with a fault; what it shows is of the fault. An error says that no other run can follow.
func (r *result) fault(ctx context.Context, a *app.App, s *scratch.Scratch, p *plan.Plan, n int, f placed,
	made *rehearsal.Copy, unplaced []string, wait time.Duration, w *watcher) error {
	w.pause()
	defer w.resume()
	fmt.Fprintf(a.Err, "the change begins again, with the fault %s, and is rolled back after step %d of %d\n",
		printable.Line(f.Name+" with "+newFaulted(p, f).when()), n, len(p.Steps))
	one, b, err := withFault(ctx, a, s.Client, p, n, f, w)
	if one == nil {
		return err
	}
	r.Faults = append(r.Faults, one)
	if err != nil {
		return err
	}
	if err := b.still(unplaced, func() ([]string, error) { return s.Ready(ctx, made, wait) }); err != nil {
		one.Passed, one.Happened = false, b.Why
		return err
	}
	fmt.Fprintln(a.Err, printable.Line(one.String()))
	return nil
}

// broken makes a run with a fault that did not end as the rules say one that did not pass.
func (r *result) broken() {
	for _, f := range r.Faults {
		if r.Passed && !f.Passed {
			r.Passed, r.Why = false, fmt.Sprintf("with the fault %s, the run did not end as expected: %s", f.Fault,
				f.Happened)
		}
	}
}

// talked judges the connections between stand-ins. Those that were not compared are not covered.
func (r *result) talked(maxLost int64) {
	if wrong := rehearsal.TalkWrong(r.Traffic, maxLost); r.Passed && wrong != "" {
		r.Passed, r.Why = false, wrong
	}
	if unlike := rehearsal.TalkUnlike(r.Traffic); len(unlike) > 0 {
		r.Uncovered = append(r.Uncovered, fmt.Sprintf("%s between stand-ins: %s",
			cluster.Count(len(unlike), "connection"), strings.Join(unlike, "; ")))
	}
	r.Covered = len(r.Uncovered) == 0
}

// still demands that the copy's workloads are ready after the rollback, too.
func (b *back) still(before []string, ready func() ([]string, error)) error {
	now, err := ready()
	if why := unready(before, now, err); why != "" {
		b.Passed, b.Why = false, "after the rollback: "+why
		return exit.Fail(exit.Failed, "kubectl describe pods says why", "%s", b.Why)
	}
	return nil
}

// learnt is how long the original's plan takes, if its steps differ from their estimates as those of the copy's did. Of
// each step, the first run in which it was done counts.
func learnt(original, copied *plan.Plan, runs ...[]engine.Record) step.Duration {
	steps := map[string]*step.Step{}
	for i := range copied.Steps {
		steps[copied.Steps[i].ID] = &copied.Steps[i]
	}
	var pace estimate.Pace
	for _, records := range runs {
		var since time.Time
		for _, record := range records {
			switch record.Event {
			case engine.StepBegan:
				since = record.At
			case engine.StepDone:
				if done := steps[record.Step]; done != nil && !since.IsZero() {
					pace.Learn(done, record.At.Sub(since))
					delete(steps, record.Step)
				}
			}
		}
	}
	var all time.Duration
	for i := range original.Steps {
		all += pace.Takes(&original.Steps[i])
	}
	return step.Duration(all)
}

// show prints the rehearsal's part of the report, below that of the migration, and writes the file that -o names. end
// is how the run ended; it stays the error.
func (r *result) show(a *app.App, end error) error {
	if err := r.write(a.Output); err != nil {
		return err
	}
	if err := a.Printed(r.text); err != nil {
		return err
	}
	switch {
	case end != nil:
		return end
	case !r.Passed && r.Labels != "":
		return exit.Fail(exit.Failed, "read what the run showed, and the findings of theseus check with the same flags",
			"the change did not pass on the copy: %s", printable.Line(r.Why))
	case !r.Passed:
		return exit.Fail(exit.Failed, "theseus report -o report.html, with the scratch cluster's --context, shows "+
			"every path", "the change did not pass on the copy: %s", printable.Line(r.Why))
	}
	return nil
}

// write writes the file that -o names.
func (r *result) write(name string) error {
	switch {
	case strings.HasSuffix(name, ".json"):
		return outfile.WriteBy(name, func(to io.Writer) error { return terminal.WriteJSON(to, r) })
	case strings.HasSuffix(name, ".html"):
		model := report.Build(report.Input{})
		if r.Report != nil {
			model = *r.Report
		}
		head := r.head()
		model.Head = &head
		page, err := report.HTML(model)
		if err != nil {
			return err
		}
		return outfile.Write(name, printable.Text(page))
	}
	return nil
}

// head is what is said of the rehearsal above the report of its run.
func (r *result) head() report.Head {
	h := report.Head{Word: "rehearsal did not pass", Level: report.Bad, Below: "The run on the copy"}
	switch {
	case r.Passed && r.Covered:
		h.Word, h.Level = "rehearsal passed", report.Good
	case r.Passed:
		h.Word, h.Level = "rehearsal passed in part", report.Fair
	}
	h.Title = fmt.Sprintf("%s -> %s by %s on a copy: %s", r.From, r.To, r.Strategy, r.Why)
	if r.Labels != "" {
		h.Title = fmt.Sprintf("%s on a copy: %s", r.Labels, r.Why)
	}
	if r.Back != nil {
		h.Lines = append(h.Lines, r.Back.String())
	}
	if len(r.Faults) > 0 {
		h.Tables = append(h.Tables, faultTable(r.Faults))
	}
	if len(r.Shown) > 0 {
		h.Tables = append(h.Tables, report.HeadTable(rehearsal.ShownTable(r.Shown)))
	}
	if len(r.Traffic) > 0 {
		h.Lines = append(h.Lines, rehearsal.TalkText(r.Traffic))
		h.Tables = append(h.Tables, report.HeadTable(rehearsal.TalkTable(r.Traffic)))
	}
	for _, what := range r.Uncovered {
		h.Lines = append(h.Lines, "not covered: "+what)
	}
	if r.Passed && r.Labels == "" {
		h.Lines = append(h.Lines, fmt.Sprintf("time for the original: %s at the pace of the copy (the plan says %s)",
			view.About(time.Duration(r.Learnt)), view.About(time.Duration(r.Planned))))
	}
	for _, table := range r.Copy.Tables() {
		h.Tables = append(h.Tables, report.HeadTable(table))
	}
	if len(r.Coverage) == 0 {
		return h
	}
	h.Tables = append(h.Tables, report.HeadTable(rehearsal.CoverageTable(r.Coverage)))
	unlike := report.HeadTable{Title: "Not alike in the copy and in the original"}
	for _, area := range r.Coverage {
		for _, not := range area.Not {
			unlike.Rows = append(unlike.Rows, []string{area.Area, not})
		}
	}
	if len(unlike.Rows) > 0 {
		h.Tables = append(h.Tables, unlike)
	}
	return h
}

// text is the rehearsal's part of the report.
func (r *result) text(to io.Writer) error {
	var b strings.Builder
	head := r.head()
	fmt.Fprintf(&b, "\n%s: %s\n", strings.ToUpper(head.Word), head.Title)
	fmt.Fprintf(&b, "not rehearsed: %s that the copy cannot have, which are listed first, with what follows\n",
		cluster.Count(len(r.Copy.Lacks), "thing"))
	for _, f := range r.Faults {
		fmt.Fprintln(&b, printable.Line(f.String()))
	}
	for _, one := range r.Shown {
		fmt.Fprintln(&b, printable.Line(one.String()))
	}
	for _, line := range head.Lines {
		fmt.Fprintln(&b, printable.Line(line))
	}
	if r.Migration != "" {
		fmt.Fprintf(&b, "`theseus report %s -o report.html` makes the page of the run; the scratch cluster keeps the "+
			"network that the run left\n", r.Migration)
	}
	if len(r.Coverage) > 0 {
		b.WriteString("\n")
		if err := rehearsal.CoverageText(&b, r.Coverage); err != nil {
			return err
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}
