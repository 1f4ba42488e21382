package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/network/drivers"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/mirror/registry"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/step"
)

func (a *app) planCommand() *cobra.Command {
	var from, sources []string
	var change changeFlags
	var mirrored mirrorPlanFlags
	var key string
	command := &cobra.Command{
		Use:   "plan",
		Short: "Make a plan that reads like a runbook",
		Long: "Reads the cluster (or --from a snapshot), runs the checks, and makes the plan: waves, steps, what\n" +
			"happens to every workload, the point of no return. Printed it is a runbook; with -o FILE it is also\n" +
			"written as YAML (JSON where FILE ends in .json), complete, for `theseus apply`. Nothing is changed.\n\n" +
			"With --strategy mirror it plans the whole way to a second cluster and back, for namespaces that were copied there\n" +
			"once: deploys are stopped, names move in waves, the idle original is changed, names come home, copies go.",
		Args: none,
		RunE: func(command *cobra.Command, _ []string) error {
			spec, err := change.resolve(command)
			if err != nil {
				return err
			}
			if a.signKey = key; key != "" && slices.Contains([]string{"", "text", "yaml", "json", "-"}, a.output) {
				return fail(exitUsage, "say -o plan.yaml, beside which the signature is written", "--sign signs a file, and -o names none")
			}
			if spec.Strategy != mirror.Name {
				if err := foreign(command.Flags(), mirror.Name); err != nil {
					return err
				}
			} else {
				if len(from) > 0 || len(sources) > 0 {
					return fail(exitUsage, "leave --from and --flags out", "--strategy mirror reads both clusters and the zones")
				}
				return a.planMirror(command.Context(), &mirrored, spec)
			}
			return a.plan(command.Context(), from, spec, planned{sources: sources})
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil, "snapshot, or files or folders of Kubernetes YAML or JSON; - for standard input")
	command.Flags().StringArrayVar(&sources, "flags", nil, "flags, whose values on every node are resolved now and kept in the plan (repeatable); theseus flags --help")
	command.Flags().StringVar(&change.spec.Reflectors, "reflectors", "", "SELECTOR: let these nodes reflect BGP's routes, in Calico's language, such as has(reflector); none brings a full mesh")
	command.Flags().StringVar(&key, "sign", "", "sign the file that -o names with this SSH key; theseus sign does so later")
	change.register(command)
	ofStrategy(surge.Name, command.Flags(), func() { change.registerSurge(command) })
	ofStrategy(mirror.Name, command.Flags(), func() { mirrored.register(command) })
	return command
}

// planned says which flags a plan is made with: sources, of which all values are kept, or one flag that decides what is
// rolled out.
type planned struct {
	sources     []string
	origin, key string
}

func (a *app) plan(ctx context.Context, from []string, change v1alpha1.ChangeSpec, with planned) error {
	others := change
	if change.Strategy == surge.Name {
		others.ReplaceNodes = "" // it says which nodes the plan replaces
	}
	if whatif.Asked(others) {
		return fail(exitUsage, "leave kubernetesTo, removeLabels, addLabels and replaceNodes to theseus check", "what is not the network's to change is not planned")
	}
	options := plan.Options{Version: a.version, Now: time.Now()}
	if with.origin != "" {
		change.Flag = with.origin // which setting that means is read below; for checks it is a rollout
	}
	pass, result, _, err := a.preflight(ctx, from, change, checkOptions(change))
	if err != nil {
		return err
	}
	if err := a.mustNotBlock(result, acceptHint); err != nil {
		return err
	}
	options.Manifest = pass.Manifest
	if with.origin != "" {
		options.Flags, options.Decided, err = a.decide(ctx, pass.Snapshot, with.origin, with.key)
		if err == nil {
			change.Flag = options.Decided.Knob
			err = a.checkDecided(pass, options.Decided)
		}
	} else {
		options.Flags, err = a.resolveFlags(ctx, pass.Snapshot, with.sources)
	}
	if err != nil {
		return err
	}
	change.AgentImage = a.pinned(ctx, pass.Served, change.AgentImage)
	p, err := plan.Make(pass.Snapshot, change, drivers.All(), result.Findings, options)
	if err != nil {
		return err
	}
	if len(from) == 0 {
		if err := a.mayCarryOut(ctx, pass, p); err != nil {
			return err
		}
	}
	if n := result.Summary.NotChecked; n > 0 {
		fmt.Fprintf(a.Err, "note: %s could not be made: theseus check, with the same flags, says why\n", cluster.Count(n, "check"))
	}
	if p.Cluster.UID == "" {
		fmt.Fprintln(a.Err, "note: the input does not say which cluster it is of (the uid of Namespace kube-system), so theseus apply will refuse this plan")
	}
	return a.writePlan(p)
}

// served asks the registry of the agent's image for its digest; nil where no image is named.
func served(ctx context.Context, image string) *check.Served {
	if image == "" {
		return nil
	}
	pinned, err := registry.Digest(ctx, image)
	if err == nil {
		return &check.Served{Pinned: pinned}
	}
	var absent *registry.Absent
	return &check.Served{Missing: errors.As(err, &absent) && absent.Missing(), Why: err.Error()}
}

// pinned is the agent's image by the digest that its registry says, so that nobody can put another one in its place once the plan
// was read; as it is where the registry cannot be asked, of which the plan warns.
func (a *app) pinned(ctx context.Context, known *check.Served, image string) string {
	if image == "" {
		return ""
	}
	if known == nil {
		known = served(ctx, image)
	}
	switch {
	case known.Pinned != "":
		return known.Pinned
	case known.Missing:
		fmt.Fprintf(a.Err, "note: the registry has no %s: the agent starts only on nodes that have the image already\n", image)
	default:
		fmt.Fprintf(a.Err, "note: the agent's image stays named by its tag: %s\n", known.Why)
	}
	return image
}

// checkDecided runs the checks of a setting that only a flag set decides, for each of its values.
func (a *app) checkDecided(pass *check.Pass, decided *plan.Decided) error {
	for _, value := range slices.Compact(slices.Sorted(maps.Values(decided.Values))) {
		with := *pass
		with.Change.Flag = decided.Knob + "=" + value
		if err := a.mustNotBlock(preflight.Run(preflight.Named("felix/kube-proxy-mode"), &with, checkOptions(with.Change)), acceptHint); err != nil {
			return err
		}
	}
	return nil
}

const acceptHint = "fix what blocks, or accept what you have read: --accept ID=REASON"

// mayCarryOut refuses a plan that this user may not carry out to its end.
func (a *app) mayCarryOut(ctx context.Context, pass *check.Pass, p *plan.Plan) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	if err := askRights(ctx, client, pass.Snapshot, p); err != nil {
		return err
	}
	return a.mustNotBlock(preflight.Run(preflight.Named("api/rights"), pass, checkOptions(p.Change)),
		"ask for the rights, or accept what you have read: --accept api/rights=REASON")
}

