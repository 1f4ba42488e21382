package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestHeld: a hold is in force when it denies what is tried, and only then; the pods stay.
func TestHeld(t *testing.T) {
	policy := step.Ref{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy", Name: "mine"}
	held := step.Condition{Is: step.Held{Ref: policy, Namespace: "ns", Selector: "app=x"}}
	waiting := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	marked := func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationReplace: "true"} }
	pods := schema.GroupResource{Resource: "pods"}
	app := label("app", "x")
	for _, test := range []struct {
		name    string
		pods    []runtime.Object
		answer  error
		missing string
		failure string
	}{
		{"denied", []runtime.Object{pod("ns", "p", "a", "", app)},
			apierrors.NewForbidden(pods, "p",
				errors.New("ValidatingAdmissionPolicy 'mine' with binding 'mine' denied request: no")), "", ""},
		{"let through", []runtime.Object{pod("ns", "p", "a", "", app)}, nil,
			"is not in force yet: pod p could be deleted", ""},
		{"no right to delete", []runtime.Object{pod("ns", "p", "a", "", app)},
			apierrors.NewForbidden(pods, "p", errors.New("you may not")), "", "you may not"},
		{"no pod to try it on", []runtime.Object{pod("ns", "p", "a", "", app, marked),
			pod("ns", "q", "a", "", app, ending), pod("ns", "r", "a", "", app, waiting), pod("ns", "s", "a", "")},
			nil, "could be tried", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, test.pods)
			w.typed.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if options := action.(clienttesting.DeleteAction).GetDeleteOptions(); !slices.Equal(options.DryRun,
					[]string{metav1.DryRunAll}) {
					t.Errorf("it is no trial: %+v", options)
				}
				return true, nil, test.answer
			})
			holds, missing, err := w.Holds(t.Context(), held)
			switch {
			case test.failure != "":
				if err == nil || !strings.Contains(err.Error(), test.failure) {
					t.Errorf("%v %q %v", holds, missing, err)
				}
			case err != nil || holds != (test.missing == "") || !strings.Contains(missing, test.missing):
				t.Errorf("%v %q %v", holds, missing, err)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: c, namespace: ns}, status: {conditions: [{type: Established, status: "%"}]}}`
	ref := func(apiVersion, kind string) *step.Ref {
		return &step.Ref{APIVersion: apiVersion, Kind: kind, Namespace: "ns", Name: "c"}
	}
	node := func(status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
	}
	noNetwork := node(corev1.ConditionFalse)
	noNetwork.Status.Conditions[0].Reason, noNetwork.Status.Conditions[0].Message = "KubeletNotReady",
		"cni plugin not initialized"
	app := label("app", "x")
	podReady := step.Condition{Is: step.PodReady{Node: "a", Namespace: "ns", Selector: "app=x"}}
	podGone := step.Condition{Is: step.PodGone{Node: "a", Namespace: "ns", Selector: "app=x"}}
	noPods := step.Condition{Is: step.NoPods{CIDRs: []string{"10.244.0.0/16"}}}
	inRange := step.Condition{Is: step.PodReady{Node: "a", Namespace: "ns", Selector: "app=x",
		CIDRs: []string{"10.244.0.0/16"}}}
	const made = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: c, namespace: ns}, spec: {selector: {a: b}, volumes: [{name: v}, {name: w, hostPath: {path: /x}}]}}`
	has := func(fields string) step.Condition {
		return step.Condition{Is: step.Has{Ref: *ref("apps/v1", "DaemonSet"), Fields: json.RawMessage(fields)}}
	}
	daemons := step.Condition{Is: step.NoPods{CIDRs: []string{"10.244.0.0/16"}, LeaveDaemons: true}}
	whole := step.Condition{Is: step.Reports{Ref: *ref("apps/v1", "DaemonSet"),
		Status: map[string]string{"Available": "True", "Degraded": "False"}}}
	status := func(available, degraded string) string {
		return fmt.Sprintf(
			`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: c, namespace: ns}, status: {conditions: [
			{type: Available, status: %q, reason: Slow, message: 2 of 3 nodes, observedGeneration: 2}, {type: Degraded, status: %q, reason: ResourceReadError}]}}`, available, degraded)
	}
	for _, test := range []struct {
		name      string
		condition step.Condition
		typed     []runtime.Object
		documents []string
		missing   string // empty: it holds
	}{
		{"gone", step.Condition{Is: step.Gone{Ref: configRef}}, nil, nil, ""},
		{"not gone", step.Condition{Is: step.Gone{Ref: configRef}}, nil, []string{configMap},
			"ConfigMap/ns/c still exists"},
		{"established", step.Condition{Is: step.Established{
			Ref: *ref("apiextensions.k8s.io/v1", "CustomResourceDefinition")}}, nil,
			[]string{strings.Replace(crd, "%", "True", 1)}, ""},
		{"not established", step.Condition{Is: step.Established{
			Ref: *ref("apiextensions.k8s.io/v1", "CustomResourceDefinition")}}, nil,
			[]string{strings.Replace(crd, "%", "False", 1)}, "CustomResourceDefinition/ns/c is not established"},
		{"no definition", step.Condition{Is: step.Established{
			Ref: *ref("apiextensions.k8s.io/v1", "CustomResourceDefinition")}}, nil, nil,
			"CustomResourceDefinition/ns/c does not exist"},
		{"rolled: no object", step.Condition{Is: step.Rolled{Ref: *ref("apps/v1", "DaemonSet")}}, nil, nil,
			"DaemonSet/ns/c does not exist"},
		{"renders", step.Condition{Is: step.Renders{Ref: *ref("apps/v1", "DaemonSet"), Version: "v2"}}, nil,
			[]string{
				`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: c, namespace: ns}, spec: {template: {spec: {containers: [{image: "a:v1"}, {image: "b:v2@sha256:c"}]}}}}`},
			""},
		{"renders another", step.Condition{Is: step.Renders{Ref: *ref("apps/v1", "DaemonSet"), Version: "v3"}}, nil,
			[]string{
				`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: c, namespace: ns}, spec: {template: {spec: {containers: [{image: "a:v1"}, {image: "b:v1"}]}}}}`},
			"new pods of DaemonSet/ns/c are made from v1, not v3"},
		{"reports", whole, nil, []string{status("True", "False")}, ""},
		{"reports nothing yet", whole, nil,
			[]string{`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: c, namespace: ns}}`},
			"DaemonSet/ns/c does not report whether it is Available"},
		{"reports that it does not exist", whole, nil, []string{status("False", "False")},
			"DaemonSet/ns/c reports Available=False (Slow): 2 of 3 nodes"},
		{"reports a failure", whole, nil, []string{status("True", "True")},
			"DaemonSet/ns/c reports Degraded=True (ResourceReadError)"},
		{"nobody reports", whole, nil, nil, "DaemonSet/ns/c does not exist"},
		{"has", has(`{"spec":{"selector":{"a":"b"},"volumes":[{"hostPath":{"path":"/x"}}]}}`), nil, []string{made}, ""},
		{"has not, as asked", has(`{"spec":{"selector":{"c":null},"affinity":{"x":null}}}`), nil, []string{made}, ""},
		{"has what should not be", has(`{"spec":{"selector":{"a":null}}}`), nil, []string{made},
			`DaemonSet/ns/c does not have {"spec":{"selector":{"a":null}}}`},
		{"has another in a list", has(`{"spec":{"volumes":[{"hostPath":{"path":"/y"}}]}}`), nil, []string{made},
			`DaemonSet/ns/c does not have {"spec":{"volumes":[{"hostPath":{"path":"/y"}}]}}`},
		{"has, and does not exist", has(`{"spec":{}}`), nil, nil, "DaemonSet/ns/c does not exist"},
		{"pod ready", podReady, []runtime.Object{pod("ns", "p", "a", "", app), pod("ns", "q", "b", "", app, unready)},
			nil, ""},
		{"no pod", podReady, []runtime.Object{pod("ns", "p", "b", "", app), pod("ns", "q", "a", "")},
			nil, "no pod of app=x on a"},
		{"pod not ready", podReady, []runtime.Object{pod("ns", "p", "a", "", app),
			pod("ns", "q", "a", "", app, unready)}, nil, "pod ns/q on a is not Ready"},
		{"pod on its way out", podReady, []runtime.Object{pod("ns", "p", "a", "", app, ending)}, nil,
			"pod ns/p on a is not Ready"},
		{"pod of the network", inRange, []runtime.Object{pod("ns", "p", "a", "10.244.0.1", app)}, nil, ""},
		{"pod of another network", inRange,
			[]runtime.Object{pod("ns", "p", "a", "10.244.0.1", app), pod("ns", "q", "a", "10.96.0.1", app)}, nil,
			"pod ns/q on a has the address 10.96.0.1, which is not of 10.244.0.0/16"},
		{"node ready", step.Condition{Is: step.NodeReady{Node: "a"}},
			[]runtime.Object{node(corev1.ConditionTrue)}, nil, ""},
		{"node not ready", step.Condition{Is: step.NodeReady{Node: "a"}},
			[]runtime.Object{node(corev1.ConditionUnknown)}, nil, "node a is not Ready"},
		{"node not ready, for a reason", step.Condition{Is: step.NodeReady{Node: "a"}},
			[]runtime.Object{noNetwork}, nil,
			"node a is not Ready: KubeletNotReady cni plugin not initialized"},
		{"no node joined", step.Condition{Is: step.NodesAmong{Nodes: []string{"a", "b"}}},
			[]runtime.Object{node(corev1.ConditionTrue)}, nil, ""},
		{"a node joined", step.Condition{Is: step.NodesAmong{Nodes: []string{"b"}}},
			[]runtime.Object{node(corev1.ConditionTrue)}, nil,
			"node a joined since the plan was made: the plan has no step for it"},
		{"pods gone", podGone, []runtime.Object{pod("ns", "p", "b", "", app)}, nil, ""},
		{"pods not gone", podGone, []runtime.Object{pod("ns", "p", "a", "", app)}, nil, "still there: 1 pod of app=x"},
		{"no pods", noPods, []runtime.Object{pod("ns", "p", "a", "10.96.0.1")}, nil, ""},
		{"pods", noPods, []runtime.Object{pod("ns", "p", "a", "10.244.0.1"), pod("ns", "q", "b", "10.244.0.2")}, nil,
			"still with an address in 10.244.0.0/16: 2 pods, such as ns/p"},
		{"pods of DaemonSets", daemons,
			[]runtime.Object{pod("ns", "p", "a", "10.244.0.1", ownedBy("DaemonSet", "log"))}, nil, ""},
		{"pods beside those of DaemonSets", daemons, []runtime.Object{pod("ns", "p", "a", "10.244.0.1",
			ownedBy("DaemonSet", "log")), pod("ns", "q", "a", "10.244.0.2", ending)}, nil,
			"still with an address in 10.244.0.0/16: 1 pod, such as ns/q"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, test.typed, test.documents...)
			holds, missing, err := w.Holds(context.Background(), test.condition)
			if err != nil || holds != (test.missing == "") || !holds && missing != test.missing {
				t.Errorf("holds %t, missing %q, %v", holds, missing, err)
			}
		})
	}
}

