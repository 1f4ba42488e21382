package run

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/step"
)

// ReportInput collects the input of a report: the journal from the cluster, the evidence from dir, the folder of the
// run on this machine, and from the cluster: what the run keeps there, and unless it has ended the reports of its
// probes. warn gets what makes the evidence incomplete.
func ReportInput(ctx context.Context, client *kube.Client, p *plan.Plan, dir string,
	warn func(string)) (report.Input, error) {
	records, err := journal.NewCluster(client.Dynamic, p.Name).Records(ctx)
	if err != nil {
		return report.Input{}, err
	}
	actor := NewActor(client)
	document, unread, err := gather(ctx, actor, p.Name, dir, over(records))
	var damaged *damagedError
	switch {
	case err != nil:
		return report.Input{}, err
	case errors.As(unread, &damaged), apierrors.IsForbidden(unread):
		warn("the paths in this report may be incomplete: " + unread.Error())
	case unread != nil:
		return report.Input{}, unread
	}
	return inputOf(ctx, client, p, dir, records, document, warn)
}

// inputOf is the input of a report on evidence that was gathered.
func inputOf(ctx context.Context, client *kube.Client, p *plan.Plan, dir string, records []engine.Record,
	document kube.Collected, warn func(string)) (report.Input, error) {
	input := report.Input{Plan: p, Records: records, Paths: document.Paths, Reports: Reports(document),
		Foreign: Foreign(document), Left: Left(document), Unread: unreadIn(dir), Events: document.Events,
		EventsDropped: document.EventsDropped, At: time.Now()}
	for _, looks := range document.Looks {
		input.Looks = append(input.Looks, report.Span{From: looks.From, To: looks.To})
	}
	input.InventoriesBefore, input.InventoriesAfter = inventories(p, records)
	var err error
	if input.Load, err = KeptLoad(dir); err != nil {
		warn("the load before or after the change is not in this report: " + err.Error())
	}
	input.BGP, err = Graphs(ctx, NewActor(client), p, dir)
	if apierrors.IsForbidden(err) {
		warn("this report has no BGP graph: " + err.Error())
	} else if err != nil {
		return input, err
	}
	input.Workloads, err = outcomes(ctx, client, p, records)
	return input, err
}

// inventories finds the first and the last inventory of every node in the journal, by the node's real name: the plan
// has names of its own for nodes that join.
func inventories(p *plan.Plan, records []engine.Record) (before, after map[string]step.Inventory) {
	script := NewScript(p)
	before, after = map[string]step.Inventory{}, map[string]step.Inventory{}
	for _, record := range records {
		action := script.Find(record.Action)
		if record.Event != engine.Acted || record.Undo || action == nil || action.Verb() != step.VerbInventory {
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

// outcomes says what happened to every workload: how many pods were moved, and how many restarted since the start.
func outcomes(ctx context.Context, client *kube.Client, p *plan.Plan,
	records []engine.Record) ([]report.WorkloadOutcome, error) {
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
	actor := NewActor(client)
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

// perWorkload counts each workload once: a workload whose pods are treated differently is in a plan twice.
func perWorkload(planned []plan.Workload, count, restarts, moved map[string]int,
	whole map[string]int64) []report.WorkloadOutcome {
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