// writePlan prints the runbook, or the whole plan with -o yaml and -o json, and writes the file that -o names.
func (a *app) writePlan(p *plan.Plan) error {
	write := plan.Write
	if a.output == "json" || strings.HasSuffix(a.output, ".json") {
		write = plan.WriteJSON
	}
	data, err := write(p)
	if err != nil {
		return err
	}
	if err := journal.Fits(p); err != nil {
		fmt.Fprintf(a.Err, "note: theseus apply will refuse this plan: %v\n", err)
	}
	switch a.output {
	case "", "text":
		err = a.print(plan.Runbook(p))
	case "yaml", "-", "json":
		_, err = a.Out.Write(data)
	default:
		if err = outfile.Write(a.output, data); err != nil {
			return err
		}
		if a.signKey != "" {
			if err := a.sign(a.output, p, data, a.signKey); err != nil {
				return err
			}
		}
		err = a.print(fmt.Sprintf("%s\nwritten to %s; read it, then: theseus apply %s\n", plan.Runbook(p), a.output, a.output))
	}
	return err
}

// see takes a snapshot of the cluster, or reads one.
func (a *app) see(ctx context.Context, from []string) (*cluster.Snapshot, error) {
	if len(from) > 0 {
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(75) // the snapshot is nearly all that is kept: less than as much again is room enough
		}
		snapshot, notes, err := kube.ReadFiles(a.version, a.In, from...)
		for _, note := range notes {
			fmt.Fprintln(a.Err, "note:", note)
		}
		return snapshot, err
	}
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	return kube.Snapshot(ctx, client, a.version, time.Now())
}

// passOf is the evidence for checks: the snapshot, and the two networks as far as they can be told. The error says why
// the one to come cannot: checks do without it then.
func passOf(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, manifest []unstructured.Unstructured) (*check.Pass, error) {
	pass := &check.Pass{Snapshot: snapshot, Change: change, Found: drivers.All().Detect(snapshot), Manifest: manifest}
	if len(pass.Found) > 0 {
		pass.Source = pass.Found[0]
	}
	if pass.Source == nil {
		return pass, nil
	}
	target, err := plan.Comes(snapshot, change, drivers.All(), pass.Source, manifest)
	pass.Target = target
	return pass, err
}

// readManifest decodes the target's manifests; none when no file is named.
func readManifest(file string) ([]unstructured.Unstructured, error) {
	if file == "" {
		return nil, nil
	}
	objects, err := kube.ReadObjects(file)
	if err != nil {
		hint := hintOf(err)
		if hint == "" {
			hint = "name the file that installs the network on a new cluster"
		}
		return nil, fail(exitUsage, hint, "the manifest: %w", err)
	}
	return objects, noSecrets(objects)
}

// noSecrets refuses manifests with a secret in them: the plan and the journal would hold it, which whoever may read
// Migrations can read, and which are not encrypted as Secrets are.
func noSecrets(objects []unstructured.Unstructured) error {
	for i := range objects {
		object := &objects[i]
		if object.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
			return fail(exitUsage, "apply the Secret yourself before, and take it out of the file: the plan and the journal would hold its data",
				"the manifest: it has the Secret %s/%s", object.GetNamespace(), object.GetName())
		}
		if object.GetKind() == "CustomResourceDefinition" {
			continue // its schema has the names of fields, and no values
		}
		if found := cluster.Secrets(object.Object); len(found) > 0 {
			return fail(exitUsage, "let the value come from a Secret (valueFrom.secretKeyRef, or the kind's own reference): the plan and the journal would hold it",
				"the manifest: %s holds a password or token in %s", step.RefOf(object), found[0])
		}
	}
	return nil
}
