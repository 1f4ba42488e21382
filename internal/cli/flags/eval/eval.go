package eval

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	of "github.com/open-feature/go-sdk/openfeature"
	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/flags/flagsource"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/provider"
)

// NewCommand makes the command theseus flags eval.
func NewCommand(a *app.App) *cobra.Command {
	var sources, set, from []string
	var file, key, node string
	var explain bool
	command := &cobra.Command{
		Use:   "eval FLAG",
		Short: "Evaluate a flag, and show why it has its value",
		Long: "Evaluates a flag in a context. The first of several sources that has the flag wins. With " +
			"--node, the context is that\n" +
			"of a node of the cluster, and a flag that sets a setting of the network is compared with " +
			"the value in force there.\n" +
			"Without a source, FLAG is such a setting: the command shows its value on the node, where " +
			"it is set, and which other\n" +
			"values that overrides.\n\n" + flagsource.Help + "\n" +
			flagsource.TokenVariable + " is the token for a server.",
		Args: usage.Exactly(1, "the key of a flag"),
		RunE: func(command *cobra.Command, args []string) error {
			values, err := contextValues(a.In, file, set, key)
			if err != nil {
				return err
			}
			var on *place
			if node != "" || len(from) > 0 {
				if on, err = placeOf(command.Context(), a, node, from); err != nil {
					return err
				}
				given := values
				values = flagset.NodeValues(on.node)
				maps.Copy(values, given)
			}
			if len(sources) == 0 && on != nil {
				return inForce(a, args[0], on)
			}
			return run(command.Context(), a, args[0], sources, values, on, explain)
		},
	}
	f := command.Flags()
	f.StringArrayVar(&sources, "source", nil, "source of flags (repeatable)")
	f.StringVar(&file, "values", "", "file with the context, JSON, or YAML by its name; - for JSON on standard input")
	f.StringArrayVar(&set, "set", nil, "KEY=VALUE in the context, VALUE as in YAML (repeatable)")
	f.StringVar(&node, "node", "", "node whose values are the context; --values, --set and --key override them")
	f.StringSliceVar(&from, "from", nil, flagsource.FromHelp)
	f.StringVar(&key, "key", "", "targetingKey of the context, which determines the bucket")
	f.BoolVar(&explain, "explain", false, "show every operator of the rule, in order")
	return command
}

// contextValues assembles a context: the file, then the single values.
func contextValues(in io.Reader, file string, set []string, key string) (map[string]any, error) {
	values := map[string]any{}
	if file != "" {
		data, err := readContext(in, file)
		if err != nil {
			return nil, err
		}
		plain, err := flagset.Value(file, data, provider.FormatOf(file))
		if err != nil {
			return nil, exit.Fail(exit.Failed, `write an object: {"zone": "eu-1"}`, "%w", err)
		}
		var ok bool
		if values, ok = plain.(map[string]any); !ok {
			return nil, exit.Fail(exit.Failed, `write an object: {"zone": "eu-1"}`,
				"%s: a context must be an object", file)
		}
	}
	for _, one := range set {
		name, text, ok := strings.Cut(one, "=")
		if !ok || name == "" {
			return nil, exit.Fail(exit.Usage, "write --set zone=eu-1", "--set %s is not KEY=VALUE", one)
		}
		value, err := flagset.Value("--set "+name, []byte(text), flagset.YAML)
		if err != nil {
			return nil, exit.Fail(exit.Usage, "put the value in quotes", "%w", err)
		}
		values[name] = value
	}
	if key != "" {
		values[of.TargetingKey] = key
	}
	return values, nil
}

// readContext reads a file, or - for standard input.
func readContext(in io.Reader, file string) ([]byte, error) {
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		in = opened
	}
	return io.ReadAll(io.LimitReader(in, flagset.MaxBytes+1))
}

