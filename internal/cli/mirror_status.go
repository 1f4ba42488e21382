package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// mirrorMigration is a command about one migration by the strategy mirror: the one named, or the latest such.
func (m *twins) mirrorMigration(use, short, long string, do func(context.Context, *kube.Client, *plan.Plan) error) *cobra.Command {
	command := &cobra.Command{
		Use: use + " [MIGRATION]", Short: short, Long: long,
		Args: atMostOne("one migration's name"),
		RunE: func(command *cobra.Command, args []string) error {
			m.access.Kubeconfig, m.access.Context = *m.other.KubeConfig, *m.other.Context
			ctx := command.Context()
			client, err := m.client()
			if err != nil {
				return err
			}
			p, err := mirrorPlan(ctx, client, args)
			if err != nil {
				return err
			}
			if err := m.mayReach(p); err != nil {
				return err
			}
			return do(ctx, client, p)
		},
	}
	command.Flags().StringVar(&m.access.Zones, "zones", "", "file that says how the zones are reached (else that of the plan)")
	return command
}

// mayReach refuses to open files of this machine because a plan in the cluster names them, unless this machine was told to run it.
func (m *twins) mayReach(p *plan.Plan) error {
	if known, err := (&approvals{}).known(p); err != nil || known {
		return err
	}
	planned := p.Mirror.Access
	if (planned.Kubeconfig+planned.Context == "" || m.access.Kubeconfig+m.access.Context != "") && (planned.Zones == "" || m.access.Zones != "") {
		return nil
	}
	return fail(exitUsage, "name the mirror with --mirror-kubeconfig or --mirror-context, and --zones; or run it where the migration runs",
		"this machine does not know which plan of %s was approved, and opens no file because the cluster names it", p.Name)
}

// mirrorPlan is the plan of the migration that is named, or of the latest one by this strategy.
func mirrorPlan(ctx context.Context, client *kube.Client, names []string) (*plan.Plan, error) {
	if len(names) == 0 {
		all, err := journal.List(ctx, client.Dynamic)
		if err != nil {
			return nil, err
		}
		for _, one := range all {
			names = append(names, one.Name)
		}
	} else if p, _, err := journal.Load(ctx, client.Dynamic, names[0]); err != nil || p.Mirror == nil {
		if err == nil {
			err = fail(exitFailed, "`theseus status` shows it", "%s is a migration by the strategy %s", names[0], p.Strategy)
		}
		return nil, err
	}
	for _, name := range names { // the newest first
		p, _, err := journal.Load(ctx, client.Dynamic, name)
		if err != nil {
			return nil, err
		}
		if p.Mirror != nil {
			return p, nil
		}
	}
	return nil, fail(exitFailed, "theseus plan --strategy mirror --help", "no migration by the strategy mirror was ever begun in this cluster")
}

// mirrorStatus is what mirror status says.
type mirrorStatus struct {
	Name   string        `json:"name"`
	Phase  engine.Phase  `json:"phase"`
	Step   string        `json:"step,omitempty"`
	Title  string        `json:"title,omitempty"`
	Number int           `json:"number,omitempty"`
	Steps  int           `json:"steps"`
	Cause  string        `json:"cause,omitempty"`
	Names  []whereabouts `json:"names"`
	// Frozen names the namespaces that are.
	Frozen []string `json:"frozen"`
	// Differ are the objects that are not on the mirror as they should be, and what copy would do to them.
	Differ []string `json:"differ"`
	InStep int      `json:"inStep"`
	// Torn says that the copies were taken down, so nothing is compared. Unclear says why it is not known what differs.
	Torn    bool   `json:"torn,omitempty"`
	Unclear string `json:"unclear,omitempty"`
}

func (m *twins) statusCommand() *cobra.Command {
	return m.mirrorMigration("status", "Which phase, which names are where, and what differs now",
		"Reads the journal in the original, the zones and both clusters, and says how far the migration is, where every name\n"+
			"points by the zone itself, whether deploys are stopped, and what on the mirror is not as on the original. Nothing is\n"+
			"changed.", m.mirrorStatus)
}

