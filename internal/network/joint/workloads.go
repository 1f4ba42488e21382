package joint

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// The treatments of a workload.
const (
	Adopt  = "adopt"  // its pods keep running, with their addresses and connections
	Move   = "move"   // its pods are evicted and recreated
	Stay   = "stay"   // its pods use the host's network
	Refuse = "refuse" // its pods would be lost
)

// Workload says what happens to one workload.
type Workload struct {
	Kind, Namespace, Name string
	// Pods are the names of its pods that move or are adopted, by wave.
	Pods      map[string][]string
	Treatment string
	// Budget names the PodDisruptionBudget that limits it.
	Budget string
	Note   string
	// moving counts its pods on the pod network.
	moving int
	// others is the number of its other pods, which keep running.
	others int
}

// Outlook says what happens to pods.
type Outlook struct {
	// Workloads are sorted by namespace, kind and name. A workload whose pods are treated differently has two entries.
	Workloads []Workload
	// PerNode is the number of pods on each node that move or are adopted.
	PerNode map[string][]estimate.Pod
	// Unadoptable are the pods that cannot be adopted, by node.
	Unadoptable map[string][]Pod
	// Strangers are pods whose address is in none of the ranges.
	Strangers []string
}

// Pod is a pod (namespace/name) and its address, which may be unknown.
type Pod struct{ Name, Address string }

// Survey says what happens to every workload on networks with these ranges. unfit returns why a pod cannot be adopted,
// empty if it can; if unfit is nil, all pods are moved.
func Survey(snapshot *cluster.Snapshot, cidrs []string, waves []Wave, unfit func(*corev1.Pod) string) Outlook {
	s := surveyor{snapshot: snapshot, networks: cni.Prefixes(cidrs), waveOf: map[string]string{}, unfit: unfit,
		owners: ownersOf(snapshot), found: map[treated]*Workload{},
		Outlook: Outlook{PerNode: map[string][]estimate.Pod{}, Unadoptable: map[string][]Pod{}}}
	for _, wave := range waves {
		for _, node := range wave.Nodes {
			s.waveOf[node] = wave.Name
		}
	}
	for i := range snapshot.Pods {
		s.pod(&snapshot.Pods[i])
	}
	s.Workloads = s.result()
	slices.Sort(s.Strangers)
	return s.Outlook
}

// treated is the key of one entry of an outlook.
type treated struct {
	owner     cluster.Owner
	treatment string
	reason    string
}

type surveyor struct {
	snapshot *cluster.Snapshot
	networks []netip.Prefix
	waveOf   map[string]string
	owners   map[string]cluster.Owner
	unfit    func(*corev1.Pod) string
	found    map[treated]*Workload
	Outlook
}

// ownersOf maps ReplicaSets ("namespace/name") to the workload above them, once: a cluster has many pods.
func ownersOf(snapshot *cluster.Snapshot) map[string]cluster.Owner {
	owners := map[string]cluster.Owner{}
	for i := range snapshot.ReplicaSets {
		set := &snapshot.ReplicaSets[i]
		if parent := metav1.GetControllerOf(set); parent != nil {
			owners[set.Namespace+"/"+set.Name] = cluster.Owner{Kind: parent.Kind,
				Namespace: set.Namespace, Name: parent.Name}
		}
	}
	return owners
}