// evaluated is the result of eval.
type evaluated struct {
	Flag     string         `json:"flag"`
	Value    any            `json:"value"`
	Variant  string         `json:"variant,omitempty"`
	Reason   flagset.Reason `json:"reason"`
	Source   string         `json:"source"`
	Metadata map[string]any `json:"metadata,omitempty"`
	Steps    []flagset.Step `json:"steps,omitempty"`
	// Algorithm is how subjects are assigned to buckets.
	Algorithm string `json:"algorithm"`
	// Knob is the flag's setting on the node.
	Knob *onNode `json:"knob,omitempty"`
}

func run(ctx context.Context, a *app.App, key string, sources []string, values map[string]any,
	on *place, explain bool) error {
	if len(sources) == 0 {
		return exit.Fail(exit.Usage, "theseus flags eval "+key+
			" --source flags.yaml, or --node NODE for the value in force there", "no --source")
	}
	var result flagset.Result
	told := evaluated{Flag: key, Algorithm: flagset.Algorithm}
	var trace func(flagset.Step)
	if explain {
		trace = func(s flagset.Step) { told.Steps = append(told.Steps, s) }
	}
	for _, text := range sources {
		provider, stop, err := flagsource.OpenEvaluator(ctx, a, text)
		if err == nil {
			result = provider.Evaluate(ctx, key, values, trace)
			told.Source = text
		}
		if stop != nil {
			stop()
		}
		if err != nil {
			return err
		}
		if result.Code != flagset.FlagNotFound {
			break
		}
	}
	switch result.Code {
	case "":
	case flagset.FlagNotFound:
		return exit.Fail(exit.Failed, "theseus flags lint checks the flags of a source",
			"there is no flag %q in %s", key, strings.Join(sources, ", "))
	default:
		hint := "theseus flags lint " + told.Source + " shows what is wrong with its rules"
		if flagsource.IsServer(told.Source) {
			hint = "check that the server is running, and " + flagsource.TokenVariable + " if it needs a token"
		}
		return exit.Fail(exit.Failed, hint, "%s: %s", result.Code, result.Message)
	}
	told.Value, told.Variant, told.Reason, told.Metadata = result.Value, result.Variant, result.Reason, result.Metadata
	if on != nil {
		var err error
		if told.Knob, err = on.wanted(key, result); err != nil {
			return err
		}
	}
	if a.Output == "json" {
		return terminal.WriteJSON(a.Out, told)
	}
	return printEvaluated(a, told, result.Default())
}

func printEvaluated(a *app.App, told evaluated, byCaller bool) error {
	value := "the caller's default"
	if !byCaller {
		raw, err := json.Marshal(told.Value)
		if err != nil {
			return err
		}
		value = string(raw)
	}
	fmt.Fprintf(a.Out, "%s = %s\n", told.Flag, value)
	if told.Variant != "" {
		fmt.Fprintf(a.Out, "  variant   %s\n", told.Variant)
	}
	fmt.Fprintf(a.Out, "  reason    %s\n  source    %s\n", told.Reason, told.Source)
	for _, name := range slices.Sorted(maps.Keys(told.Metadata)) {
		fmt.Fprintf(a.Out, "  metadata  %s=%v\n", name, told.Metadata[name])
	}
	for _, s := range told.Steps {
		fmt.Fprintf(a.Out, "  %s\n", stepLine(s))
	}
	if told.Knob != nil {
		return printOnNode(a, told.Knob)
	}
	return nil
}

// stepLine is one operator's evaluation in one line.
func stepLine(s flagset.Step) string {
	words := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(raw)
	}
	line := s.Operator
	if s.Arguments != nil {
		line += " " + words(s.Arguments)
	}
	if b := s.Bucket; b != nil {
		line += fmt.Sprintf(" falls at %d of %d, within %d to %d,", b.Bucket, b.Total, b.Start, b.End-1)
	}
	line += " -> " + words(s.Result)
	if s.Operator == "fractional" && s.Result == nil {
		line += " (no bucketing key, such as a targetingKey, or no positive weights)"
	}
	return line
}
