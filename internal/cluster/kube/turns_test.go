package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

func TestTurns(t *testing.T) {
	var all turns
	come := func(p *turn) bool {
		select {
		case <-p.come:
			return true
		default:
			return false
		}
	}
	web := func(i int) workload { return workload{kind: "Deployment", name: fmt.Sprint("web-", i)} }
	db := workload{kind: "StatefulSet", name: "db"}
	var begun []*turn
	for i := range step.SideBySide {
		begun = append(begun, all.queue(web(i)))
	}
	again, other, first, second := all.queue(web(0)), all.queue(web(9)), all.queue(db), all.queue(db)
	for i, p := range begun {
		if !come(p) {
			t.Errorf("workload %d has to wait", i)
		}
	}
	for name, p := range map[string]*turn{"a workload that moves": again, "one too many": other,
		"a StatefulSet that is one too many": first} {
		if come(p) {
			t.Errorf("%s moves", name)
		}
	}
	begun[3].give()
	if !come(first) || come(second) || come(other) {
		t.Error("the slowest is not next")
	}
	begun[0].give()
	if !come(again) || come(other) {
		t.Error("not in the order of the queue")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := other.wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("waited until %v", err)
	}
	for _, p := range []*turn{first, again, begun[1], begun[2], begun[4]} {
		p.give()
	}
	if !come(second) {
		t.Error("the second of the StatefulSet does not follow the first")
	}
	second.give()
	if len(all.waiting) != 0 || len(all.moving) != 0 {
		t.Errorf("left: %d wait, %v move", len(all.waiting), all.moving)
	}
}

// TestTurnsOfManyNodes: with more nodes than step.SideBySide, as many pods are missing as there are nodes.
func TestTurnsOfManyNodes(t *testing.T) {
	var all turns
	const nodes = step.SideBySide + 3
	var leave []func()
	for range nodes {
		leave = append(leave, all.join())
	}
	moving := func() (n int) { all.lock.Lock(); defer all.lock.Unlock(); return len(all.moving) }
	var places []*turn
	for i := range 2 * nodes {
		places = append(places, all.queue(workload{kind: "Deployment", name: fmt.Sprint("web-", i)}))
	}
	if got := moving(); got != nodes {
		t.Errorf("%d pods are missing with %d nodes", got, nodes)
	}
	for _, left := range leave[1:] {
		left()
	}
	for _, place := range places[:nodes] {
		place.give()
	}
	if got := moving(); got != step.SideBySide {
		t.Errorf("%d pods are missing with one node", got)
	}
}

func TestSlowestFirst(t *testing.T) {
	groups := map[workload]int{{kind: "Deployment", name: "a"}: 1, {kind: "StatefulSet", name: "z"}: 1,
		{kind: "DaemonSet", name: "d"}: 1}
	var kinds []string
	for _, w := range inOrder(groups) {
		kinds = append(kinds, w.kind)
	}
	if !slices.Equal(kinds, []string{"DaemonSet", "StatefulSet", "Deployment"}) {
		t.Errorf("%v", kinds)
	}
}
