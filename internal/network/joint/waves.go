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

// Waves divides the nodes: a canary, then 2, 4, 8 and so on, or as given by counts (0: all remaining nodes).
// Control-plane nodes come last, in separate waves unless counts are given. The error is for the user.
func Waves(snapshot *cluster.Snapshot, counts []int) ([]Wave, error) {
	workers, control := inOrder(snapshot)
	if len(counts) > 0 {
		return counted(append(workers, control...), counts)
	}
	var waves []Wave
	for size := 1; len(workers)+len(control) > 0; size *= 2 {
		from := &workers
		if len(workers) == 0 {
			from = &control
		}
		n := min(size, len(*from))
		waves = append(waves, wave(len(waves)+1, (*from)[:n]))
		*from = (*from)[n:]
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

func inOrder(snapshot *cluster.Snapshot) (workers, control []string) {
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		if IsControlPlane(node) {
			control = append(control, node.Name)
			continue
		}
		workers = append(workers, node.Name)
	}
	slices.SortFunc(workers, natural)
	slices.SortFunc(control, natural)
	return workers, control
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
