package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// probed is a cluster of two nodes with an old probe pod on each.
func probed(t *testing.T, more ...runtime.Object) *world {
	objects := append(more, probePod("old", "a", "10.244.1.2"), probePod("old", "b", "10.244.2.2"))
	for name, address := range map[string]string{"a": "198.18.0.11", "b": "198.18.0.12"} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}})
	}
	return newWorld(t, objects)
}

func probePod(network, node, address string, change ...func(*corev1.Pod)) *corev1.Pod {
	return pod(v1alpha1.Namespace, "theseus-probe-"+network+"-"+node, node, address,
		append(change, label(v1alpha1.LabelProbe, network))...)
}

// put stores an object of Theseus' own as it is.
func (w *world) put(kind string, value any) {
	content := map[string]any{}
	if err := json.Unmarshal(jsonOf(value), &content); err != nil {
		w.t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion(v1alpha1.APIVersion)
	object.SetKind(kind)
	object.SetNamespace(v1alpha1.Namespace)
	if _, err := w.apply(context.Background(), object, false); err != nil {
		w.t.Fatal(err)
	}
}

// report plays the sources: every path of the plan that is stored has sent so many probes and had so many
// answers. It bypasses the world's lock, and so may run while something sleeps.
func (w *world) report(seq, sent, answered int64, at time.Time) {
	plans, err := w.probePlans(context.Background())
	if err != nil || len(plans) == 0 {
		w.t.Fatalf("no plan: %v", err)
	}
	for _, plan := range plans {
		report := &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: plan.Name},
			Status: v1alpha1.ProbeReportStatus{Generation: plan.Spec.Generation, Seq: seq, At: at}}
		for _, path := range plan.Spec.Paths {
			report.Status.Paths = append(report.Status.Paths,
				v1alpha1.PathResult{ID: path.ID, Sent: sent, Answered: answered,
					Since: time.Unix(1_800_000_000, 0).UTC(), Last: at})
		}
		w.put("ProbeReport", report)
	}
}

// reports plays the sources: the paths that answer were answered once.
func (w *world) reports(answers func(v1alpha1.Path) bool) {
	plans, err := w.probePlans(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, plan := range plans {
		report := &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: plan.Name},
			Status: v1alpha1.ProbeReportStatus{Generation: plan.Spec.Generation}}
		for _, one := range plan.Spec.Paths {
			result := v1alpha1.PathResult{ID: one.ID}
			if answers(one) {
				result.Sent, result.Answered = 1, 1
			}
			report.Status.Paths = append(report.Status.Paths, result)
		}
		w.put("ProbeReport", report)
	}
}

// setPathsOf sets the paths, and returns the generation of each node's plan and the number of all paths.
func (w *world) setPathsOf(set step.PathSet) (generations map[string]int64, paths int, err error) {
	w.slept = func(int) { w.report(1, 1, 1, w.now) }
	if _, err := w.do(step.Action{ID: "p", Do: step.Probe{Paths: set}}); err != nil {
		return nil, 0, err
	}
	plans, err := w.probePlans(context.Background())
	generations = map[string]int64{}
	for _, plan := range plans {
		generations[plan.Name] = plan.Spec.Generation
		for _, one := range plan.Spec.Paths {
			if one.Source.Node != plan.Name {
				w.t.Errorf("%s is in the plan of %s", one.ID, plan.Name)
			}
		}
	}
	return generations, len(pathsOf(plans)), err
}

func TestSetPaths(t *testing.T) {
	w := probed(t)
	every := step.PathSet{Old: []string{step.EveryNode}, New: []string{step.EveryNode}}
	first, paths, err := w.setPathsOf(every)
	if err != nil || first["a"] != 1 || first["b"] != 1 || paths == 0 {
		t.Fatalf("generations %v with %d paths, %v", first, paths, err)
	}
	if again, _, err := w.setPathsOf(every); err != nil || !maps.Equal(first, again) {
		t.Errorf("the same paths: generations %v, %v", again, err)
	}
	if err := w.typed.Tracker().Add(probePod("new", "a", "10.96.1.2")); err != nil {
		t.Fatal(err)
	}
	second, more, err := w.setPathsOf(every)
	if err != nil || second["a"] != 2 || more <= paths {
		t.Errorf("with a new pod: generations %v with %d paths after %d, %v", second, more, paths, err)
	}
	every.WithoutNew = []string{"a"}
	if third, back, err := w.setPathsOf(every); err != nil || third["a"] != 3 || back != paths {
		t.Errorf("without it: generations %v with %d paths, %v", third, back, err)
	}
	every.WithoutNew, every.Leaving = nil, []string{"b"}
	left, few, err := w.setPathsOf(every)
	if err != nil || few == 0 || few >= paths {
		t.Errorf("with b about to go: generations %v with %d paths, %v", left, few, err)
	}
	plans, err := w.probePlans(context.Background())
	for _, one := range pathsOf(plans) {
		if one.Source.Node == "b" || one.Target.Node == "b" || one.Target.Node == "" && one.Target.Network == "old" {
			t.Errorf("with b about to go, %s is measured (%v)", one.ID, err)
		}
	}
	every.Leaving = []string{"a"} // the one with a new probe pod
	if _, _, err := w.setPathsOf(every); err != nil {
		t.Fatal(err)
	}
	plans, err = w.probePlans(context.Background())
	for _, one := range pathsOf(plans) {
		if one.Target.Node == "" && one.Target.Network == "new" ||
			one.Class == "node-port" && one.Target.Network == "new" {
			t.Errorf("with a about to go, %s is measured (%v)", one.ID, err)
		}
	}
	if last, none, err := w.setPathsOf(step.PathSet{}); err != nil || last["a"] < 5 || none != 0 {
		t.Errorf("no paths: generations %v with %d paths, %v", last, none, err)
	}
}

