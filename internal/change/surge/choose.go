package surge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/selector/nodes"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// Reason says why it can be done.
const Reason = "nodes are replaced, not changed: pods move to new nodes that have only run the new network, " +
	"and the old nodes are removed"

// Replacing says which nodes go and come, in waves, and which stay and are switched: the waves of joint have both.
func Replacing(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec) (*kind.Surge, []joint.Wave, error) {
	s, err := hooksOf(change)
	if err != nil {
		return nil, nil, err
	}
	going, staying, err := chosen(snapshot, change.ReplaceNodes)
	if err != nil {
		return nil, nil, err
	}
	waves, err := kind.CountedWaves(going, change)
	if err != nil {
		return nil, nil, err
	}
	if err := notPinned(going); err != nil {
		return nil, nil, err
	}
	name := slots(snapshot)
	for _, wave := range waves {
		all := kind.SurgeWave{Name: wave.Name, Old: wave.Nodes}
		for range cmp.Or(change.Surge, len(wave.Nodes)) {
			all.New = append(all.New, name())
		}
		s.Waves = append(s.Waves, all)
	}
	if err := roomy(going, len(s.Slots())); err != nil {
		return nil, nil, err
	}
	kept, err := joint.Waves(staying, nil, change.DomainLabel)
	if err != nil {
		return nil, nil, err
	}
	for _, wave := range kept {
		waves = append(waves, joint.Wave{Name: fmt.Sprintf("wave-%d", len(waves)+1), Nodes: wave.Nodes})
	}
	return s, waves, nil
}

func hooksOf(change v1alpha1.ChangeSpec) (*kind.Surge, error) {
	s := &kind.Surge{}
	for _, hook := range []struct {
		flag, does, text string
		into             *[]string
	}{{"--add-hook", "adds", change.AddHook, &s.AddHook},
		{"--remove-hook", "removes", change.RemoveHook, &s.RemoveHook}} {
		if hook.text == "" {
			return nil, kind.Refuse(fmt.Sprintf("give %s a command that %s one node, for example with kops, "+
				"Cluster API or "+
				"your cloud's tool", hook.flag, hook.does),
				"the strategy %s replaces nodes, and no command that %s one is given", Name, hook.does)
		}
		words, err := shell.Split(hook.text)
		if err != nil {
			return nil, kind.Refuse("Theseus splits it at blanks, quotes and backslashes, without a shell; for a "+
				"shell, use sh -c '...'", "%s %q: %v", hook.flag, hook.text, err)
		}
		*hook.into = words
	}
	if change.Surge < 0 || change.HookSeconds < 0 {
		return nil, kind.Refuse("leave it out for the default", "--surge and --hook-timeout cannot be below 0")
	}
	return s, nil
}

// chosen divides the cluster by the nodes that go and those that stay.
func chosen(snapshot *cluster.Snapshot, text string) (going, staying *cluster.Snapshot, err error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, nil, kind.Refuse("write it as kubectl takes it, such as pool=workers",
			"--replace-nodes %q is no selector: %v", text, err)
	}
	a, b := *snapshot, *snapshot
	a.Nodes, b.Nodes = nil, nil
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		control := joint.IsControlPlane(node)
		switch {
		case text != "" && control && selector.Matches(labels.Set(node.Labels)):
			return nil, nil, kind.Refuse(
				"leave it out of --replace-nodes: Theseus then switches it in place, after the others",
				"node %s is part of the control plane, which cannot move to a new node as pods do", node.Name)
		case !control && selector.Matches(labels.Set(node.Labels)):
			a.Nodes = append(a.Nodes, *node)
		default:
			b.Nodes = append(b.Nodes, *node)
		}
	}
	if len(a.Nodes) == 0 {
		return nil, nil, kind.Refuse("choose others with --replace-nodes, or use --strategy recreate",
			"no node would be replaced: none of the workers matches %q", text)
	}
	return &a, &b, nil
}

// slots gives names that no node has.
func slots(snapshot *cluster.Snapshot) func() string {
	taken := map[string]bool{}
	for i := range snapshot.Nodes {
		taken[snapshot.Nodes[i].Name] = true
	}
	n := 0
	return func() string {
		for {
			n++
			if name := fmt.Sprintf("new-%d", n); !taken[name] {
				return name
			}
		}
	}
}

