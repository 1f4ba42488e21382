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
		Short: "Give the mirror the original's permissions in Amazon's cloud",
		Long: "Compares IAM roles, their policies and trust, instance profiles, token issuers and " +
			"security groups of the two\n" +
			"clusters by their names, and the policies, roles and groups of others that refer to the original's.\n\n" +
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
		Long: "Reads the input of plan from Amazon's API, and prints it as YAML: to keep, to extend " +
			"(policies of buckets and keys are\n" +
			"not read), and to compare without access. It changes nothing. Credentials and region " +
			"are those of the aws command.",
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

// flags are the flags of plan.
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
		Short: "Show what the mirror lacks, as a plan, as aws commands, or as Terraform",
		Long: "Compares the two clusters in an inventory. --original and --mirror are their names in " +
			"kops, from which the names of\n" +
			"roles and groups are made; --name maps other names. It changes nothing. Exit code 3 " +
			"means that a person has to do\n" +
			"something that the plan cannot.",
		Example: "  theseus mirror cloud plan --original blue.example.org --mirror green.example.org --inventory " +
			"cloud.yaml --format cli > give.sh",
		Args: usage.None,
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
	flags.StringSliceVar(&f.names, "name", nil,
		"map other names, OLD=NEW: names of roles, IDs of groups or paths of issuers")
	flags.StringVar(&f.format, "format", "text", "text, cli (shell commands) or terraform")
	flags.BoolVar(&f.back, "back", false, "with --format cli: the commands that undo the changes")
	return command
}

func (f *flags) plan() (*cloud.Plan, error) {
	switch {
	case f.original == "" || f.mirror == "":
		return nil, exit.Fail(exit.Usage, "name both with --original and --mirror", "a cluster has no name")
	case f.original == f.mirror:
		return nil, exit.Fail(exit.Usage, "name the mirror with --mirror", "%s is both clusters", f.original)
	case f.inventory == "":
		return nil, exit.Fail(exit.Usage, "theseus mirror cloud inventory > cloud.yaml, then --inventory cloud.yaml",
			"no inventory is given")
	case f.format != "text" && f.format != "cli" && f.format != "terraform":
		return nil, exit.Fail(exit.Usage, "text, cli or terraform", "--format %s is not known", f.format)
	case f.back && f.format != "cli":
		return nil, exit.Fail(exit.Usage, "add --format cli", "--back needs --format cli")
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
		return nil, exit.Fail(exit.Failed, "see docs/strategies/mirror-cloud.md for the file",
			"%s: %w", f.inventory, err)
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

// PrintFindings prints findings that no command fixes, on standard error: standard output is for other programs.
func PrintFindings(m *clusters.Clusters, p *cloud.Plan) {
	for _, f := range p.Findings {
		kind := "note"
		if f.Blocks {
			kind = "left to you"
		}
		fmt.Fprintf(m.Err, "%s: %s: %s (%s)\n", kind, f.Subject, f.Text, f.Hint)
	}
}

// newApply carries out a plan, or undoes it.
func newApply(m *clusters.Clusters, verb string) *cobra.Command {
	var endpoint string
	var yes bool
	back := verb == "back"
	command := &cobra.Command{
		Use:   verb + " PLAN --endpoint URL --yes",
		Short: "Carry out a plan, through the named API",
		Long: "Makes the changes of a plan one after another, each only if its object is unchanged since the plan " +
			"was made.\n" +
			"You can interrupt the command and run it again. The journal is on this machine, " +
			"in THESEUS_STATE_DIR (else\n" +
			"~/.local/state/theseus). It does not fix the findings of the plan.",
		Args: usage.Exactly(1, "one plan file"),
		RunE: func(command *cobra.Command, args []string) error {
			return run(command.Context(), m, args[0], endpoint, yes, back)
		},
	}
	if back {
		command.Short = "Undo what apply did"
		command.Long = "Undoes the changes that apply made by this plan, and nothing else, the last first, each " +
			"only if it is unchanged since."
	}
	command.Flags().StringVar(&endpoint, "endpoint", "", "address of the API (required)")
	command.Flags().BoolVar(&yes, "yes", false, "change the account, as the plan says")
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
		return exit.Fail(exit.Usage, "name it with --endpoint, or use the commands of theseus mirror cloud plan "+
			"--format cli", "no endpoint is named")
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
			continue // it existed before, or was never made
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

// done records which actions of a plan this machine began and has not undone: a line for each change, written before
// it.
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
