package translate

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/network/policy"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
)

// NewCommand makes the command theseus policy translate.
func NewCommand(a *app.App) *cobra.Command {
	var from, to, report string
	var snapshot []string
	command := &cobra.Command{
		Use:   "translate",
		Short: "Write Calico's policies as Cilium's, and list the verdicts that would change",
		Long: "Writes Calico's NetworkPolicies and GlobalNetworkPolicies as Cilium's, as YAML: to standard " +
			"output, or with\n" +
			"-o FILE to a file. Nothing is applied. NetworkPolicies of Kubernetes are not written: Cilium " +
			"enforces them.\n" +
			"\n" +
			"A report, on standard error or in --report FILE, lists the policies and rules without an " +
			"equivalent, and the\n" +
			"connections whose verdict would change. Verdicts are those of Theseus' model of both networks, " +
			"over all pairs\n" +
			"of the pods, all ports, and all addresses outside of the cluster that the policies tell apart. " +
			"The model does\n" +
			"not judge ICMP, or protocols other than TCP, UDP and SCTP. A test compared translations on " +
			"Cilium v1.20.2 with\n" +
			"Calico v3.31.0, by packets, but yours were run on no Cilium. If a rule has no equivalent, a " +
			"verdict would\n" +
			"change, or a policy could not be judged, the exit code is 3. It is also 3 if an earlier " +
			"translation left\n" +
			"policies in the cluster, or if the input has no pods.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			switch {
			case from != "calico" || to != "cilium":
				return exit.Fail(exit.Usage, "--from calico --to cilium",
					"policies cannot be translated from %q to %q", from, to)
			case a.Output == "text" || a.Output == "json" || a.Output == "html":
				return exit.Fail(exit.Usage, "-o yaml, or -o FILE", "policies cannot be written as %q", a.Output)
			}
			return run(command.Context(), a, snapshot, report)
		},
	}
	flags := command.Flags()
	flags.StringVar(&from, "from", "", "network whose policies are translated: calico")
	flags.StringVar(&to, "to", "", "network to translate to: cilium")
	flags.StringSliceVar(&snapshot, "snapshot", nil,
		"snapshot, or files or folders of Kubernetes YAML or JSON, instead of the cluster; - for standard input")
	flags.StringVar(&report, "report", "", "file for the report, instead of standard error")
	return command
}

func run(ctx context.Context, a *app.App, files []string, report string) error {
	snapshot, err := survey.See(ctx, a, files)
	if err != nil {
		return err
	}
	source := sourceOf(a, snapshot)
	target := source
	target.CNI, target.Dialect, target.Version = "cilium", policy.Cilium, ""
	translated := policy.Translate(snapshot, source)
	judged := translated.Judge(snapshot, source, target)
	for _, resource := range []string{"networkpolicies", "globalnetworkpolicies"} {
		if there, why := snapshot.HasCalico(resource); !there {
			fmt.Fprintf(a.Err, "note: no %s of Calico in the input: %s\n", resource, why)
		}
	}
	objects, err := manifest(translated)
	if err != nil {
		return err
	}
	if a.Output == "" || a.Output == "-" || a.Output == "yaml" {
		if _, err := a.Out.Write(objects); err != nil {
			return err
		}
	} else if err := outfile.Write(a.Output, objects); err != nil {
		return err
	}
	var text bytes.Buffer
	write(&text, snapshot, translated, &judged)
	if report == "" {
		_, err = a.Err.Write(text.Bytes())
	} else {
		err = outfile.Write(report, text.Bytes())
	}
	if err != nil {
		return err
	}
	if !clean(translated, &judged) {
		return exit.Quiet(exit.Blocked)
	}
	return nil
}

// clean reports whether all was translated and judged, and no verdict changes.
func clean(t *policy.Translation, j *policy.Judgement) bool {
	return j.Pods > 0 && len(t.Untranslated)+len(t.Left)+len(j.Differences)+len(j.Outside)+len(j.Unjudged) == 0
}

// sourceOf is the profile of the Calico in the input. Without it, the pods' own addresses count.
func sourceOf(a *app.App, snapshot *cluster.Snapshot) policy.Profile {
	for _, found := range drivers.All().Detect(snapshot) {
		if found.CNI == "calico" {
			profile := policy.ProfileOf(found)
			profile.Dialect = policy.Calico // also where another agent carries the traffic
			return profile
		}
	}
	fmt.Fprintln(a.Err, "note: Calico itself is not in the input, so the ranges of its pools are not known: "+
		"the addresses of the pods count")
	return policy.Profile{CNI: "calico", Dialect: policy.Calico}
}