func (s *surveyor) ownerOf(pod *corev1.Pod) cluster.Owner {
	ref := metav1.GetControllerOf(pod)
	if ref == nil {
		return cluster.Owner{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	}
	if owner, ok := s.owners[pod.Namespace+"/"+ref.Name]; ok && ref.Kind == "ReplicaSet" {
		return owner
	}
	return cluster.Owner{Kind: ref.Kind, Namespace: pod.Namespace, Name: ref.Name}
}

func (s *surveyor) pod(pod *corev1.Pod) {
	if pod.Namespace == v1alpha1.Namespace || pod.Status.Phase == corev1.PodSucceeded ||
		pod.Status.Phase == corev1.PodFailed {
		return
	}
	owner := s.ownerOf(pod)
	if owner.Kind == "Node" { // a static pod is a workload by itself
		owner = cluster.Owner{Kind: "Node", Namespace: pod.Namespace, Name: pod.Name}
	}
	if pod.Spec.HostNetwork || pod.Spec.NodeName == "" {
		s.line(treated{owner, Stay, ""})
		return
	}
	if address, err := netip.ParseAddr(pod.Status.PodIP); err == nil && !contains(s.networks, address) {
		s.Strangers = append(s.Strangers, pod.Namespace+"/"+pod.Name+" ("+pod.Status.PodIP+")")
		return
	}
	as := treated{owner, Move, ""}
	if s.unfit != nil {
		if as.reason = s.unfit(pod); as.reason == "" {
			as.treatment = Adopt
		} else {
			s.Unadoptable[pod.Spec.NodeName] = append(s.Unadoptable[pod.Spec.NodeName],
				Pod{pod.Namespace + "/" + pod.Name, pod.Status.PodIP})
		}
	}
	w := s.line(as)
	w.moving++
	s.PerNode[pod.Spec.NodeName] = append(s.PerNode[pod.Spec.NodeName], estimate.Pod{Name: pod.Name, Owner: owner})
	if w.Budget == "" {
		w.Budget = s.budgetOf(pod)
	}
	if w.Pods == nil {
		w.Pods = map[string][]string{}
	}
	wave := s.waveOf[pod.Spec.NodeName]
	w.Pods[wave] = append(w.Pods[wave], pod.Name)
}

func (s *surveyor) line(as treated) *Workload {
	w := s.found[as]
	if w == nil {
		w = &Workload{Kind: as.owner.Kind, Namespace: as.owner.Namespace, Name: as.owner.Name, Treatment: as.treatment}
		s.found[as] = w
	}
	return w
}

func (s *surveyor) budgetOf(pod *corev1.Pod) string {
	for i := range s.snapshot.Budgets {
		budget := &s.snapshot.Budgets[i]
		if budget.Namespace == pod.Namespace && selects(budget, pod) {
			return budget.Name
		}
	}
	return ""
}

func selects(budget *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

func (s *surveyor) result() []Workload {
	var all []Workload
	for as, w := range s.found {
		if as.treatment == Stay && (s.found[treated{as.owner, Move, ""}] != nil ||
			s.found[treated{as.owner, Adopt, ""}] != nil) {
			continue // some of its pods are not scheduled yet
		}
		for _, pods := range w.Pods {
			slices.Sort(pods)
		}
		if kept := s.found[treated{as.owner, Adopt, ""}]; kept != nil && as.reason != "" {
			w.others = len(kept.Pods)
		}
		w.judge()
		if as.reason != "" {
			w.Note = as.reason + "; " + w.Note
		}
		all = append(all, *w)
	}
	slices.SortFunc(all, func(a, b Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Treatment, b.Treatment), cmp.Compare(a.Note, b.Note))
	})
	return all
}

// judge describes what a move means for a kind of workload.
func (w *Workload) judge() {
	switch w.Treatment {
	case Stay:
		w.Note = "its pods use the host network"
		return
	case Adopt:
		w.Note, w.Budget = "its pods keep running, with their addresses and connections", ""
		return
	}
	switch w.Kind {
	case "Pod":
		w.Treatment, w.Note = Refuse, "no controller owns it, so nothing would recreate it"
	case "Node":
		w.Treatment, w.Note = Refuse, "it is a static pod on the pod network, which cannot be evicted"
	case "DaemonSet":
		w.Note = "each pod is recreated on its own node"
	case "Job":
		w.Note = "its pods start over; an eviction counts against backoffLimit unless podFailurePolicy says otherwise"
	case "StatefulSet":
		w.Note = "one pod at a time; each keeps its name and volumes"
	case "Deployment", "ReplicaSet":
		w.Note = "one pod at a time, the next when all are ready again"
	default:
		w.Note = fmt.Sprintf("Theseus expects its %s to recreate evicted pods", strings.ToLower(w.Kind))
	}
	if w.moving == 1 && w.others == 0 && (w.Kind == "Deployment" || w.Kind == "ReplicaSet" || w.Kind == "StatefulSet") {
		w.Note = "DOWNTIME: it has one pod, and is down from the eviction until the new pod is ready"
	}
}

func contains(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(address) })
}
