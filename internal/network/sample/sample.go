// Package sample chooses connections between running pods that show what policies do: some that they allow, some that
// they deny, and those about which two networks decide differently. The choice is the same every time, and spread over
// namespaces and nodes.
package sample

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/policy"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// mostVerdicts bounds the verdicts that each search asks the model of the policies for.
	mostVerdicts = 4000
	// spare is how many times as many pairs are found as are chosen, so that there is a choice.
	spare = 8
)

// Pair is a connection that may be opened. Denied is what the policies say of it now.
type Pair struct {
	step.Pair
	// Protocol is TCP or UDP.
	Protocol corev1.Protocol
	// DeniedAfter is what they say under the other network.
	DeniedAfter bool
}

// Options say between which pods pairs are chosen.
type Options struct {
	// Model has the policies under the present network and the one after it, which may be the same.
	Model *policy.Model
	Pods  []corev1.Pod
	// From and To say which pods, and which of their ports, may be the ends of a pair. UDP says that ports of UDP may
	// be, too.
	From func(*corev1.Pod) bool
	To   func(pod *corev1.Pod, port policy.Port) bool
	UDP  bool
	// Most bounds the pairs.
	Most int
}

// Pairs chooses pairs. Pods that are not Ready, that end, or that have the addresses of their nodes are in none, nor
// are those about which a policy decides that the model leaves out.
func Pairs(o Options) []Pair {
	s := &search{model: o.Model, most: o.Most * spare, seen: map[asked]bool{}}
	for i := range o.Pods {
		pod := &o.Pods[i]
		if !sampled(pod) {
			continue
		}
		if o.From(pod) {
			s.sources = append(s.sources, pod)
		}
		for _, port := range portsOf(pod, o.UDP) {
			if o.To(pod, port) {
				s.targets = append(s.targets, target{pod, port})
			}
		}
	}
	// An order that has nothing to do with names mixes namespaces and nodes, and is the same every time.
	slices.SortFunc(s.sources, func(a, b *corev1.Pod) int { return byHash(a, b) })
	slices.SortFunc(s.targets, func(a, b target) int {
		return cmp.Or(byHash(a.pod, b.pod), comparePorts(a.port, b.port))
	})
	s.run()
	return s.choose(o.Most)
}

// target is a port of a pod that a connection may go to.
type target struct {
	pod  *corev1.Pod
	port policy.Port
}

// asked is a pair that was looked at.
type asked struct {
	step.Pair
	protocol corev1.Protocol
}

// The kinds of pairs.
const (
	allowed = iota
	denied
	changing
)

// search looks for pairs of each kind.
type search struct {
	model   *policy.Model
	sources []*corev1.Pod
	targets []target
	most    int
	seen    map[asked]bool
	found   [3][]Pair
}

func byHash(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(hash(a), hash(b)), cmp.Compare(key(a), key(b)))
}

func hash(pod *corev1.Pod) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, key(pod))
	return h.Sum64()
}

func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// sampled reports whether a pod may be an end of a pair.
func sampled(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && !pod.Spec.HostNetwork && pod.DeletionTimestamp == nil &&
		pod.Status.PodIP != "" && pod.Labels[v1alpha1.LabelManaged] == "" && cluster.PodReady(pod)
}

// portsOf are the TCP ports that a pod's containers declare, and those of UDP, each once.
func portsOf(pod *corev1.Pod, udp bool) []policy.Port {
	var all []policy.Port
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
			if protocol == corev1.ProtocolTCP || udp && protocol == corev1.ProtocolUDP {
				all = append(all, policy.Port{Protocol: protocol, Number: int(port.ContainerPort)})
			}
		}
	}
	slices.SortFunc(all, comparePorts)
	return slices.Compact(all)
}

func comparePorts(a, b policy.Port) int {
	return cmp.Or(a.Number-b.Number, cmp.Compare(a.Protocol, b.Protocol))
}

