package kube

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// speaker is a node that speaks BGP; one with the label rr is a route reflector.
func speaker(name, address string, labels map[string]string) runtime.Object {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels,
		Annotations: map[string]string{"projectcalico.org/IPv4Address": address + "/24"}}}
	if _, reflects := labels["rr"]; reflects {
		node.Annotations["projectcalico.org/RouteReflectorClusterID"] = "244.0.0.1"
	}
	return node
}

const reflected = `{apiVersion: crd.projectcalico.org/v1, kind: BGPPeer, metadata: {name: p}, spec: {nodeSelector: "!has(rr)", peerSelector: has(rr)}}`
const meshOff = `{apiVersion: crd.projectcalico.org/v1, kind: BGPConfiguration, metadata: {name: default}, spec: {nodeToNodeMeshEnabled: false}}`
const plainPool = `{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: p}, spec: {cidr: 10.1.0.0/16, ipipMode: Never}}`
const blockOfRR = `{apiVersion: crd.projectcalico.org/v1, kind: BlockAffinity, metadata: {name: rr}, spec: {node: rr, cidr: 10.1.0.0/26, state: confirmed, deleted: "false"}}`

// TestGateHoldsSessions: paths that lose nothing do not pass a gate without the sessions that the plan demands.
func TestGateHoldsSessions(t *testing.T) {
	whole := func() *v1alpha1.BGP { return &v1alpha1.BGP{Up: []string{"172.16.0.9"}, Routes: 1} }
	for _, test := range []struct {
		name   string
		said   func(n int) *v1alpha1.BGP // in the n-th sleep
		labels map[string]string         // of the reflector
		lost   bool
		pass   bool
		reason string
		within time.Duration
	}{
		{name: "whole", said: func(int) *v1alpha1.BGP { return whole() }, pass: true, within: 5 * time.Second},
		{name: "comes back", said: func(n int) *v1alpha1.BGP {
			if n < 40 {
				return &v1alpha1.BGP{Up: []string{}}
			}
			return whole()
		}, pass: true, within: 30 * time.Second},
		{name: "nobody", said: func(int) *v1alpha1.BGP { return &v1alpha1.BGP{Up: []string{}} },
			reason: "BGP sessions or routes are missing on 1 node: a has no session that is up, and 0 routes from BIRD",
			within: 100 * time.Second},
		{name: "mute", said: func(int) *v1alpha1.BGP { return &v1alpha1.BGP{Down: "bird.ctl: i/o timeout", Routes: 1} },
			reason: "a says: bird.ctl: i/o timeout", within: 100 * time.Second},
		{name: "an agent that knows nothing of it", said: func(int) *v1alpha1.BGP { return nil },
			reason: "BIRD never ran here", within: 100 * time.Second},
		{name: "the wrong neighbour", said: func(int) *v1alpha1.BGP {
			return &v1alpha1.BGP{Up: []string{"192.0.2.1"}, Routes: 1}
		},
			reason: "a has no session with rr", within: 100 * time.Second},
		{name: "no route in the kernel", said: func(int) *v1alpha1.BGP {
			return &v1alpha1.BGP{Up: []string{"172.16.0.9"}}
		},
			reason: "a has 0 routes from BIRD of at least 1", within: 100 * time.Second},
		{name: "a label goes", said: func(int) *v1alpha1.BGP { return whole() }, labels: map[string]string{},
			reason: "2 of 2 pairs of nodes have no route to each other (0 when the plan was made)",
			within: 5 * time.Second},
		{name: "a label goes, and probes with it", said: func(int) *v1alpha1.BGP {
			return &v1alpha1.BGP{Up: []string{}}
		}, labels: map[string]string{}, lost: true,
			reason: "2 of 2 pairs of nodes have no route", within: 5 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			labels := map[string]string{"rr": ""}
			if test.labels != nil {
				labels = test.labels
			}
			w := newWorld(t, []runtime.Object{speaker("a", "172.16.0.1", nil), speaker("rr", "172.16.0.9", labels)},
				reflected, meshOff, plainPool, blockOfRR)
			w.onePath()
			say := func(n int) {
				sent := int64(5*n + 5)
				answered := sent
				if test.lost && n > 0 {
					answered--
				}
				w.report(int64(n+1), sent, answered, w.now)
				w.speaks(test.said(n))
			}
			say(0)
			w.slept = say
			begun := w.Now()
			verdict, err := (&Gate{Actor: w.Actor, Since: []v1alpha1.ProbeReport{}}).Ask(context.Background(),
				step.Gate{Title: "t", Bake: step.Duration(2 * time.Second), Sessions: &step.Sessions{}}, goOn)
			took := w.Now().Sub(begun)
			if err != nil || verdict.Pass != test.pass || !strings.Contains(verdict.Reason, test.reason) ||
				took > test.within {
				t.Errorf("after %s: %+v, %v", took, verdict, err)
			}
		})
	}
}

// speaks adds to the report of a what its BIRD says.
func (w *world) speaks(said *v1alpha1.BGP) {
	reports, err := w.readReports(context.Background(), 0)
	if err != nil || len(reports) != 1 {
		w.t.Fatalf("%d reports, %v", len(reports), err)
	}
	reports[0].Status.BGP = said
	w.put("ProbeReport", &reports[0])
}