// moving calls f for each pod that has to leave a node that goes.
func moving(going *cluster.Snapshot, f func(*corev1.Pod) error) error {
	on := map[string]bool{}
	for i := range going.Nodes {
		on[going.Nodes[i].Name] = true
	}
	for i := range going.Pods {
		pod := &going.Pods[i]
		daemon := slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.Kind == "DaemonSet" || o.Kind == "Node"
		})
		over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !on[pod.Spec.NodeName] || daemon || over || pod.Spec.HostNetwork {
			continue
		}
		if err := f(pod); err != nil {
			return err
		}
	}
	return nil
}

// notPinned refuses pods that could live on no other node. Volumes of one node are a check's to find.
func notPinned(going *cluster.Snapshot) error {
	return moving(going, func(pod *corev1.Pod) error {
		if !slices.Contains(nodes.OfPod(&pod.Spec, "").Keys(), corev1.LabelHostname) {
			return nil
		}
		return kind.Refuse("remove the node's name from the selector of its workload, leave the node out of "+
			"--replace-nodes, or use --strategy recreate",
			"pod %s/%s selects the node %s by name, and that node is "+
				"removed", pod.Namespace, pod.Name, pod.Spec.NodeName)
	})
}

// roomy refuses fewer new nodes than the pods need, if each is as large as the largest of those that go.
func roomy(going *cluster.Snapshot, count int) error {
	need, have := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range going.Nodes {
		for _, kind := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
			if room, ok := going.Nodes[i].Status.Allocatable[kind]; ok && room.Cmp(have[kind]) > 0 {
				have[kind] = room
			}
		}
	}
	_ = moving(going, func(pod *corev1.Pod) error {
		add(need, corev1.ResourcePods, *resource.NewQuantity(1, resource.DecimalSI))
		for i := range pod.Spec.Containers {
			for resource, quantity := range pod.Spec.Containers[i].Resources.Requests {
				add(need, resource, quantity)
			}
		}
		return nil
	})
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		room, known := have[resource]
		wanted := need[resource]
		if known && float64(count)*room.AsApproximateFloat64() < wanted.AsApproximateFloat64() {
			return kind.Refuse("add more nodes: a larger --surge, or none",
				"the pods that move request %s of %s, and %d new nodes like the largest of the old ones have %s each",
				wanted.String(), resource, count, room.String())
		}
	}
	return nil
}

func add(to corev1.ResourceList, kind corev1.ResourceName, quantity resource.Quantity) {
	sum := to[kind]
	sum.Add(quantity)
	to[kind] = sum
}

// StepsOf makes the steps, by what the plan says of nodes.
func StepsOf(s *kind.Surge, change v1alpha1.ChangeSpec) func(joint.Input) []step.Step {
	hooks := Hooks{Add: s.AddHook, Remove: s.RemoveHook,
		Timeout: cmp.Or(time.Duration(change.HookSeconds)*time.Second, DefaultHook)}
	var waves []Wave
	for _, wave := range s.Waves {
		waves = append(waves, Wave(wave))
	}
	return func(in joint.Input) []step.Step { return Steps(in, waves, hooks) }
}

// OfDaemons says what becomes of pods of DaemonSets, which go with their node.
func OfDaemons(workloads []joint.Workload) []joint.Workload {
	for i := range workloads {
		if w := &workloads[i]; w.Kind == "DaemonSet" && w.Treatment == joint.Move {
			w.Note = "its pods end with the old nodes, and start on every new node"
		}
	}
	return workloads
}

// Hooked says whether a change has what only the strategy surge has use for, of which HooksAre is to be said.
func Hooked(change v1alpha1.ChangeSpec) bool {
	return change.AddHook != "" || change.RemoveHook != "" || change.Surge != 0 || change.HookSeconds != 0
}

// HooksAre is a refusal of that, with the strategy's name to fill in.
const HooksAre = "--add-hook, --remove-hook, --hook-timeout and --surge are for the strategy %s"

// Unasked refuses what only this strategy has use for, where another is meant.
func Unasked(change v1alpha1.ChangeSpec) error {
	if change.Strategy == Name || !Hooked(change) {
		return nil
	}
	return kind.Refuse("add --strategy surge, or leave them out", HooksAre, Name)
}