func (m *twins) mirrorStatus(ctx context.Context, client *kube.Client, p *plan.Plan) error {
	_, state, err := standing(ctx, client, p.Name)
	if err != nil {
		return err
	}
	pair, err := m.reach(ctx, p)
	if err != nil {
		return err
	}
	s := mirrorStatus{Name: p.Name, Phase: state.Phase, Step: state.Step, Steps: len(p.Steps), Cause: state.Cause, Frozen: []string{}, Differ: []string{}}
	if i := slices.IndexFunc(p.Steps, func(one step.Step) bool { return one.ID == state.Step }); i >= 0 {
		s.Number, s.Title = i+1, p.Steps[i].Title
	}
	if s.Names, err = pair.places(ctx); err != nil {
		return err
	}
	current, err := (&replica.Freezer{Cluster: pair.original, Note: m.note}).Current(ctx)
	if err != nil {
		return err
	}
	if current != nil {
		s.Frozen = current.Namespaces
	}
	s.Torn = state.Phase == engine.PhaseDone && !p.Mirror.Keep
	if !s.Torn {
		if err := pair.differ(ctx, &s); err != nil {
			return err
		}
	}
	if m.output == "json" {
		return printJSON(m.Out, s)
	}
	return m.showStatus(&s)
}

// differ looks at both clusters.
func (p *pairOf) differ(ctx context.Context, s *mirrorStatus) error {
	copier, err := replica.NewCopier(p.plan.Mirror.Copy, func(string) {})
	if err != nil {
		return err
	}
	copier.Original, copier.Mirror, copier.Planned = p.original, p.mirror, true
	pass, err := copier.Look(ctx)
	if err != nil {
		s.Unclear = err.Error()
		return nil
	}
	s.InStep = pass.Delta.InStep
	for _, one := range slices.Concat(append(slices.Clone(pass.Delta.Waves), pass.Delta.Deletes)...) {
		s.Differ = append(s.Differ, string(one.Verb)+" "+one.Key.String())
	}
	return nil
}