func TestConditionsThatCannotBeTold(t *testing.T) {
	w := newWorld(t, []runtime.Object{pod("ns", "p", "a", "10.244.0.1", label("app", "x"))})
	for _, test := range []struct {
		condition step.Condition
		words     string
	}{
		{step.Condition{}, `unknown condition ""`},
		{step.Condition{Is: step.NodeReady{Node: "a"}}, "not found"},
		{step.Condition{Is: step.NoPods{CIDRs: []string{"10.244"}}}, "10.244"},
		{step.Condition{Is: step.PodReady{Node: "a", Namespace: "ns", Selector: "app=x", CIDRs: []string{"10.244"}}},
			"10.244"},
	} {
		holds, _, err := w.Holds(context.Background(), test.condition)
		if holds {
			t.Errorf("%s holds", test.condition.Kind())
		}
		wantError(t, err, test.words)
	}
}

func TestWait(t *testing.T) {
	w := newWorld(t, nil, configMap)
	wait := step.Action{ID: "w", Do: step.Wait{Condition: step.Condition{Is: step.Gone{Ref: configRef}}}}
	_, err := w.Do(w.end(7), wait, nil)
	wantError(t, err, "ConfigMap/ns/c still exists")
	if len(w.notes) != 1 {
		t.Errorf("said more than once: %q", w.notes)
	}
	gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
	w.slept = func(int) { _ = w.dynamic.Tracker().Delete(gvr, "ns", "c") }
	if _, err := w.do(wait); err != nil {
		t.Error(err)
	}
}

