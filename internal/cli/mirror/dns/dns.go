package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/mirror/zonefile"
	"github.com/theseus-cni/theseus/internal/cli/slo"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cli/view"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/names"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/step"
)

// NewCommand makes the command theseus mirror dns.
func NewCommand(m *clusters.Clusters) *cobra.Command {
	command := &cobra.Command{
		Use:   "dns",
		Short: "Move the services' DNS names to the mirror, and back",
		Long: "Moves names in waves, each only once its service answers at the mirror's address. Each " +
			"move is a compare-and-swap:\n" +
			"the record and external-dns' ownership change together, and only if no one else has " +
			"changed them. Before the next\n" +
			"change, Theseus waits until every name server and chosen resolver shows the last one. A " +
			"failure is rolled back.\n\n" +
			"    inventory -> plan -> move -> back",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newPlan(m), newAsk(m))
	command.AddCommand(m.Printing(newInventory(m), newMove(m), newBack(m), newStatus(m))...)
	return command
}

func newInventory(m *clusters.Clusters) *cobra.Command {
	var sources zonefile.Sources
	command := &cobra.Command{
		Use:   "inventory --zones FILE",
		Short: "List which names belong to which service, and which of them can move",
		Long: "Reads both clusters and the zones, and shows for each name its owner (annotations of " +
			"external-dns, Ingresses, routes\n" +
			"of Gateways, DNSEndpoints), where it points, who owns its record, and whether it can " +
			"move. Exit code 3 means that\n" +
			"names are blocked.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			entries, _, err := zonefile.Inventory(command.Context(), m, sources)
			if err != nil {
				return err
			}
			if m.Output == "json" {
				err = terminal.WriteJSON(m.Out, entries)
			} else {
				err = printInventory(m.Out, entries)
			}
			if err == nil && len(blocked(entries)) > 0 {
				err = exit.Quiet(exit.Blocked)
			}
			return err
		},
	}
	sources.Register(command)
	return command
}

func blocked(entries []names.Entry) []names.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e names.Entry) bool { return e.Verdict != names.Blocked })
}

func printInventory(out io.Writer, entries []names.Entry) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	counts := map[names.Verdict]int{}
	for _, e := range entries {
		counts[e.Verdict]++
		detail := e.Why
		if e.Move != nil {
			gone, come := e.Move.Changes()
			detail = view.Addresses(gone) + " -> " + view.Addresses(come) + "  " + strings.Join(e.Move.Services, ", ")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", e.Verdict, strings.TrimSuffix(e.Name, "."), detail)
		for _, text := range e.Warnings {
			fmt.Fprintf(w, "\t\twarning: %s\n", text)
		}
		if e.Hint != "" {
			fmt.Fprintf(w, "\t\thint: %s\n", e.Hint)
		}
	}
	fmt.Fprintf(w, "%s: %d move, %d already moved, %d stay, %d blocked\n", cluster.Count(len(entries), "name"),
		counts[names.Moves], counts[names.Moved], counts[names.Stays], counts[names.Blocked])
	return w.Flush()
}

// PlanFlags are the flags of a plan of moves.
type PlanFlags struct {
	zonefile.Sources
	names     []string
	options   shift.Options
	Bake      time.Duration
	slo       slo.Flags
	weights   []int64
	yesReally bool
}

func newPlan(m *clusters.Clusters) *cobra.Command {
	var f PlanFlags
	command := &cobra.Command{
		Use:   "plan --zones FILE [-o PLAN]",
		Short: "Make a plan of moves that reads like a runbook",
		Long: "Plans the move of all names that can move, or of those of --name. It refuses a name of " +
			"--name that is blocked or has\n" +
			"no service; without --name, it refuses blocked names, so that none is forgotten. A " +
			"plan that changes more than\n" +
			"30 % of a zone with ten names or more needs --yes-really. It changes nothing.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			p, err := MakePlan(command.Context(), m, f)
			if err != nil {
				return err
			}
			return writePlan(m, p)
		},
	}
	f.Register(command)
	f.RegisterMoves(command)
	f.slo.Register(command.Flags(), "by the gate after each wave, where theseus mirror dns move runs")
	command.Flags().DurationVar(&f.Bake, "bake", 0,
		"how long each wave is watched (default twice the TTL, at least 30 s)")
	return command
}

