package node

import (
	_ "embed"
	"fmt"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed capacity.md
var capacityDoc string

// Capacity reports nodes, and waves of nodes, whose pods do not fit on other nodes.
func Capacity() check.Check {
	return check.Check{
		ID:    "node/capacity",
		Title: "The pods of a node, or of a wave of nodes, do not fit elsewhere while they are recreated",
		Doc:   capacityDoc,
		Needs: []string{"nodes", "pods"},
		Lacks: func(pass *check.Pass) string {
			for i := range pass.Snapshot.Nodes {
				if len(pass.Snapshot.Nodes[i].Status.Allocatable) == 0 {
					return "the node " + pass.Snapshot.Nodes[i].Name + " has no allocatable resources in its status"
				}
			}
			return ""
		},
		Run: capacity,
	}
}

// amount is CPU in thousandths, memory in bytes, and a count of pods.
type amount [3]int64

var units = [3]string{"CPU", "memory", "pods"}

func (a *amount) add(b amount) {
	for i := range a {
		a[i] += b[i]
	}
}

func of(list corev1.ResourceList) amount {
	return amount{list.Cpu().MilliValue(), list.Memory().Value(), list.Pods().Value()}
}

// requested returns what the scheduler reserves for a pod, including its Overhead and its sidecars.
func requested(pod *corev1.Pod) amount {
	sum := of(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	sum[2] = 1
	return sum
}

func capacity(pass *check.Pass) []finding.Finding {
	used := map[string]amount{}
	var moved []*corev1.Pod
	for i := range pass.Snapshot.Pods {
		pod := &pass.Snapshot.Pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		sum := used[pod.Spec.NodeName]
		sum.add(requested(pod))
		used[pod.Spec.NodeName] = sum
		if pass.Recreates(pod) && !check.OfDaemonSet(pod) {
			moved = append(moved, pod)
		}
	}
	rooms, moving := newRooms(pass.Snapshot.Nodes, used), map[string]demand{}
	for _, pod := range moved {
		if moving[pod.Spec.NodeName] == nil {
			moving[pod.Spec.NodeName] = demand{}
		}
		moving[pod.Spec.NodeName].add(rooms.of(&pod.Spec), requested(pod))
	}
	var found []finding.Finding
	for i := range pass.Snapshot.Nodes {
		name := pass.Snapshot.Nodes[i].Name
		if short := rooms.short(moving[name]); short != nil {
			found = append(found, crowded(name, short))
		}
	}
	if len(found) > 0 {
		return found // then a wave of several nodes adds nothing
	}
	return crowdedWave(pass, moving, rooms)
}

// over returns the first unit that exceeds the room.
func (a amount) over(room amount) (unit int, is bool) {
	for unit := range a {
		if a[unit] > room[unit] {
			return unit, true
		}
	}
	return 0, false
}

// crowdedWave reports the first wave whose pods do not all fit while its old pods are still terminating.
func crowdedWave(pass *check.Pass, moving map[string]demand, rooms *rooms) []finding.Finding {
	if pass.Change.To == "" || pass.Change.Strategy != "" && pass.Change.Strategy != "recreate" {
		return nil // no waves that recreate pods
	}
	waves, err := joint.Waves(pass.Snapshot, pass.Change.Waves, pass.Change.DomainLabel)
	if err != nil {
		return nil // the planner refuses such waves
	}
	for _, wave := range waves {
		of := func(first int) *shortage { // the first nodes of the wave
			sum := demand{}
			for _, node := range wave.Nodes[:first] {
				for room, n := range moving[node] {
					sum.add(room, n)
				}
			}
			return rooms.short(sum)
		}
		short := of(len(wave.Nodes))
		if short == nil {
			continue
		}
		fits := sort.Search(len(wave.Nodes), func(n int) bool { return of(n+1) != nil })
		return []finding.Finding{{
			ID: "node/capacity", Severity: finding.Info, Subject: finding.Subject{Kind: "Wave", Name: wave.Name},
			Message: fmt.Sprintf("%s of its %s request %s, but %s free, enough for %d of these nodes: if pods "+
				"terminate slowly, new ones wait",
				short.who("the pods"), cluster.Count(len(wave.Nodes), "node"),
				show(short.unit, short.wanted), short.have(), fits),
			Evidence: short.evidence(map[string]any{"nodes": len(wave.Nodes), "fit": fits}),
			Fix: fmt.Sprintf("use smaller waves: --waves, with no more than %s in each",
				cluster.Count(fits, "node")),
		}}
	}
	return nil
}

func crowded(node string, short *shortage) finding.Finding {
	f := finding.Finding{
		ID: "node/capacity", Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: node},
		Message: fmt.Sprintf("%s request %s, but %s free: a new pod waits until an old one has ended",
			short.who("its pods"), show(short.unit, short.wanted), short.have()),
		Evidence: short.evidence(map[string]any{}),
		Fix:      "add a node for the duration of the change, or scale a workload down",
	}
	if short.room.count == 0 {
		f.Message = fmt.Sprintf("no node can run %s, by their tolerations, node selectors and affinities: new ones "+
			"stay Pending", short.who("its pods"))
		f.Fix = "change the tolerations or selectors of those pods, or make a node available to them"
	} else if !short.room.all {
		f.Fix = "add such a node for the duration of the change, make others available to these " +
			"pods, or scale a workload down"
	}
	return f
}

func show(unit int, n int64) string {
	switch unit {
	case 0:
		return fmt.Sprintf("%.1f CPUs", float64(n)/1000)
	case 1:
		return fmt.Sprintf("%.1f GiB of memory", float64(n)/(1<<30))
	}
	return "room for " + cluster.Count(int(n), "pod")
}
