package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/selector/nodes"
)

// room is the set of nodes that can run some pods, by their tolerations and selectors, and the sum of its free
// resources.
type room struct {
	nodes *big.Int // bit i is the i-th node of the cluster
	count int
	all   bool // whether it contains every node that is not cordoned
	free  amount
}

// within reports whether each of a room's nodes is one of another's.
func (r *room) within(other *room) bool {
	return r == other || r.count < other.count && new(big.Int).AndNot(r.nodes, other.nodes).Sign() == 0
}

// demand is what pods request, by their room.
type demand map[*room]amount

func (d demand) add(r *room, n amount) {
	sum := d[r]
	sum.add(n)
	d[r] = sum
}

// within returns the requests of the pods that fit only in r.
func (d demand) within(r *room) amount {
	var sum amount
	for other, n := range d {
		if other.within(r) {
			sum.add(n)
		}
	}
	return sum
}

// rooms are the rooms of a cluster's pods, each once.
type rooms struct {
	open  []*corev1.Node // nil for a cordoned node
	free  []amount
	taken map[string]*room // by a pod's tolerations and selectors
	made  map[string]*room // by their nodes
}

// newRooms starts from the resources in use on each node.
func newRooms(all []corev1.Node, used map[string]amount) *rooms {
	r := &rooms{open: make([]*corev1.Node, len(all)), free: make([]amount, len(all)),
		taken: map[string]*room{}, made: map[string]*room{}}
	for i := range all {
		if all[i].Spec.Unschedulable {
			continue
		}
		r.open[i], r.free[i] = &all[i], of(all[i].Status.Allocatable)
		for unit, n := range used[all[i].Name] {
			r.free[i][unit] = max(r.free[i][unit]-n, 0)
		}
	}
	return r
}

// of returns the room of a pod.
func (r *rooms) of(spec *corev1.PodSpec) *room {
	choice := struct {
		Selector    map[string]string
		Affinity    *corev1.NodeSelector
		Tolerations []corev1.Toleration
	}{Selector: spec.NodeSelector, Tolerations: spec.Tolerations}
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil {
		choice.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	key, _ := json.Marshal(choice) // these types always can
	if known := r.taken[string(key)]; known != nil {
		return known
	}
	set, selector := new(big.Int), nodes.OfPod(spec, "")
	for i, node := range r.open {
		if node != nil && selector.Picks(nil, node) && nodes.Untolerated(node, spec.Tolerations) == nil {
			set.SetBit(set, i, 1)
		}
	}
	r.taken[string(key)] = r.make(set)
	return r.taken[string(key)]
}

// make returns the room of a set of nodes.
func (r *rooms) make(set *big.Int) *room {
	key := string(set.Bytes())
	if known := r.made[key]; known != nil {
		return known
	}
	made := &room{nodes: set, all: true}
	for i, node := range r.open {
		switch {
		case set.Bit(i) == 1:
			made.count++
			made.free.add(r.free[i])
		case node != nil:
			made.all = false
		}
	}
	r.made[key] = made
	return made
}

// shortage is a room that has less free than is requested by the pods that fit nowhere else.
type shortage struct {
	room         *room
	unit         int
	wanted, pods int64
	// some is true if other pods have room elsewhere.
	some bool
}

// short returns the smallest room that is too small, among the rooms of pods and their union; nil if all suffice. Pods
// whose rooms overlap may still not fit.
func (r *rooms) short(d demand) *shortage {
	union, total := new(big.Int), amount{}
	for room, n := range d {
		union.Or(union, room.nodes)
		total.add(n)
	}
	candidates := append(slices.Collect(maps.Keys(d)), r.make(union))
	slices.SortFunc(candidates, func(a, b *room) int {
		return cmp.Or(cmp.Compare(a.count, b.count), a.nodes.Cmp(b.nodes))
	})
	for _, room := range candidates {
		wanted := d.within(room)
		if unit, over := wanted.over(room.free); over {
			return &shortage{room, unit, wanted[unit], wanted[2], wanted[2] < total[2]}
		}
	}
	return nil
}

// who names the pods that do not fit, out of some.
func (s *shortage) who(pods string) string {
	if s.some {
		return fmt.Sprintf("%d of %s", s.pods, pods)
	}
	return pods
}

// have returns the free resources for these pods, without the word free.
func (s *shortage) have() string {
	free := show(s.unit, s.room.free[s.unit])
	switch {
	case s.room.all:
		return "all nodes together have " + free
	case s.room.count == 1:
		return "the one node that can run them has " + free
	}
	return fmt.Sprintf("the %s that can run them have %s", cluster.Count(s.room.count, "node"), free)
}

func (s *shortage) evidence(more map[string]any) map[string]any {
	maps.Copy(more, map[string]any{"of": units[s.unit], "requested": s.wanted, "free": s.room.free[s.unit]})
	if !s.room.all {
		more["pods"], more["taking"] = s.pods, s.room.count
	}
	return more
}
