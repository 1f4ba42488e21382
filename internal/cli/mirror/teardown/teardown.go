package teardown

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/mirror/pair"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/mirrored"
	"github.com/theseus-cni/theseus/internal/step"
)

// NewCommand makes the command theseus mirror teardown.
func NewCommand(m *clusters.Clusters) *cobra.Command {
	yes := false
	command := pair.Command(m, "teardown", "Remove the copies from the mirror, once the original serves everything",
		"Lists the objects that a migration copied to the mirror. With --yes, it deletes them and "+
			"waits until they are gone,\n"+
			"load balancers included. It refuses while a name is not at the original, or a cache "+
			"may still have the mirror's\n"+
			"address. The journal stays, in the original. Remove the mirror's machines yourself.",
		func(ctx context.Context, client *kube.Client, access mirror.Access, p *plan.Plan) error {
			return takeDown(ctx, m, client, access, p, yes)
		})
	command.Flags().BoolVar(&yes, "yes", false, "delete the listed objects")
	return command
}

func takeDown(ctx context.Context, m *clusters.Clusters, client *kube.Client, access mirror.Access,
	p *plan.Plan, yes bool) error {
	pair, err := pair.Reach(ctx, m.App, access, p)
	if err != nil {
		return err
	}
	if err := mustBeBack(ctx, pair, client); err != nil {
		return err
	}
	removal, err := pair.Mirror.Copies(ctx, p.Mirror.Original, p.Mirror.Copy.Namespaces)
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
	if m.Output == "json" {
		if err := terminal.WriteJSON(m.Out,
			map[string]any{"delete": going, "stays": staying, "done": yes}); err != nil {
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
		m.Note("the mirror has no copied objects left")
		return nil
	case !yes:
		return exit.Fail(exit.Usage, "read the list, then add --yes", "this deletes %s of the mirror",
			cluster.Count(len(going), "object"))
	}
	if err := pair.Mirror.Remove(ctx, removal, m.Note); err != nil {
		return err
	}
	if m.Output != "json" {
		fmt.Fprintf(m.Out, "%s deleted; the journal of %s stays in the original; remove the mirror's machines "+
			"yourself\n", cluster.Count(len(going), "object"), p.Name)
	}
	return nil
}

// mustBeBack refuses while clients may still use the mirror: every name must be at the original according to its zone,
// every server and resolver must show it, and the TTLs must have expired since the journal's last move.
func mustBeBack(ctx context.Context, p *mirrored.World, client *kube.Client) error {
	records, state, err := migrations.Standing(ctx, client, p.Plan.Name)
	if err != nil {
		return err
	}
	if !state.Over() {
		return exit.Fail(exit.Blocked, "finish it with `theseus resume`, or undo it with `theseus rollback`",
			"migration %s has not ended: %s", p.Plan.Name, state.Phase)
	}
	places, err := p.Places(ctx)
	if err != nil {
		return err
	}
	wait := time.Duration(0)
	for _, found := range places {
		if found.At != "original" {
			return exit.Fail(exit.Blocked, "theseus mirror status shows where the names are",
				"%s is not at the original, but %s: %s", found.Name, found.At, strings.Join(found.Records, ", "))
		}
	}
	for _, m := range p.Plan.Mirror.Names.Moves {
		for _, set := range slices.Concat(m.Before, m.After) {
			wait = max(wait, time.Duration(set.TTL)*time.Second)
		}
	}
	for _, z := range p.Plan.Mirror.Names.Zones {
		wait = max(wait, time.Duration(z.Negative)*time.Second)
	}
	if until := lastMove(p.Plan.Steps, records).Add(wait); time.Now().Before(until) {
		return exit.Fail(exit.Blocked, "try again after that time", "caches may have the mirror's addresses until %s",
			until.Local().Format(time.TimeOnly))
	}
	see := &dns.Actor{Zones: p.Zones, Resolvers: p.Config.Resolvers, Clock: run.Clock{}}
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return see.Shown(bounded, seen(p))
}

// seen are the records that every server and resolver must show for names at the original.
func seen(p *mirrored.World) []shift.SeeArgs {
	byZone := map[string]*shift.SeeArgs{}
	var order []string
	for _, m := range p.Plan.Mirror.Names.Moves {
		if byZone[m.Zone] == nil {
			byZone[m.Zone] = &shift.SeeArgs{Zone: m.Zone}
			order = append(order, m.Zone)
		}
		byZone[m.Zone].Sets = append(byZone[m.Zone].Sets,
			slices.DeleteFunc(slices.Clone(m.Before), func(set zone.RRSet) bool { return !set.IsAddress() })...)
	}
	var all []shift.SeeArgs
	for _, name := range order {
		all = append(all, *byZone[name])
	}
	return all
}

// lastMove is when the last action that changed records of zones ended, of the steps or of a rollback.
func lastMove(steps []step.Step, records []engine.Record) time.Time {
	swaps := map[string]bool{}
	note := func(a *step.Action) {
		do, is := a.Do.(step.DNS)
		swaps[a.ID] = is && do.Verb == shift.Swap
	}
	for i := range steps {
		for _, actions := range [][]step.Action{steps[i].Actions, steps[i].Undo} {
			for k := range actions {
				note(&actions[k])
			}
		}
	}
	var last time.Time
	for _, r := range records {
		if r.Inverse != nil {
			note(r.Inverse)
		}
		if r.Event == engine.Acted && swaps[r.Action] {
			last = r.At
		}
	}
	return last
}