// RegisterMoves adds the flags that say how names move.
func (f *PlanFlags) RegisterMoves(command *cobra.Command) {
	flags := command.Flags()
	flags.StringSliceVar(&f.names, "name", nil, "names to move, or patterns such as '*.shop.example.org'")
	flags.Uint32Var(&f.options.TTL, "ttl", 30, "TTL while names move, in seconds")
	flags.IntVar(&f.options.First, "first", 3, "number of names in the first wave")
	flags.IntVar(&f.options.Growth, "growth", 5, "factor by which each wave is larger than the last")
	flags.IntVar(&f.options.Batch, "batch", 32, "number of names that one transaction changes")
	flags.Int64SliceVar(&f.weights, "weights", nil,
		"successive shares of the mirror in per cent, such as 1,10,50, if the provider supports weights")
	flags.Int64Var(&f.options.MaxFailed, "max-failed", 0, "number of a gate's own requests that may fail")
	flags.BoolVar(&f.yesReally, "yes-really", false, "allow changing more than 30 % of a zone")
}

// MakePlan makes the plan of the moves of names that the flags choose.
func MakePlan(ctx context.Context, m *clusters.Clusters, f PlanFlags) (*shift.Plan, error) {
	var err error
	if f.options.SLO, err = f.slo.Resolve(nil); err != nil {
		return nil, err
	}
	if n := len(f.weights); n > 1 && f.weights[n-1] == 100 {
		f.weights = f.weights[:n-1] // the last share always is
	}
	last := int64(0)
	for _, w := range f.weights {
		if w <= last || w >= 100 {
			return nil, exit.Fail(exit.Usage, "such as --weights 1,10,50", "weights must grow, from 1 to 99")
		}
		last = w
	}
	if f.options.TTL == 0 || f.options.First < 1 || f.options.Growth < 1 || f.options.Batch < 1 ||
		f.Bake < 0 || f.options.MaxFailed < 0 {
		return nil, exit.Fail(exit.Usage, "theseus mirror dns plan --help",
			"--ttl, --first, --growth and --batch are at least 1, --bake and --max-failed not negative")
	}
	f.options.Weights, f.options.Bake = f.weights, step.Duration(f.Bake)
	entries, zones, err := zonefile.Inventory(ctx, m, f.Sources)
	if err != nil {
		return nil, err
	}
	if err := mustHold(ctx, m.Err, f.options.SLO); err != nil {
		return nil, err
	}
	moves, err := choose(entries, f.names)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		for _, text := range e.Warnings {
			fmt.Fprintf(m.Err, "note: %s: %s\n", e.Name, text)
		}
	}
	if much := shift.TooMuch(zones, moves); much != "" && !f.yesReally {
		return nil, exit.Fail(exit.Blocked, "move fewer with --name, or add --yes-really",
			"the plan changes more than 30 %% of a zone: %s", much)
	}
	for _, z := range zones {
		if len(f.weights) > 0 && !z.Can.Weights &&
			slices.ContainsFunc(moves, func(m zone.Move) bool { return m.Zone == z.Name }) {
			return nil, exit.Fail(exit.Usage, "leave --weights out: names then move as a whole, wave by wave",
				"the provider of %s does not support weights", z.Name)
		}
	}
	for _, move := range moves {
		if len(f.weights) > 0 && !shift.Weighs(move.Unit) {
			m.Note(strings.TrimSuffix(move.Name, ".") +
				" moves as a whole: its records have other types at the mirror, and cannot be weighted")
		}
	}
	var used []*zone.Zone
	for _, z := range zones {
		if slices.ContainsFunc(moves, func(m zone.Move) bool { return m.Zone == z.Name }) {
			used = append(used, z)
		}
	}
	return shift.New(used, moves, f.options, m.Version, time.Now()), nil
}

// mustHold asks the signals as the gates will: one that does not hold would roll back the first wave.
func mustHold(ctx context.Context, w io.Writer, texts []string) error {
	return slo.MustHold(ctx, w, texts, slo.Before{Nothing: "no name has moved",
		Hint: "fix the services, or change the comparison of --slo", Silent: exit.Failed, Fails: exit.Blocked})
}

// newAsk is the command that runs at a place that a zones file names.
func newAsk(m *clusters.Clusters) *cobra.Command {
	return &cobra.Command{
		Use:   "ask",
		Short: "Send requests to the mirror from here, for a theseus that runs elsewhere",
		Long: "Reads questions as JSON from standard input, and writes those that are not answered. A zones " +
			"file names, under `from`,\n" +
			"commands that run theseus elsewhere, such as in a pod of the original; a name moves " +
			"only if it answers there, too.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error { return dns.Serve(command.Context(), m.In, m.Out) },
	}
}

