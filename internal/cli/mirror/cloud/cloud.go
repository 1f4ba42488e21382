package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/cloud"
	"github.com/theseus-cni/theseus/internal/mirror/cloud/aws"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
)

// NewCommand makes the command theseus mirror cloud.
func NewCommand(m *clusters.Clusters) *cobra.Command {
	command := &cobra.Command{
		Use:   "cloud",
		Short: "Give the mirror what the original may do in Amazon's cloud",
		Long: "Compares IAM roles, their policies and trust, instance profiles, issuers of tokens and security groups of the two\n" +
			"clusters by their names, with the policies, roles and groups of others that refer to the original's.\n\n" +
			"    inventory -> plan -> apply -> back",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newInventory(m), newPlan(m))
	command.AddCommand(m.Printing(newApply(m, "apply"), newApply(m, "back"))...)
	return command
}

func newInventory(m *clusters.Clusters) *cobra.Command {
	var endpoint string
	command := &cobra.Command{
		Use:   "inventory",
		Short: "Read the account's roles, policies and security groups",
		Long: "Reads what plan compares from Amazon's API, and prints it as YAML: to keep, to add to (policies of buckets and keys\n" +
			"are not read), and to compare without access. Nothing is changed. Credentials and region are those of the aws tool.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			client, err := aws.Connect(command.Context(), endpoint)
			if err != nil {
				return err
			}
			inventory, err := client.Read(command.Context())
			if err != nil {
				return err
			}
			if m.Output == "json" {
				return terminal.WriteJSON(m.Out, inventory)
			}
			data, err := yaml.Marshal(inventory)
			if err == nil {
				_, err = m.Out.Write(data)
			}
			return err
		},
	}
	command.Flags().StringVar(&endpoint, "endpoint", "", "address of the API, instead of Amazon's own")
	return command
}

// flags are what plan is told.
type flags struct {
	original, mirror string
	inventory        string
	names            []string
	format           string
	back             bool
}

