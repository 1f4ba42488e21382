package guard

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/policy"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// mostVerdicts bounds the verdicts that each search asks the model of the policies for.
	mostVerdicts = 4000
	// spare is how many times as many pairs are found as are chosen, so that there is a choice.
	spare = 8
)

// pairs chooses connections between running pods that the policies allow, and as many that they deny. unevaluated are
// the policies that the model leaves out: no pair has a pod about which one of them may decide.
func pairs(r *kind.Request, p *kind.Plan, most int) (chosen []step.Pair, unevaluated []string, err error) {
	const without = "leave out --sample-policies"
	found := r.Drivers.Detect(r.Snapshot)
	if len(found) != 1 {
		return nil, nil, kind.Refuse(without, "%s were found that Theseus knows, so it cannot tell what policies allow",
			cluster.Count(len(found), "network"))
	}
	if found[0].Capabilities.Policy == cni.PolicyNone {
		return nil, nil, kind.Refuse(without, "%s enforces no policies, so there are none to sample", found[0].CNI)
	}
	for _, resource := range []string{"networkpolicies", "pods", "namespaces"} {
		if has, why := r.Snapshot.Has(resource); !has {
			return nil, nil, kind.Refuse("theseus rights look says which rights are missing",
				"policies cannot be sampled without the %s: %s", resource, why)
		}
	}
	s := newSearch(r.Snapshot, found[0], p.Cluster.Nodes, most*spare)
	for _, gap := range s.model.Unevaluated() {
		unevaluated = append(unevaluated, gap.Policy.String()+": "+gap.What)
	}
	if s.run(); len(s.found[0])+len(s.found[1]) == 0 && len(unevaluated) > 0 {
		hint, text := without, strings.Join(unevaluated, "; ")
		if strings.Contains(text, "(forbidden)") {
			hint = "theseus rights operate prints the rights that are missing; or " + without
		}
		return nil, nil, kind.Refuse(hint, "no pair of pods was found about which only policies decide that Theseus "+
			"evaluates (%s)", text)
	} else if len(s.found[0])+len(s.found[1]) == 0 {
		return nil, nil, kind.Refuse("a pair needs two Ready pods with addresses of their own, and a TCP port in the "+
			"ports of a container; or "+without, "no pair of pods was found whose policies could be sampled")
	}
	return s.choose(most), unevaluated, nil
}

// target is a port of a pod that a connection may go to.
type target struct {
	pod  *corev1.Pod
	port int
}

// search looks for pairs: found has the allowed ones and the denied ones.
type search struct {
	model   *policy.Model
	sources []*corev1.Pod
	targets []target
	most    int
	seen    map[step.Pair]bool
	found   [2][]step.Pair
}

func newSearch(snapshot *cluster.Snapshot, network *cni.Installation, nodes []string, most int) *search {
	profile := policy.ProfileOf(network)
	s := &search{model: policy.Build(snapshot, profile, profile), most: most, seen: map[step.Pair]bool{}}
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		if !sampled(pod) {
			continue
		}
		if slices.Contains(nodes, pod.Spec.NodeName) {
			s.sources = append(s.sources, pod)
		}
		for _, port := range tcpPorts(pod) {
			s.targets = append(s.targets, target{pod, port})
		}
	}
	// An order that has nothing to do with names mixes namespaces and nodes, and is the same every time.
	slices.SortFunc(s.sources, func(a, b *corev1.Pod) int { return byHash(a, b) })
	slices.SortFunc(s.targets, func(a, b target) int { return cmp.Or(byHash(a.pod, b.pod), a.port-b.port) })
	return s
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
		pod.Status.PodIP != "" && pod.UID != "" && pod.Labels[v1alpha1.LabelManaged] == "" &&
		cluster.PodReady(pod)
}

// tcpPorts are the TCP ports that a pod's containers declare, each once.
func tcpPorts(pod *corev1.Pod) []int {
	var all []int
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			if cmp.Or(port.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP {
				all = append(all, int(port.ContainerPort))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// run searches where policies decide first: among the pods that they select.
func (s *search) run() {
	var targets []target
	for _, t := range s.targets {
		if s.model.Selected(policy.Before, policy.Ingress, key(t.pod)) {
			targets = append(targets, t)
		}
	}
	var sources []*corev1.Pod
	for _, pod := range s.sources {
		if s.model.Selected(policy.Before, policy.Egress, key(pod)) {
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
			if verdicts >= mostVerdicts || len(s.found[0]) >= s.most && len(s.found[1]) >= s.most {
				return
			}
			from := sources[(turn+i)%len(sources)]
			pair := step.Pair{Node: from.Spec.NodeName, From: podOf(from), To: podOf(to.pod), Port: to.port}
			if from == to.pod || s.seen[pair] || from.Status.PodIP == to.pod.Status.PodIP {
				continue
			}
			s.seen[pair] = true
			verdicts++
			verdict, err := s.model.Verdict(policy.Before, key(from), key(to.pod),
				policy.Port{Protocol: corev1.ProtocolTCP, Number: to.port})
			if err != nil || verdict == policy.Depends {
				continue
			}
			kind := 0
			if pair.Denied = verdict == policy.Deny; pair.Denied {
				kind = 1
			}
			if len(s.found[kind]) < s.most {
				s.found[kind] = append(s.found[kind], pair)
			}
		}
	}
}

func podOf(pod *corev1.Pod) step.Pod {
	return step.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Address: pod.Status.PodIP}
}

// choose takes half of each kind, or more of one where the other has fewer, and each time the pair whose namespaces,
// nodes and pods were chosen least.
func (s *search) choose(most int) []step.Pair {
	denied := min(len(s.found[1]), max(most/2, most-len(s.found[0])))
	var chosen []step.Pair
	used := map[string]int{}
	uses := func(p step.Pair) []string {
		return []string{"from " + p.From.Namespace, "to " + p.To.Namespace, "on " + p.Node, "from " + p.From.String(),
			"to " + p.To.String(), p.From.Namespace + " to " + p.To.Namespace}
	}
	for kind, n := range []int{min(len(s.found[0]), most-denied), denied} {
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
	slices.SortFunc(chosen, func(a, b step.Pair) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.String(), b.String()))
	})
	return chosen
}
