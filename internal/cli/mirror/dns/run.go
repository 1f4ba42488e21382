package dns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/mirror/zonefile"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cli/view"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

const journalHelp = "The journal is a file on this machine, in THESEUS_STATE_DIR (else ~/.local/state/theseus): run " +
	"the command again here, or\n" +
	"with that folder, and it continues from wherever it was interrupted or killed."

func newMove(m *clusters.Clusters) *cobra.Command {
	var zones string
	var yes bool
	command := &cobra.Command{
		Use:   "move PLAN --zones FILE --yes",
		Short: "Move names by a plan, with a gate after every wave",
		Long: "Carries out a plan of moves: it lowers the TTLs and waits for them to expire; then, " +
			"wave by wave, it checks the\n" +
			"services, moves the names, waits until every name server shows it, and watches; at the " +
			"end it restores the TTLs.\n" +
			"A failure is rolled back in the same way.\n\n" + journalHelp,
		Args: usage.Exactly(1, "one plan file"),
		RunE: func(command *cobra.Command, args []string) error {
			p, err := readPlan(args[0])
			if err != nil {
				return err
			}
			return carryOut(command.Context(), m, p, args[0], zones, yes, v1alpha1.DesireRun)
		},
	}
	command.Flags().StringVar(&zones, "zones", "", "file that says how the zones are reached")
	command.Flags().BoolVar(&yes, "yes", false, "change the zones, as the plan says")
	return command
}

func newBack(m *clusters.Clusters) *cobra.Command {
	var zones string
	var yes bool
	command := &cobra.Command{
		Use:   "back PLAN --zones FILE --yes",
		Short: "Move names back to the original, by the same procedure",
		Long: "Rolls back a move that is running or was interrupted. A finished move is reversed step by " +
			"step, with the same checks,\n" +
			"waits and gates, towards the original. A name that someone else has changed since is left alone.\n" +
			"\n" + journalHelp,
		Args: usage.Exactly(1, "the plan file of the move"),
		RunE: func(command *cobra.Command, args []string) error {
			p, err := readPlan(args[0])
			if err != nil {
				return err
			}
			state, err := stateOf(command.Context(), p)
			switch {
			case errors.Is(err, errNotBegun):
				return exit.Fail(exit.Failed, "theseus mirror dns move "+args[0],
					"no name of %s has moved: %w", p.Name, err)
			case err != nil:
				return err
			case state.Phase == engine.PhaseRolledBack:
				return exit.Fail(exit.Failed, "make a new plan to start again", "%s was already rolled back", p.Name)
			case state.Phase == engine.PhaseDone:
				return carryOut(command.Context(), m, p.Back(), args[0], zones, yes, v1alpha1.DesireRun)
			}
			return carryOut(command.Context(), m, p, args[0], zones, yes, v1alpha1.DesireRollback)
		},
	}
	command.Flags().StringVar(&zones, "zones", "", "file that says how the zones are reached")
	command.Flags().BoolVar(&yes, "yes", false, "change the zones")
	return command
}

// carryOut runs the engine over a plan of moves, from where its journal ends.
func carryOut(ctx context.Context, m *clusters.Clusters, p *shift.Plan, file, zones string, yes bool,
	desire v1alpha1.Desire) error {
	config, err := zonefile.Read(zones)
	if err != nil {
		return err
	}
	if !yes {
		return exit.Fail(exit.Usage, "read the plan, then add --yes", "this changes zones")
	}
	opened, err := config.Open(ctx)
	if err != nil {
		return err
	}
	prober, err := config.Prober()
	if err != nil {
		return err
	}
	dir, err := statedir.Make(p.Name)
	if err != nil {
		return err
	}
	unlock, err := statedir.Lock(dir, p.Name)
	if err != nil {
		return err
	}
	defer unlock()
	records, err := journal.OpenFile(filepath.Join(dir, "journal.jsonl"))
	if err != nil {
		return err
	}
	defer records.Close()
	whole := dns.Plan(p)
	view, flight := viewOf(m, whole), run.NewFlight(whole)
	past, err := records.Records(ctx)
	if err != nil {
		return err
	}
	view.Past(past)
	if err := run.SignalsRun(whole, desire, past); err != nil {
		return err
	}
	if len(past) == 0 && desire == v1alpha1.DesireRun {
		if err := mustHold(ctx, m.Err, whole.Change.SLO); err != nil {
			return err
		}
	}
	asking, cut := context.WithCancel(ctx)
	defer cut()
	signals, err := run.Watch(asking, whole, past)
	if err != nil {
		return err
	}
	gate := run.Asking(&dns.Gate{Prober: prober, Clock: run.Clock{}}, whole, signals)
	stopping := &interrupt.Run{Stop: make(chan struct{}), Say: view.Say, Flight: flight.String}
	defer m.Signals.During(stopping)()
	outcome, err := engine.Run(ctx, whole, engine.Deps{
		Actor: &dns.Actor{Zones: opened, Resolvers: config.Resolvers, Prober: prober,
			Clock: run.Clock{}, Note: view.Note},
		Gate: gate, Journal: records, Control: dns.Wish(desire), Clock: run.Clock{},
		Stop: stopping.Stop, By: journal.Holder(), Theseus: m.Version, Note: view.Note,
		Notify: func(r engine.Record) { flight.Record(r); view.Record(r) },
	})
	view.Close()
	if err != nil {
		return err
	}
	if past, err = records.Records(ctx); err != nil {
		return err
	}
	return end(m, outcome, dns.LeftAlone(past), file)
}