func (m *twins) showStatus(s *mirrorStatus) error {
	fmt.Fprintf(m.Out, "%s: %s", s.Name, s.Phase)
	if s.Number > 0 && s.Phase != engine.PhaseDone && s.Phase != engine.PhaseRolledBack {
		fmt.Fprintf(m.Out, ", step %d of %d: %s", s.Number, s.Steps, s.Title)
	}
	fmt.Fprintln(m.Out)
	if s.Cause != "" {
		fmt.Fprintf(m.Out, "because: %s\n", s.Cause)
	}
	w := tabwriter.NewWriter(m.Out, 0, 0, 2, ' ', 0)
	counts := map[string]int{}
	for _, found := range s.Names {
		counts[found.At]++
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", found.At, found.Name, strings.Join(found.Records, ", "), strings.Join(found.Services, ", "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(m.Out, "%s at the original, %d at the mirror", cluster.Count(counts["original"], "name"), counts["mirror"])
	for _, at := range []string{"both", "elsewhere"} {
		if counts[at] > 0 {
			fmt.Fprintf(m.Out, ", %d %s", counts[at], at)
		}
	}
	deploys := "deploys go on"
	if len(s.Frozen) > 0 {
		deploys = "deploys are stopped in " + strings.Join(s.Frozen, ", ")
	}
	fmt.Fprintf(m.Out, "; %s\n", deploys)
	switch {
	case s.Torn:
		fmt.Fprintln(m.Out, "what was copied to the mirror was taken down")
		return nil
	case s.Unclear != "":
		fmt.Fprintf(m.Out, "what differs is not known: %s\n", s.Unclear)
		return nil
	}
	const most = 10
	for _, text := range s.Differ[:min(len(s.Differ), most)] {
		fmt.Fprintf(m.Out, "differs: %s\n", text)
	}
	fmt.Fprintf(m.Out, "%d objects differ, %d are in step\n", len(s.Differ), s.InStep)
	return nil
}

func (m *twins) teardownCommand() *cobra.Command {
	yes := false
	command := m.mirrorMigration("teardown", "Take down what was copied to the mirror, when the original serves everything",
		"Lists what was copied to the mirror by a migration, and with --yes deletes it and waits until it is gone, load\n"+
			"balancers too. It refuses as long as a name is not at the original, or a cache may still have the mirror's address.\n"+
			"The journal stays, in the original. The mirror's machines are left to whoever made them.",
		func(ctx context.Context, client *kube.Client, p *plan.Plan) error {
			return m.teardown(ctx, client, p, yes)
		})
	command.Flags().BoolVar(&yes, "yes", false, "the list was read: delete it")
	return command
}

func (m *twins) teardown(ctx context.Context, client *kube.Client, p *plan.Plan, yes bool) error {
	pair, err := m.reach(ctx, p)
	if err != nil {
		return err
	}
	if err := pair.mustBeHome(ctx, client); err != nil {
		return err
	}
	removal, err := pair.mirror.Copies(ctx, p.Mirror.Original, p.Mirror.Copy.Namespaces)
	if err != nil {
		return err
	}
	going, staying := []string{}, []string{}
	for _, object := range removal.Delete {
		going = append(going, objects.KeyOf(object).String())
	}
	for _, left := range removal.Stays {
		staying = append(staying, left.Key.String()+": "+left.Why)
	}
	if m.output == "json" {
		if err := printJSON(m.Out, map[string]any{"delete": going, "stays": staying, "done": yes}); err != nil {
			return err
		}
	} else {
		for _, text := range going {
			fmt.Fprintln(m.Out, "delete "+text)
		}
		for _, text := range staying {
			fmt.Fprintln(m.Out, "keep "+text)
		}
	}
	switch {
	case len(going) == 0:
		m.note("nothing that was copied is left on the mirror")
		return nil
	case !yes:
		return fail(exitUsage, "read it, then add --yes", "this deletes %s of the mirror", cluster.Count(len(going), "object"))
	}
	if err := pair.mirror.Remove(ctx, removal, m.note); err != nil {
		return err
	}
	if m.output != "json" {
		fmt.Fprintf(m.Out, "%s deleted; the journal of %s stays in the original, and the mirror's machines are yours to take down\n", cluster.Count(len(going), "object"), p.Name)
	}
	return nil
}

// mustBeHome refuses while somebody may still ask the mirror: every name is at the original by the zone itself, every
// server and resolver shows it, and the TTLs have passed since the journal's last move.
func (p *pairOf) mustBeHome(ctx context.Context, client *kube.Client) error {
	records, state, err := standing(ctx, client, p.plan.Name)
	if err != nil {
		return err
	}
	if !state.Over() {
		return fail(exitBlocked, "finish it with `theseus resume`, or take it back with `theseus rollback`", "migration %s is not over: %s", p.plan.Name, state.Phase)
	}
	places, err := p.places(ctx)
	if err != nil {
		return err
	}
	wait := time.Duration(0)
	for _, found := range places {
		if found.At != "original" {
			return fail(exitBlocked, "theseus mirror status shows where the names are", "%s is not at the original, but %s: %s", found.Name, found.At, strings.Join(found.Records, ", "))
		}
	}
	for _, m := range p.plan.Mirror.Names.Moves {
		for _, set := range slices.Concat(m.Before, m.After) {
			wait = max(wait, time.Duration(set.TTL)*time.Second)
		}
	}
	for _, z := range p.plan.Mirror.Names.Zones {
		wait = max(wait, time.Duration(z.Negative)*time.Second)
	}
	if until := lastMove(records).Add(wait); time.Now().Before(until) {
		return fail(exitBlocked, "try again then", "caches may have the mirror's addresses until %s", until.Local().Format(time.TimeOnly))
	}
	see := &dns.Actor{Zones: p.zones, Resolvers: p.config.Resolvers, Clock: run.Clock{}}
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return see.Shown(bounded, p.seen())
}

// seen is what every server and resolver must show of names that are at the original.
func (p *pairOf) seen() []shift.SeeArgs {
	byZone := map[string]*shift.SeeArgs{}
	var order []string
	for _, m := range p.plan.Mirror.Names.Moves {
		if byZone[m.Zone] == nil {
			byZone[m.Zone] = &shift.SeeArgs{Zone: m.Zone}
			order = append(order, m.Zone)
		}
		byZone[m.Zone].Sets = append(byZone[m.Zone].Sets, slices.DeleteFunc(slices.Clone(m.Before), func(set zone.RRSet) bool { return !set.IsAddress() })...)
	}
	var all []shift.SeeArgs
	for _, name := range order {
		all = append(all, *byZone[name])
	}
	return all
}

// lastMove is when the last action that changes records ended.
func lastMove(records []engine.Record) time.Time {
	var last time.Time
	for _, r := range records {
		if r.Event == engine.Acted && strings.Contains(r.Action, "/swap-") {
			last = r.At
		}
	}
	return last
}