// manifest is the translated policies as YAML.
func manifest(t *policy.Translation) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# Made by theseus policy translate, and run on no Cilium: read the report before you apply it.\n")
	for i := range t.Objects {
		text, err := yaml.Marshal(t.Objects[i].Object)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// most is how many lines of each part the report has.
const most = 100

// write writes the report.
func write(w io.Writer, snapshot *cluster.Snapshot, t *policy.Translation, j *policy.Judgement) {
	read := len(snapshot.Calico("NetworkPolicy")) + len(snapshot.Calico("GlobalNetworkPolicy"))
	fmt.Fprintf(w, "%s of Calico read, %s of Cilium written.\n", policies(read), policies(len(t.Objects)))
	var lines []string
	for _, r := range t.Untranslated {
		lines = append(lines, remark(r))
	}
	part(w, "No Cilium equivalent", lines)
	lines = nil
	for i := range j.Differences {
		lines = append(lines, difference(&j.Differences[i]))
	}
	for i := range j.Outside {
		lines = append(lines, outside(&j.Outside[i]))
	}
	part(w, "Verdicts that would change", lines)
	lines = nil
	for _, r := range t.Left {
		lines = append(lines, remark(r))
	}
	part(w, "Left by an earlier translation", lines)
	lines = nil
	for _, g := range j.Unjudged {
		lines = append(lines, fmt.Sprintf("%s: %s", name(g.Policy), g.What))
	}
	part(w, "Not judged", lines)
	lines = nil
	for _, r := range t.Notes {
		lines = append(lines, remark(r))
	}
	for _, g := range j.Gaps {
		if !g.LeftOut {
			lines = append(lines, fmt.Sprintf("%s: %s", name(g.Policy), g.What))
		}
	}
	part(w, "Notes", lines)
	switch {
	case j.Pods == 0:
		fmt.Fprintln(w, "No verdict was judged: the input has no pods that policies can select.\n"+
			"hint: add a snapshot of the cluster: theseus snapshot -o FILE")
	case clean(t, j):
		fmt.Fprintf(w, "No verdict changes: %s, all ports, all addresses that the policies tell apart.\n",
			cluster.Count(j.Pods, "pod"))
	}
	fmt.Fprintln(w, "Verdicts are those of Theseus' model, for TCP, UDP and SCTP. These policies were run on no "+
		"Cilium.")
}

func policies(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", n)
}

func part(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "%s:\n", title)
	for i, line := range lines {
		if i == most {
			fmt.Fprintf(w, "  and %d more\n", len(lines)-most)
			break
		}
		fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(line, "\n", "\n    "))
	}
}

func remark(r policy.Remark) string {
	text := r.Text
	switch {
	case r.Rule != "":
		text = name(r.Policy) + ", " + r.Rule + ": " + text
	case r.Policy.Kind != "":
		text = name(r.Policy) + ": " + text
	}
	if r.Hint != "" {
		text += "\nhint: " + r.Hint
	}
	return text
}

// difference is one pair of pods, and how many more there are like it.
func difference(d *policy.Difference) string {
	w := d.Witness
	return fmt.Sprintf("%s to %s, %s: %s now, %s under Cilium (%s of %s; of %s, with %s at the other end at most; %s)",
		podName(w.From), podName(w.To), w.Port, w.Before, w.After, d.Direction, name(d.Policy),
		cluster.Count(d.Pods, "pod"), cluster.Count(d.Peers, "pod"), d.Ports)
}

func outside(o *policy.Outside) string {
	pair := fmt.Sprintf("%s-%s to %s", o.First, o.Last, podName(o.Pod))
	if o.Direction == policy.Egress {
		pair = fmt.Sprintf("%s to %s-%s", podName(o.Pod), o.First, o.Last)
	}
	return fmt.Sprintf("%s: %s now, %s under Cilium (%s alike; %s)", pair, o.Before, o.After,
		cluster.Count(o.Pods, "pod"), o.Ports)
}

func podName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func name(s finding.Subject) string {
	if s.Namespace != "" {
		return s.Kind + " " + s.Namespace + "/" + s.Name
	}
	return s.Kind + " " + s.Name
}