// run searches where policies decide first: among the pods that they select, now or after.
func (s *search) run() {
	selected := func(direction policy.Direction, pod *corev1.Pod) bool {
		return s.model.Selected(policy.Before, direction, key(pod)) ||
			s.model.Selected(policy.After, direction, key(pod))
	}
	var targets []target
	for _, t := range s.targets {
		if selected(policy.Ingress, t.pod) {
			targets = append(targets, t)
		}
	}
	var sources []*corev1.Pod
	for _, pod := range s.sources {
		if selected(policy.Egress, pod) {
			sources = append(sources, pod)
		}
	}
	s.among(s.sources, targets)
	s.among(sources, s.targets)
	s.among(s.sources, s.targets)
}

// among searches the pairs of some pods, each target with another source in each turn.
func (s *search) among(sources []*corev1.Pod, targets []target) {
	verdicts := 0
	for turn := range sources {
		for i, to := range targets {
			if verdicts >= mostVerdicts || len(s.found[allowed]) >= s.most && len(s.found[denied]) >= s.most {
				return
			}
			from := sources[(turn+i)%len(sources)]
			pair := step.Pair{Node: from.Spec.NodeName, From: podOf(from), To: podOf(to.pod), Port: to.port.Number}
			if from == to.pod || s.seen[asked{pair, to.port.Protocol}] || from.Status.PodIP == to.pod.Status.PodIP {
				continue
			}
			s.seen[asked{pair, to.port.Protocol}] = true
			verdicts++
			now, after, known := Verdicts(s.model, key(from), key(to.pod), to.port)
			if !known {
				continue
			}
			kind := allowed
			switch pair.Denied = now; {
			case now != after:
				kind = changing
			case now:
				kind = denied
			}
			if len(s.found[kind]) < s.most {
				s.found[kind] = append(s.found[kind], Pair{pair, to.port.Protocol, after})
			}
		}
	}
}

// Verdicts say whether policies deny a connection to a port of a pod, now and after. They are not known where a policy
// may decide that the model leaves out.
func Verdicts(model *policy.Model, from, to string, at policy.Port) (denied, deniedAfter, known bool) {
	now, err := model.Verdict(policy.Before, from, to, at)
	if err != nil || now == policy.Depends {
		return false, false, false
	}
	after, err := model.Verdict(policy.After, from, to, at)
	if err != nil || after == policy.Depends {
		return false, false, false
	}
	return now == policy.Deny, after == policy.Deny, true
}

func podOf(pod *corev1.Pod) step.Pod {
	return step.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Address: pod.Status.PodIP}
}

// choose takes a third of those that change, and of the rest half of each kind, or more of one where the other has
// fewer; each time the pair whose namespaces, nodes and pods were chosen least.
func (s *search) choose(most int) []Pair {
	var counts [3]int
	counts[changing] = min(len(s.found[changing]), max((most+2)/3, most-len(s.found[allowed])-len(s.found[denied])))
	most -= counts[changing]
	counts[denied] = min(len(s.found[denied]), max(most/2, most-len(s.found[allowed])))
	counts[allowed] = min(len(s.found[allowed]), most-counts[denied])
	var chosen []Pair
	used := map[string]int{}
	uses := func(p Pair) []string {
		return []string{"from " + p.From.Namespace, "to " + p.To.Namespace, "on " + p.Node, "from " + p.From.String(),
			"to " + p.To.String(), p.From.Namespace + " to " + p.To.Namespace, "by " + string(p.Protocol)}
	}
	for kind, n := range counts {
		left := slices.Clone(s.found[kind])
		for range n {
			least, at := 0, -1
			for i, p := range left {
				sum := 0
				for _, use := range uses(p) {
					sum += used[use]
				}
				if at < 0 || sum < least {
					least, at = sum, i
				}
			}
			for _, use := range uses(left[at]) {
				used[use]++
			}
			chosen = append(chosen, left[at])
			left = slices.Delete(left, at, at+1)
		}
	}
	slices.SortFunc(chosen, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.String(), b.String()),
			cmp.Compare(a.Protocol, b.Protocol))
	})
	return chosen
}