func viewOf(m *clusters.Clusters, p *plan.Plan) view.View {
	if m.Output == "json" {
		return &view.Events{Out: m.Out}
	}
	return &view.Lines{Out: m.Out, Script: run.NewScript(p), Begun: time.Now()}
}

// stateOf is the state of a plan's move, from its journal.
func stateOf(ctx context.Context, p *shift.Plan) (engine.State, error) {
	dir, err := statedir.Of(p.Name)
	if err != nil {
		return engine.State{}, err
	}
	// not with OpenFile, which would cut off a record that is being written
	data, err := os.ReadFile(filepath.Join(dir, "journal.jsonl"))
	if os.IsNotExist(err) {
		return engine.State{Phase: engine.PhaseNew}, errNotBegun
	}
	if err != nil {
		return engine.State{}, err
	}
	var records []engine.Record
	for line := range bytes.Lines(data) {
		var r engine.Record
		if err := json.Unmarshal(line, &r); err != nil {
			if !bytes.HasSuffix(line, []byte("\n")) {
				break
			}
			return engine.State{}, fmt.Errorf("the journal of %s: record %d: %w", p.Name, len(records)+1, err)
		}
		records = append(records, r)
	}
	if len(records) == 0 { // a move was refused
		return engine.State{Phase: engine.PhaseNew}, errNotBegun
	}
	return engine.Replay(records)
}

// status is the status of one direction.
type status struct {
	Name  string       `json:"name"`
	Phase engine.Phase `json:"phase"`
	Done  int          `json:"done"`
	Total int          `json:"total"`
	Step  string       `json:"step,omitempty"`
	Cause string       `json:"cause,omitempty"`
}

func newStatus(m *clusters.Clusters) *cobra.Command {
	return &cobra.Command{
		Use:   "status PLAN",
		Short: "Show how far a move and its way back are",
		Args:  usage.Exactly(1, "the plan file of the move"),
		RunE: func(command *cobra.Command, args []string) error {
			p, err := readPlan(args[0])
			if err != nil {
				return err
			}
			var all []status
			for _, one := range []*shift.Plan{p, p.Back()} {
				state, err := stateOf(command.Context(), one)
				if errors.Is(err, errNotBegun) && one != p {
					continue
				}
				if err != nil && !errors.Is(err, errNotBegun) {
					return err
				}
				all = append(all,
					status{one.Name, state.Phase, state.DoneSteps(), len(one.Steps()), state.Step, state.Cause})
			}
			if m.Output == "json" {
				return terminal.WriteJSON(m.Out, all)
			}
			for _, one := range all {
				fmt.Fprintf(m.Out, "%s: %s, %d of %d steps", one.Name, one.Phase, one.Done, one.Total)
				if one.Step != "" && one.Phase != engine.PhaseDone {
					fmt.Fprintf(m.Out, ", at %s", one.Step)
				}
				if one.Cause != "" {
					fmt.Fprintf(m.Out, ": %s", one.Cause)
				}
				fmt.Fprintln(m.Out)
			}
			return nil
		},
	}
}
