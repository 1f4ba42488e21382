package joint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// Wave is a set of nodes that are changed together, followed by a gate.
type Wave struct {
	Name  string
	Nodes []string
}

// Waves divides the nodes: a canary, then 2, 4, 8 and so on, each of one failure domain, or as given by counts (0: all
// remaining nodes). Control-plane nodes come last, in separate waves unless counts are given. label names failure
// domains as in a change. The error is for the user.
func Waves(snapshot *cluster.Snapshot, counts []int, label string) ([]Wave, error) {
	nodes := inOrder(snapshot, Domains(snapshot, label))
	if len(counts) > 0 {
		var names []string
		for _, node := range nodes {
			names = append(names, node.name)
		}
		return counted(names, counts)
	}
	var waves []Wave
	for size := 1; len(nodes) > 0; size *= 2 {
		var names []string
		for len(nodes) > 0 && len(names) < size {
			next := nodes[0]
			names, nodes = append(names, next.name), nodes[1:]
			if len(nodes) > 0 && (nodes[0].control != next.control || nodes[0].domain != next.domain) {
				break
			}
		}
		waves = append(waves, wave(len(waves)+1, names))
	}
	return waves, nil
}

func counted(nodes []string, counts []int) ([]Wave, error) {
	var waves []Wave
	for _, count := range counts {
		if count < 0 {
			return nil, fmt.Errorf("a wave cannot have %d nodes", count)
		}
		if count == 0 {
			count = len(nodes)
		}
		if n := min(count, len(nodes)); n > 0 {
			waves = append(waves, wave(len(waves)+1, nodes[:n]))
			nodes = nodes[n:]
		}
	}
	if len(nodes) > 0 {
		return nil, fmt.Errorf("the waves leave out %s, such as %s", cluster.Count(len(nodes), "node"), nodes[0])
	}
	return waves, nil
}

func wave(n int, nodes []string) Wave {
	return Wave{Name: fmt.Sprintf("wave-%d", n), Nodes: slices.Clone(nodes)}
}

// placed is a node with what decides its place in the order.
type placed struct {
	name, domain string
	control      bool
}

// inOrder sorts nodes by their names: those of a failure domain together, the control plane last.
func inOrder(snapshot *cluster.Snapshot, domains map[string]string) []placed {
	var nodes []placed
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		nodes = append(nodes, placed{node.Name, domains[node.Name], IsControlPlane(node)})
	}
	slices.SortFunc(nodes, func(a, b placed) int {
		if a.control != b.control {
			if a.control {
				return 1
			}
			return -1
		}
		return cmp.Or(natural(a.domain, b.domain), natural(a.name, b.name))
	})
	return nodes
}

// IsControlPlane checks the labels that kubeadm, kops and others set.
func IsControlPlane(node *corev1.Node) bool {
	for _, key := range []string{"control-plane", "master", "controlplane"} {
		if _, ok := node.Labels["node-role.kubernetes.io/"+key]; ok {
			return true
		}
	}
	return false
}

// natural compares names so that node-2 sorts before node-10.
func natural(a, b string) int {
	for a != "" && b != "" {
		headA, restA := chunk(a)
		headB, restB := chunk(b)
		if headA != headB {
			if isDigit(headA[0]) && isDigit(headB[0]) {
				x, y := strings.TrimLeft(headA, "0"), strings.TrimLeft(headB, "0")
				return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(headA, headB))
			}
			return cmp.Compare(headA, headB)
		}
		a, b = restA, restB
	}
	return cmp.Compare(len(a), len(b))
}

// chunk splits off the longest prefix that has only digits or no digits.
func chunk(text string) (head, rest string) {
	end := 1
	for end < len(text) && isDigit(text[end]) == isDigit(text[0]) {
		end++
	}
	return text[:end], text[end:]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