func TestSetPathsWaitsForEveryPath(t *testing.T) {
	w := probed(t)
	set := step.PathSet{Old: []string{"a", "b"}}
	ctx, cancel := context.WithCancel(context.Background())
	w.slept = func(n int) {
		switch n {
		case 3:
			w.report(1, 0, 0, w.now) // all report, none has had an answer
		case 5:
			cancel()
		}
	}
	_, err := w.Do(ctx, step.Action{Do: step.Probe{Paths: set}}, nil)
	wantError(t, err, "paths have not answered yet, such as")
}

// TestSetPathsWaitsForEndpoints: nothing is measured before the Service leads to every probe pod, as it changes when
// one comes.
func TestSetPathsWaitsForEndpoints(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "theseus-probe-old"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.97.0.9"}}
	leads := func(ready ...bool) *discoveryv1.EndpointSlice {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace,
			Name: "theseus-probe-old-x", Labels: map[string]string{discoveryv1.LabelServiceName: "theseus-probe-old"}}}
		for i := range ready {
			slice.Endpoints = append(slice.Endpoints,
				discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.%d.2", i+1)},
					Conditions: discoveryv1.EndpointConditions{Ready: &ready[i]}})
		}
		return slice
	}
	w := probed(t, service, leads(true))
	set := step.PathSet{Old: []string{step.EveryNode}}
	w.slept = func(n int) {
		plans, err := w.probePlans(context.Background())
		if err != nil || n <= 4 && len(plans) > 0 {
			t.Errorf("%d plans while the Service does not lead to all (%v)", len(plans), err)
		}
		switch n {
		case 2:
			err = w.typed.Tracker().Update(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
				leads(true, false), v1alpha1.Namespace)
		case 4:
			err = w.typed.Tracker().Update(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
				leads(true, true), v1alpha1.Namespace)
		case 5:
			w.report(1, 1, 1, w.now)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := w.do(step.Action{ID: "p", Do: step.Probe{Paths: set}}); err != nil {
		t.Fatal(err)
	}
	if want := "waiting: the probe pod of b is not an endpoint of the Service theseus-probe-old yet"; len(
		w.notes) == 0 || w.notes[0] != want {
		t.Errorf("%q", w.notes)
	}
}

// TestSetPathsLeavesOut: optional paths that do not answer once all others do are left out and named, after a while.
// So are those to a port of a node on which nothing answers. Any other path is waited for. Only guards leave paths out.
func TestSetPathsLeavesOut(t *testing.T) {
	for name, test := range map[string]struct {
		silent string
		waits  string // the path that is waited for
		want   []path.Silence
	}{
		"optional": {"/host-port/", "", []path.Silence{{Class: path.ClassHostPort, Paths: 1, Of: 2,
			Example: "a/host>b/host-port/old/tcp-new", Shut: "TCP port 7202 of b"}}},
		"a firewall": {">b/host/udp", "", []path.Silence{{Class: path.ClassPodHost, Paths: 1, Of: 4,
			Example: "a/old>b/host/udp", Shut: "UDP port 7101 of b"}}},
		"a firewall, not a guard": {">b/host/udp", "a/old>b/host/udp", nil},
		"any other":               {"/udp", "a/", nil},
		"a pod":                   {"a/old>b/old/udp", "a/old>b/old/udp", nil},
		"none":                    {"none", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := probed(t)
			w.Measured = Measured{Local: !strings.Contains(name, "not a guard"), HostPorts: true}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			begun, late := w.now, time.Time{}
			w.slept = func(int) {
				w.reports(func(one v1alpha1.Path) bool {
					return one.Source.Node == "b" || !strings.Contains(one.ID, test.silent)
				})
				if late = w.now; late.Sub(begun) > 5*time.Minute {
					cancel()
				}
			}
			data, err := w.Do(ctx, step.Action{ID: "p",
				Do: step.Probe{Paths: step.PathSet{Old: []string{step.EveryNode}}}}, nil)
			if test.waits != "" {
				wantError(t, err, "have not answered yet, such as "+test.waits)
				return
			}
			var got Paths
			if err != nil || json.Unmarshal(data, &got) != nil || !slices.Equal(got.Silent, test.want) {
				t.Fatalf("%s, %v", data, err)
			}
			plans, err := w.probePlans(context.Background())
			if all := pathsOf(plans); err != nil || len(all) != got.Paths ||
				slices.ContainsFunc(all, func(one v1alpha1.Path) bool {
					return test.want != nil && one.ID == test.want[0].Example
				}) {
				t.Errorf("%d paths, %+v, %v", len(all), got, err)
			}
			if waited := late.Sub(begun); (waited >= grace) != (test.want != nil) {
				t.Errorf("it waited for %s", waited)
			}
			for _, one := range test.want {
				if !slices.Contains(w.notes, "not measured: "+one.String()) {
					t.Errorf("%q", w.notes)
				}
			}
		})
	}
}