func TestUnrolled(t *testing.T) {
	for _, test := range []struct{ name, object, missing string }{
		{"daemons",
			`{kind: DaemonSet, status: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberReady: 3}}`,
			""},
		{"unseen", `{kind: DaemonSet, status: {observedGeneration: 1}}`,
			"its controller has not observed the latest change"},
		{"daemons of old",
			`{kind: DaemonSet, status: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 1, numberReady: 3}}`,
			"1 of 3 pods are updated"},
		{"daemons not ready",
			`{kind: DaemonSet, status: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberReady: 2}}`,
			"2 of 3 pods are ready"},
		{"daemons for no node", `{kind: DaemonSet, status: {observedGeneration: 2, desiredNumberScheduled: 0}}`, ""},
		{"deployment",
			`{kind: Deployment, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 2}}`,
			""},
		{"only the old pod is ready",
			`{kind: Deployment, spec: {replicas: 1}, status: {observedGeneration: 2, replicas: 2, updatedReplicas: 1, readyReplicas: 1}}`,
			"still there: 1 old pod"},
		{"scaled to nothing", `{kind: Deployment, spec: {replicas: 0}, status: {observedGeneration: 2}}`, ""},
		{"stateful",
			`{kind: StatefulSet, spec: {replicas: 2}, status: {observedGeneration: 2, updatedReplicas: 2, readyReplicas: 1}}`,
			"1 of 2 pods are ready"},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := parse(t, test.object)
			object.SetGeneration(2)
			if missing := unrolled(object); missing != test.missing {
				t.Errorf("%q", missing)
			}
		})
	}
}

// TestWrittenBy: the last write to the object itself counts, unless it is Theseus' own.
func TestWrittenBy(t *testing.T) {
	entry := func(manager, subresource, at string) any {
		return map[string]any{"manager": manager, "subresource": subresource, "time": at, "operation": "Update"}
	}
	own, theirs := entry(FieldManager, "", "2026-01-01T00:00:02Z"),
		entry("argocd-controller", "", "2026-01-01T00:00:01Z")
	for name, test := range map[string]struct {
		metadata map[string]any
		want     string
	}{
		"theirs": {map[string]any{"managedFields": []any{theirs, entry("kube-controller-manager", "status",
			"2026-01-01T00:00:03Z")}}, "; argocd-controller wrote it last, at 2026-01-01T00:00:01Z"},
		"ours after theirs": {map[string]any{"managedFields": []any{own, theirs}}, ""},
		"ending": {map[string]any{"managedFields": []any{theirs},
			"deletionTimestamp": "2026-01-01T00:00:05Z"}, ""},
		"not said": {map[string]any{}, ""},
	} {
		if got := writtenBy(
			&unstructured.Unstructured{Object: map[string]any{"metadata": test.metadata}}); got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if writtenBy(nil) != "" {
		t.Error("no object has a writer")
	}
}