func newPlan(m *clusters.Clusters) *cobra.Command {
	var f flags
	command := &cobra.Command{
		Use:   "plan --original NAME --mirror NAME --inventory FILE [-o PLAN]",
		Short: "What the mirror lacks, as a plan, as lines of the aws tool, or as Terraform",
		Long: "Compares what an inventory has of the two clusters. --original and --mirror are their names as kops has them, of\n" +
			"which the names of roles and groups are made; --name says what is called otherwise. Nothing is changed. Exit code 3\n" +
			"says that something stays lacking until a person has seen to it.",
		Example: "  theseus mirror cloud plan --original blue.example.org --mirror green.example.org --inventory cloud.yaml --format cli > give.sh",
		Args:    usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			p, err := f.plan()
			if err != nil {
				return err
			}
			if err := write(m, p, &f); err != nil {
				return err
			}
			for _, finding := range p.Findings {
				if finding.Blocks {
					return exit.Quiet(exit.Blocked)
				}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&f.original, "original", "", "name of the original cluster")
	flags.StringVar(&f.mirror, "mirror", "", "name of the mirror")
	flags.StringVar(&f.inventory, "inventory", "", "file that theseus mirror cloud inventory wrote")
	flags.StringSliceVar(&f.names, "name", nil, "what is called otherwise: OLD=NEW, names of roles, ids of groups or paths of issuers")
	flags.StringVar(&f.format, "format", "text", "text, cli (lines for a shell) or terraform")
	flags.BoolVar(&f.back, "back", false, "with --format cli: the lines that take it away again")
	return command
}

func (f *flags) plan() (*cloud.Plan, error) {
	switch {
	case f.original == "" || f.mirror == "":
		return nil, exit.Fail(exit.Usage, "name both with --original and --mirror", "a cluster has no name")
	case f.original == f.mirror:
		return nil, exit.Fail(exit.Usage, "name the mirror with --mirror", "%s is both clusters", f.original)
	case f.inventory == "":
		return nil, exit.Fail(exit.Usage, "theseus mirror cloud inventory > cloud.yaml, then --inventory cloud.yaml", "no inventory is given")
	case f.format != "text" && f.format != "cli" && f.format != "terraform":
		return nil, exit.Fail(exit.Usage, "text, cli or terraform", "--format %s is not known", f.format)
	case f.back && f.format != "cli":
		return nil, exit.Fail(exit.Usage, "add --format cli", "--back is for lines of the aws tool")
	}
	pairs, err := cloud.ParsePairs(f.names)
	if err != nil {
		return nil, exit.Fail(exit.Usage, "such as --name sg-0123=sg-4567", "--name: %v", err)
	}
	data, err := infile.Read(f.inventory)
	if err != nil {
		return nil, err
	}
	inventory, err := cloud.ReadInventory(data)
	if err != nil {
		return nil, exit.Fail(exit.Failed, "see docs/strategies/mirror-cloud.md for the file", "%s: %w", f.inventory, err)
	}
	return cloud.Compare(inventory, f.original, f.mirror, pairs), nil
}

func write(m *clusters.Clusters, p *cloud.Plan, f *flags) error {
	switch f.format {
	case "cli":
		_, err := fmt.Fprintln(m.Out, strings.Join(cloud.Lines(p, f.back), "\n"))
		PrintFindings(m, p)
		return err
	case "terraform":
		_, err := fmt.Fprint(m.Out, cloud.Terraform(p))
		PrintFindings(m, p)
		return err
	}
	switch m.Output {
	case "json":
		return terminal.WriteJSON(m.Out, p)
	case "", "text", "yaml", "-":
	default:
		data, err := cloud.WritePlan(p)
		if err != nil {
			return err
		}
		if err := outfile.Write(m.Output, data); err != nil {
			return err
		}
	}
	if m.Output == "yaml" || m.Output == "-" {
		data, err := cloud.WritePlan(p)
		if err == nil {
			_, err = m.Out.Write(data)
		}
		return err
	}
	w := tabwriter.NewWriter(m.Out, 0, 0, 2, ' ', 0)
	for _, a := range p.Actions {
		fmt.Fprintf(w, "%s\t%s\n", a, a.Why)
	}
	fmt.Fprintln(w, cluster.Count(len(p.Actions), "change"))
	if err := w.Flush(); err != nil {
		return err
	}
	PrintFindings(m, p)
	return nil
}

// PrintFindings are what no line mends: not among the lines, which are for other programs.
func PrintFindings(m *clusters.Clusters, p *cloud.Plan) {
	for _, f := range p.Findings {
		kind := "note"
		if f.Blocks {
			kind = "left to you"
		}
		fmt.Fprintf(m.Err, "%s: %s: %s (%s)\n", kind, f.Subject, f.Text, f.Hint)
	}
}

// newApply carries a plan out, or takes it back.
func newApply(m *clusters.Clusters, verb string) *cobra.Command {
	var endpoint string
	var yes bool
	back := verb == "back"
	command := &cobra.Command{
		Use:   verb + " PLAN --endpoint URL --yes",
		Short: "Do what a plan says, through the API that is named",
		Long: "Does the changes of a plan one after the other, each only if what it changes is still as it was when the plan was\n" +
			"made. It can be interrupted and run again. What it did is in a journal of this machine, in THESEUS_STATE_DIR (else\n" +
			"~/.local/state/theseus). Findings of the plan are not mended by it.",
		Args: usage.Exactly(1, "one plan file"),
		RunE: func(command *cobra.Command, args []string) error {
			return run(command.Context(), m, args[0], endpoint, yes, back)
		},
	}
	if back {
		command.Short = "Take away what apply gave"
		command.Long = "Takes away what apply did by this plan, and nothing else, the last first, each only if it is still as apply left it."
	}
	command.Flags().StringVar(&endpoint, "endpoint", "", "address of the API; nothing is changed where none is named")
	command.Flags().BoolVar(&yes, "yes", false, "the plan was read: change the account")
	return command
}

// ReadPlan reads the file of a plan of theseus mirror cloud.
func ReadPlan(file string) (*cloud.Plan, error) {
	data, err := infile.Read(file)
	if err != nil {
		return nil, exit.Fail(exit.Usage, "make a plan: theseus mirror cloud plan -o PLAN", "%w", err)
	}
	p, err := cloud.ReadPlan(data)
	if err != nil {
		return nil, exit.Fail(exit.Failed, "make a plan: theseus mirror cloud plan -o PLAN", "%s: %w", file, err)
	}
	return p, nil
}

func run(ctx context.Context, m *clusters.Clusters, file, endpoint string, yes, back bool) error {
	p, err := ReadPlan(file)
	if err != nil {
		return err
	}
	switch {
	case endpoint == "":
		return exit.Fail(exit.Usage, "name it with --endpoint, or use the lines of theseus mirror cloud plan --format cli", "no endpoint is named")
	case !yes:
		return exit.Fail(exit.Usage, "read the plan, then add --yes", "this changes an account")
	}
	client, err := aws.Connect(ctx, endpoint)
	if err != nil {
		return err
	}
	dir, err := statedir.Make("cloud-" + p.Hash[:12])
	if err != nil {
		return err
	}
	unlock, err := statedir.Lock(dir, "the plan "+file)
	if err != nil {
		return err
	}
	defer unlock()
	did, err := openDone(filepath.Join(dir, "done.jsonl"))
	if err != nil {
		return err
	}
	defer did.Close()
	changes := 0
	for step, a := range p.Steps(back) {
		number := step
		if back {
			number = len(p.Actions) - 1 - step
		}
		if back && !did.is[number] {
			continue // it was there before, or never came to be
		}
		err := client.Do(ctx, a, back, func() error {
			changes++
			return did.note(number, true)
		})
		if err != nil {
			return err
		}
		if back {
			if err := did.note(number, false); err != nil {
				return err
			}
		}
		if m.Output != "json" {
			fmt.Fprintf(m.Out, "%d of %d: %s\n", step+1, len(p.Actions), a)
		}
	}
	if m.Output == "json" {
		return terminal.WriteJSON(m.Out, map[string]int{"actions": len(p.Actions), "changes": changes})
	}
	fmt.Fprintf(m.Out, "%s made\n", cluster.Count(changes, "change"))
	return nil
}

// done says which actions of a plan were begun by us, and not taken back: a line for each change, written before it.
type done struct {
	*os.File
	is map[int]bool
}

type doneLine struct {
	Action int  `json:"action"`
	Ours   bool `json:"ours"`
}

func openDone(name string) (*done, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	d := &done{file, map[int]bool{}}
	data, err := infile.Read(name)
	if err != nil {
		file.Close()
		return nil, err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1] // a crash may have cut the last line
	for line := range bytes.Lines(whole) {
		var one doneLine
		if err := json.Unmarshal(line, &one); err != nil {
			file.Close()
			return nil, fmt.Errorf("the journal %s: %w", name, err)
		}
		d.is[one.Action] = one.Ours
	}
	if err := file.Truncate(int64(len(whole))); err != nil {
		file.Close()
		return nil, err
	}
	return d, nil
}

func (d *done) note(action int, ours bool) error {
	line, err := json.Marshal(doneLine{action, ours})
	if err != nil {
		return err
	}
	if _, err := d.Write(append(line, '\n')); err != nil {
		return err
	}
	d.is[action] = ours
	return d.Sync()
}
