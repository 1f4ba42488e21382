package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
	"github.com/theseus-cni/theseus/internal/step"
)

func (a *app) reportCommand() *cobra.Command {
	var traffic []string
	command := a.migrationCommand("report", "Show what a migration cost: ideally nothing",
		"Makes the report of a migration from its journal in the cluster and the evidence that was gathered:\n"+
			"-o report.html is one page that works offline, -o report.json the same for machines; without -o a\n"+
			"summary is printed.",
		func(ctx context.Context, client *kube.Client, name string) error {
			return a.patiently(ctx, glance, func(ctx context.Context) error {
				p, _, err := journal.Load(ctx, client.Dynamic, name)
				if err != nil {
					return err
				}
				return a.report(ctx, client, p, traffic)
			})
		})
	command.Flags().StringSliceVar(&traffic, "traffic", nil, "JSON files in which clients of your own sum up what they saw (see docs/report.md)")
	return command
}

func (a *app) report(ctx context.Context, client *kube.Client, p *plan.Plan, traffic []string) error {
	input, err := a.gather(ctx, client, p)
	if err != nil {
		return err
	}
	holder, err := journal.HeldBy(ctx, run.Leases(client))
	if err != nil {
		return err
	}
	if holder != nil {
		input.Held = holder.Error()
	}
	for _, file := range traffic {
		var seen []report.Traffic
		if err := infile.ReadJSON(file, document.MaxInput, &seen); err != nil {
			return fail(exitUsage, "see docs/report.md for the form", "%s is no list of what clients saw: %w", file, err)
		}
		input.Traffic = append(input.Traffic, seen...)
	}
	model := report.Build(input)
	var data []byte
	switch {
	case a.output == "" || a.output == "text":
		_, err := fmt.Fprint(a.Out, report.Text(model))
		return err
	case a.output == "json" || a.output == "-" || strings.HasSuffix(a.output, ".json"):
		data, err = report.JSON(model)
	case strings.HasSuffix(a.output, ".html"):
		data, err = report.HTML(model)
	default:
		return fail(exitUsage, "name a file that ends in .html or .json", "a report cannot be written to %q", a.output)
	}
	if err != nil {
		return err
	}
	if a.output == "json" || a.output == "-" {
		_, err = a.Out.Write(data)
		return err
	}
	if err := outfile.Write(a.output, printable.Text(data)); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s\nthe report is %s\n", strings.SplitN(report.Text(model), "\n", 2)[0], a.output)
	return nil
}

// printSummary prints the report's summary at the end of a run.
func (a *app) printSummary(ctx context.Context, client *kube.Client, p *plan.Plan) error {
	input, err := a.gather(ctx, client, p)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "\n%s\n`theseus report -o report.html` shows every path\n", report.Text(report.Build(input)))
	return nil
}

// gather collects what a report is made of: the journal from the cluster, the evidence from this machine
// and, where the probes still run, from the cluster.
func (a *app) gather(ctx context.Context, client *kube.Client, p *plan.Plan) (report.Input, error) {
	records, err := journal.NewCluster(client.Dynamic, p.Name).Records(ctx)
	if err != nil {
		return report.Input{}, err
	}
	dir, err := stateDir(p.Name)
	if err != nil {
		return report.Input{}, err
	}
	actor := &kube.Actor{Typed: client.Typed, Dynamic: client.Dynamic, Mapper: client.Mapper, Clock: run.Clock{}}
	document, err := run.Gather(ctx, actor, dir)
	if err != nil {
		return report.Input{}, err
	}
	input := report.Input{Plan: p, Records: records, Paths: document.Paths, Reports: run.Reports(document), Foreign: run.Foreign(document),
		At: time.Now()}
	input.InventoriesBefore, input.InventoriesAfter = inventories(p, records)
	if input.BGP, err = run.Graphs(ctx, actor, p, dir); err != nil {
		return input, err
	}
	input.Workloads, err = outcomes(ctx, client, p, records)
	return input, err
}

// inventories finds the first and the last stock-taking of every node in the journal, by the name that it really has: the plan
// has names of its own for nodes that come.
func inventories(p *plan.Plan, records []engine.Record) (before, after map[string]step.Inventory) {
	script := run.NewScript(p)
	before, after = map[string]step.Inventory{}, map[string]step.Inventory{}
	for _, record := range records {
		action := script.Find(record.Action)
		if record.Event != engine.Acted || record.Undo || action == nil || action.Verb != step.VerbInventory {
			continue
		}
		var inventory step.Inventory
		if json.Unmarshal(record.Data, &inventory) != nil {
			continue
		}
		if _, seen := before[inventory.Node]; !seen {
			before[inventory.Node] = inventory
		} else {
			after[inventory.Node] = inventory
		}
	}
	return before, after
}

// outcomes says what happened to every workload: who was moved, and who restarted since the start.
func outcomes(ctx context.Context, client *kube.Client, p *plan.Plan, records []engine.Record) ([]report.WorkloadOutcome, error) {
	moved, whole := evictions(records)
	pods, err := client.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var begun time.Time
	if len(records) > 0 {
		begun = records[0].At
	}
	restarts, count := map[string]int{}, map[string]int{}
	actor := &kube.Actor{Typed: client.Typed, Dynamic: client.Dynamic, Mapper: client.Mapper, Clock: run.Clock{}}
	for i := range pods.Items {
		owner, err := actor.Workload(ctx, &pods.Items[i])
		if err != nil {
			return nil, err
		}
		count[owner]++
		restarts[owner] += restartsSince(&pods.Items[i], begun)
	}
	return perWorkload(p.Workloads, count, restarts, moved, whole), nil
}

// perWorkload is what was counted by workload, once for each: one whose pods are treated differently is in a plan twice.
func perWorkload(planned []plan.Workload, count, restarts, moved map[string]int, whole map[string]int64) []report.WorkloadOutcome {
	var all []report.WorkloadOutcome
	seen := map[string]bool{}
	for _, w := range planned {
		key := w.Kind + "/" + w.Namespace + "/" + w.Name
		if seen[key] {
			continue
		}
		seen[key] = true
		all = append(all, report.WorkloadOutcome{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name, Pods: count[key],
			RestartsAfter: restarts[key], Evicted: moved[key], NotReadyMillis: whole[key]})
	}
	return all
}

// evictions sums up the journal by workload: pods moved, and the time until it was whole again, in ms.
func evictions(records []engine.Record) (moved map[string]int, whole map[string]int64) {
	moved, whole = map[string]int{}, map[string]int64{}
	for _, record := range records {
		var evicted kube.Evicted
		if record.Event != engine.Acted || json.Unmarshal(record.Data, &evicted) != nil {
			continue
		}
		for _, pod := range evicted.Pods {
			moved[pod.Workload]++
			whole[pod.Workload] += pod.WholeMillis
		}
	}
	return moved, whole
}

// restartsSince counts the containers of a pod that ended and were started again since a moment. Of
// several restarts of one container only the last tells its time, so it counts them all when that is later.
func restartsSince(pod *corev1.Pod, since time.Time) int {
	n := 0
	for _, status := range pod.Status.ContainerStatuses {
		last := status.LastTerminationState.Terminated
		if last != nil && last.FinishedAt.After(since) {
			n += int(status.RestartCount)
		}
	}
	return n
}