func TestSetPathsWithoutItsPod(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){"not ready": unready, "on its way out": ending} {
		t.Run(name, func(t *testing.T) {
			w := probed(t, probePod("new", "b", "10.96.2.2", change))
			_, _, err := w.setPathsOf(step.PathSet{Old: []string{"a"}, New: []string{"b"}})
			wantError(t, err, "node b has no ready probe pod on the new network")
			if plans, _ := w.probePlans(context.Background()); len(plans) > 0 {
				t.Error("a plan was made all the same")
			}
		})
	}
}

// TestDeniedNeedNoAnswer: a source that reports on its plan is enough for paths that policy shuts; whether a probe got
// through is known only later, and every gate waits for that.
func TestDeniedNeedNoAnswer(t *testing.T) {
	plans := []v1alpha1.ProbePlan{planOf("a", 4, []v1alpha1.Path{{ID: "open"}, {ID: "shut", Denied: true}},
		reports{})}
	for _, test := range []struct {
		generation int64
		results    []v1alpha1.PathResult
		want       string
	}{
		{4, []v1alpha1.PathResult{{ID: "open", Sent: 1}, {ID: "shut"}}, ""},
		{4, []v1alpha1.PathResult{{ID: "open"}, {ID: "shut"}}, "1 of 2 paths have not answered yet, such as open"},
		{3, []v1alpha1.PathResult{{ID: "open", Sent: 1}, {ID: "shut", Sent: 1}},
			"2 of 2 paths have not answered yet, such as shut; a reports on plan 3 instead of 4"},
	} {
		reports := []v1alpha1.ProbeReport{{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: v1alpha1.ProbeReportStatus{Generation: test.generation, Paths: test.results}}}
		if got := unestablished(plans, reports, true); got != test.want {
			t.Errorf("%q, not %q", got, test.want)
		}
	}
}

// TestStopped: who is to measure nothing any more must say so before the targets may go, unless nobody waits for
// it any longer.
func TestStopped(t *testing.T) {
	plans := []v1alpha1.ProbePlan{planOf("a", 4, nil, reports{})}
	report := func(generation int64) []v1alpha1.ProbeReport {
		return []v1alpha1.ProbeReport{{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: v1alpha1.ProbeReportStatus{Generation: generation}}}
	}
	for name, test := range map[string]struct {
		reports  []v1alpha1.ProbeReport
		stopping bool
		want     string
	}{
		"stopped":         {report(4), true, ""},
		"still at it":     {report(3), true, "a has not stopped measuring"},
		"never measured":  {nil, true, ""},
		"waited for long": {report(3), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unestablished(plans, test.reports, test.stopping); got != test.want {
				t.Errorf("%q, not %q", got, test.want)
			}
		})
	}
}

// TestKeepPace: a path that only changes its ring goes on as it was measured; one that changes otherwise does not.
func TestKeepPace(t *testing.T) {
	path := func(id, address string, interval int) v1alpha1.Path {
		return v1alpha1.Path{ID: id, Target: v1alpha1.Endpoint{Address: address}, IntervalMillis: interval}
	}
	before := []v1alpha1.Path{path("same", "1", 10), path("ring", "1", 10), path("moved", "1", 10)}
	got := keepPace([]v1alpha1.Path{path("same", "1", 10), path("ring", "1", 50), path("moved", "2", 50),
		path("new", "1", 50)}, before)
	want := []v1alpha1.Path{path("same", "1", 10), path("ring", "1", 10), path("moved", "2", 50), path("new", "1", 50)}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
