package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/config"
	"github.com/theseus-cni/theseus/internal/mirror/splice"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
)

const long = `Edits the configuration of a cluster, in the format of kops, Cluster API or kubeadm. With --name, it becomes the
mirror's configuration: its name, stores, zone, ranges, labels and everything else that names the original. With --to, it
gets another network, and with --surge, a rolling update doubles the nodes before it removes old ones.

The text is edited in place: comments, order and unknown fields stay. The command explains every change. It asks about
decisions that only a person can make, with exit code 6, and writes nothing before all are answered with --answer.

-o FILE writes the configuration to a file; -o yaml prints it, -o diff the changes, -o json changes and questions.
`

// Flags are the flags of config.
type Flags struct {
	From    []string
	Answers []string
	Options config.Options
}

// NewCommand makes the command theseus mirror config.
func NewCommand(m *clusters.Clusters) *cobra.Command {
	flags := &Flags{}
	command := &cobra.Command{
		Use:   "config --from FILE",
		Short: "Make the mirror's configuration from the original's, or change the original's network",
		Long:  long,
		Example: "  kops get --name blue.example.com -o yaml | theseus mirror config --from - --name " +
			"green.example.com --to calico -o green.yaml\n" +
			"  theseus mirror config --from blue.yaml --to calico --surge -o blue-calico.yaml",
		Args: usage.None,
		RunE: func(*cobra.Command, []string) error { return run(m, flags) },
	}
	f := command.Flags()
	f.StringSliceVar(&flags.From, "from", nil, "the original's configuration: files, or - for standard input")
	f.StringVar(&flags.Options.Name, "name", "",
		"the mirror's name; without it the original's own configuration is changed")
	f.StringVar(&flags.Options.State, "state", "",
		"the mirror's state store of kops, such as s3://state (else the original's)")
	f.StringVar(&flags.Options.Network, "to", "", "the new network, by its name in kops: "+
		strings.Join(config.Networks(), ", "))
	f.BoolVar(&flags.Options.Surge, "surge", false, "rolling updates double the nodes, then remove the old ones")
	f.StringArrayVar(&flags.Answers, "answer", nil, "a decision, such as network=10.1.0.0/16 (repeatable)")
	return command
}

func run(m *clusters.Clusters, flags *Flags) error {
	options := flags.Options
	switch {
	case len(flags.From) == 0:
		return exit.Fail(exit.Usage, "name it with --from, such as: kops get --name NAME -o yaml | theseus mirror "+
			"config --from -", "no configuration")
	case options.Name == "" && options.Network == "" && !options.Surge:
		return exit.Fail(exit.Usage,
			"--name makes the mirror's, --to changes the network, --surge how nodes are replaced", "no change is given")
	case options.State != "" && options.Name == "":
		return exit.Fail(exit.Usage, "leave it out, or name the mirror with --name",
			"--state is the mirror's, and none is named")
	}
	result, before, err := Convert(m, flags)
	if err != nil {
		return err
	}
	return show(m, result, before, strings.Join(flags.From, ", "))
}

// Convert makes the requested configuration; before is the original text.
func Convert(m *clusters.Clusters, flags *Flags) (result *config.Result, before []byte, err error) {
	options := flags.Options
	options.Answers = map[string]string{}
	for _, answer := range flags.Answers {
		id, value, ok := strings.Cut(answer, "=")
		if _, twice := options.Answers[id]; !ok || value == "" || twice {
			return nil, nil, exit.Fail(exit.Usage, "such as --answer network=10.1.0.0/16, each once",
				"--answer %s", answer)
		}
		options.Answers[id] = value
	}
	var files []*splice.File
	for _, name := range flags.From {
		text, err := readText(m, name)
		if err != nil {
			return nil, nil, err
		}
		file, err := splice.Parse(name, text)
		if err != nil {
			return nil, nil, err
		}
		files, before = append(files, file), append(before, text...)
	}
	result, err = config.Convert(files, options)
	var usage *config.Usage
	if errors.As(err, &usage) {
		return nil, nil, exit.Fail(exit.Usage, usage.Advice, "%w", err)
	}
	return result, before, err
}

// readText reads a file, or standard input, up to the size that can be edited.
func readText(m *clusters.Clusters, name string) ([]byte, error) {
	in := m.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	return io.ReadAll(io.LimitReader(in, splice.MaxInput+1))
}

func show(m *clusters.Clusters, result *config.Result, before []byte, from string) error {
	if m.Output == "json" {
		terminal.Encode(m.Out, result)
	}
	if err := Ask(m, result, "--answer"); err != nil {
		return err
	}
	switch m.Output {
	case "json":
		return nil
	case "yaml", "-":
		for _, note := range result.Notes {
			fmt.Fprintln(m.Err, "note:", note)
		}
		_, err := m.Out.Write(result.Text)
		return err
	case "diff":
		_, err := m.Out.Write(diff.Diff(from, before, "changed", result.Text))
		return err
	case "", "text":
	default:
		if err := outfile.Write(m.Output, result.Text); err != nil {
			return err
		}
	}
	explain(m, result)
	return nil
}

// Ask prints questions that only a person can answer, by a flag.
func Ask(m *clusters.Clusters, result *config.Result, flag string) error {
	if len(result.Questions) == 0 {
		return nil
	}
	var ids []string
	for _, q := range result.Questions {
		ids = append(ids, q.ID)
		if m.Output != "json" {
			fmt.Fprintf(m.Out, "%s:%d: %s\n    %s %s=%s\n", q.File, q.Line, q.Text, flag, q.ID,
				strings.Join(q.Answers, "|"))
		}
	}
	return exit.Fail(exit.NeedsPerson, "answer with "+flag+" "+ids[0]+"=... and so on; replace words in capitals",
		"%d to decide: %s", len(ids), strings.Join(ids, ", "))
}

// explain prints the reason for every changed field, object by object.
func explain(m *clusters.Clusters, result *config.Result) {
	var objects []string
	for _, change := range result.Changes {
		if !slices.Contains(objects, change.Object) {
			objects = append(objects, change.Object)
		}
	}
	for _, object := range objects {
		fmt.Fprintln(m.Out, object)
		for _, c := range result.Changes {
			if c.Object != object {
				continue
			}
			fmt.Fprintf(m.Out, "  %s:%d %s\n", c.File, c.Line, c.Path)
			switch {
			case c.To == "":
				fmt.Fprintf(m.Out, "    - %s\n", c.From)
			case c.From == "":
				fmt.Fprintf(m.Out, "    + %s\n", c.To)
			default:
				fmt.Fprintf(m.Out, "    - %s\n    + %s\n", c.From, c.To)
			}
			fmt.Fprintf(m.Out, "    %s\n", c.Why)
		}
	}
	if len(result.Names) > 0 {
		fmt.Fprintln(m.Out,
			"resources that kops names after the cluster on AWS (references to the left name need the right one too)")
		for _, name := range result.Names {
			fmt.Fprintf(m.Out, "  %s: %s -> %s\n", name.What, name.Old, name.New)
		}
	}
	for _, note := range result.Notes {
		fmt.Fprintln(m.Out, "note: "+note)
	}
	fmt.Fprint(m.Out, cluster.Count(len(result.Changes), "change"))
	if m.Output != "" && m.Output != "text" {
		fmt.Fprintf(m.Out, ", written to %s", m.Output)
	}
	fmt.Fprintln(m.Out)
}