// choose returns the moves of the inventory, or an error if names are blocked.
func choose(entries []names.Entry, patterns []string) ([]zone.Move, error) {
	var moves []zone.Move
	var refused []names.Entry
	hit := map[string]bool{}
	for _, e := range entries {
		chosen := len(patterns) == 0
		exact := false
		for _, pattern := range patterns {
			name, plain := strings.TrimSuffix(e.Name, "."), strings.ToLower(strings.TrimSuffix(pattern, "."))
			if ok, err := path.Match(plain, name); err != nil {
				return nil, exit.Fail(exit.Usage, "such as --name 'www.example.org'", "--name %s: %v", pattern, err)
			} else if ok {
				hit[pattern], chosen, exact = true, true, exact || plain == name
			}
		}
		switch {
		case !chosen:
		case e.Verdict == names.Moves:
			moves = append(moves, *e.Move)
		case e.Verdict == names.Blocked, e.Verdict == names.Stays && exact:
			refused = append(refused, e)
		}
	}
	for _, pattern := range patterns {
		if !hit[pattern] {
			return nil, exit.Fail(exit.Failed, "theseus mirror dns inventory lists the names",
				"no name matches %q", pattern)
		}
	}
	if len(refused) > 0 {
		first := refused[0]
		hint := first.Hint
		if hint == "" {
			hint = "theseus mirror dns inventory says why; leave it out with --name"
		}
		more := ""
		if n := len(refused) - 1; n > 0 {
			more = fmt.Sprintf(" (nor can %s)", cluster.Count(n, "other name"))
		}
		return nil, exit.Fail(exit.Blocked, hint, "%s cannot move: %s%s",
			strings.TrimSuffix(first.Name, "."), first.Why, more)
	}
	if len(moves) == 0 {
		return nil, exit.Fail(exit.Failed, "theseus mirror dns inventory says why", "no name moves")
	}
	return moves, nil
}

func writePlan(m *clusters.Clusters, p *shift.Plan) error {
	switch m.Output {
	case "", "text":
		_, err := fmt.Fprint(m.Out, shift.Runbook(p))
		return err
	case "json":
		return terminal.WriteJSON(m.Out, p)
	}
	data, err := shift.Write(p)
	if err != nil {
		return err
	}
	if m.Output == "yaml" || m.Output == "-" {
		_, err = m.Out.Write(data)
		return err
	}
	if err := outfile.Write(m.Output, data); err != nil {
		return err
	}
	_, err = fmt.Fprintf(m.Out, "%s\nwritten to %s; read it, then: theseus mirror dns move %s --zones FILE --yes\n",
		shift.Runbook(p), m.Output, m.Output)
	return err
}

func readPlan(file string) (*shift.Plan, error) {
	data, err := infile.Read(file)
	if err != nil {
		return nil, exit.Fail(exit.Usage, "make a plan: theseus mirror dns plan --zones FILE -o PLAN", "%w", err)
	}
	return shift.Read(data)
}

// end turns the outcome of a run into a message and the exit code.
func end(m *clusters.Clusters, outcome engine.Outcome, left []string, file string) error {
	for _, text := range left {
		fmt.Fprintf(m.Err, "note: left alone because someone else changed it: %s\n", text)
	}
	switch outcome.End {
	case engine.EndDone:
		return nil
	case engine.EndRolledBack, engine.EndStopped:
		hint := cmp.Or(outcome.Advice, "fix the cause") + "; then make a new plan"
		code := outcome.ExitCode()
		if len(left) > 0 {
			code, hint = exit.NeedsPerson, "check the names that were left alone"
		}
		return exit.Fail(code, hint, "%s: %s", outcome.End, exit.Cause(outcome.Cause))
	}
	hint := fmt.Sprintf("theseus mirror dns move %s continues; theseus mirror dns back %s moves all names back",
		file, file)
	if outcome.State.Undoing {
		hint = fmt.Sprintf("theseus mirror dns back %s continues the way back", file)
	}
	if outcome.Advice != "" {
		hint = outcome.Advice + "; then " + hint
	}
	return exit.Fail(outcome.ExitCode(), hint, "%s: %s", outcome.End, exit.Cause(outcome.Cause))
}

var errNotBegun = errors.New("it has not begun")
