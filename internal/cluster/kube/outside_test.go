package kube

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

func apiServerAt(addresses ...string) *discoveryv1.EndpointSlice {
	port := int32(6443)
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes",
			Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}}, Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
}

// outsideOf is where paths to the outside lead, by their protocol.
func (w *world) outsideOf() (targets []string) {
	plans, err := w.probePlans(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, one := range pathsOf(plans) {
		if one.Class == path.ClassOutside {
			targets = append(targets, string(one.Protocol)+" "+one.Target.Address)
		}
	}
	slices.Sort(targets)
	return slices.Compact(targets)
}

// TestOutsidePaths: without the user's responders, paths leave the cluster towards other nodes and the API server; with
// them, to those.
func TestOutsidePaths(t *testing.T) {
	every := step.PathSet{Old: []string{step.EveryNode}}
	w := probed(t, apiServerAt("198.18.0.21", "198.18.0.20"))
	w.Measured.NodesOutside = map[string]bool{path.Old: true}
	if _, _, err := w.setPathsOf(every); err != nil {
		t.Fatal(err)
	}
	nodes := []string{"tcp 198.18.0.11:7102", "tcp 198.18.0.12:7102", "tcp-new 198.18.0.11:7102",
		"tcp-new 198.18.0.12:7102", "udp-new 198.18.0.11:7101", "udp-new 198.18.0.12:7101"}
	want := slices.Sorted(slices.Values(append(slices.Clone(nodes), "tcp-reach 198.18.0.20:6443")))
	if got := w.outsideOf(); !sameTargets(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	responder, err := path.ParseResponder("tcp:127.0.0.1:443")
	if err != nil {
		t.Fatal(err)
	}
	w.Measured.Outside, w.Measured.NodesOutside = []path.Responder{responder}, nil
	if _, _, err := w.setPathsOf(every); err != nil {
		t.Fatal(err)
	}
	if got := w.outsideOf(); !slices.Equal(got, []string{"tcp-connect 127.0.0.1:443"}) {
		t.Errorf("%q", got)
	}
}

// sameTargets leaves the numbers of Theseus' own ports to others.
func sameTargets(got, want []string) bool {
	host := func(target string) string { return target[:strings.LastIndexByte(target, ':')] }
	return slices.EqualFunc(got, want, func(a, b string) bool { return host(a) == host(b) })
}

// TestGateOfOutside: a gate fails on what is lost towards the outside alone. Before those paths were measured it
// passed.
func TestGateOfOutside(t *testing.T) {
	w := probed(t, apiServerAt("198.18.0.20"))
	if _, _, err := w.setPathsOf(step.PathSet{Old: []string{step.EveryNode}}); err != nil {
		t.Fatal(err)
	}
	plans, err := w.probePlans(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	answers := func(seq, lost int64) {
		for _, plan := range plans {
			report := &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: plan.Name},
				Status: v1alpha1.ProbeReportStatus{Generation: plan.Spec.Generation, Seq: seq, At: w.now}}
			for _, one := range plan.Spec.Paths {
				result := v1alpha1.PathResult{ID: one.ID, Sent: 5 * seq, Answered: 5 * seq,
					Since: time.Unix(1_800_000_000, 0).UTC(), Last: w.now}
				if one.Class == path.ClassOutside {
					result.Answered -= lost
				}
				report.Status.Paths = append(report.Status.Paths, result)
			}
			w.put("ProbeReport", report)
		}
	}
	for lost, pass := range map[int64]bool{0: true, 1: false} {
		answers(1, 0)
		w.slept = func(n int) { answers(int64(n+1), lost) }
		gate := &Gate{Actor: w.Actor, Since: []v1alpha1.ProbeReport{}}
		verdict, err := gate.Ask(context.Background(),
			step.Gate{Title: "t", Bake: step.Duration(2 * time.Second)}, goOn)
		if err != nil || verdict.Pass != pass || !pass && !strings.Contains(verdict.Reason, "outside/api-server") {
			t.Errorf("%d lost: %+v, %v", lost, verdict, err)
		}
	}
}
