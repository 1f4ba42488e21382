package document

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// FuzzDecode holds what decode makes of JSON to what an API server's decoder makes of it, errors included.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"a","labels":{"b":"c"},"creationTimestamp":null},"spec":{"containers":[{"name":"x","ports":[{"containerPort":80}]}]}}`,
		`{"metadata":{"name":"a","name":"b","labels":{"x":"1"},"labels":{"y":"2"}}}`,
		`{"spec":{"containers":[{"name":"x"}],"containers":[{"image":"y"}]}}`, `{"Metadata":{"Name":"a"},"KIND":"Pod"}`,
		`{"metadata":{"name":"\ud800"}}`, "{\"metadata\":{\"name\":\"\xff\"}}",
		`{"metadata":{"generation":1.0}}`, `{"metadata":{"generation":1e3}}`,
		`{"metadata":{"generation":99999999999999999999}}`,
		`{"metadata":null,"spec":{"hostNetwork":null,"priority":null}}`,
		`{"spec":{"containers":[null,{}],"nodeSelector":{},"tolerations":[]}}`,
		`{"spec":{"containers":{}}}`, `{"spec":{"hostNetwork":"yes"}} `, `{"metadata":{}} x`, `[]`, `null`, ``,
		`{"spec":{"containers":[{"resources":{"requests":{"cpu":"100m","memory":1024,"x":"?"}},"livenessProbe":{"tcpSocket":{"port":"a"}}}]}}`,
		`{"status":{"startTime":"2026-01-02T03:04:05Z","conditions":[{"lastProbeTime":"2026-01-02T03:04:05.5+01:00"}]}}`,
		`{"status":{"startTime":"yesterday"}}`, `{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}}`,
		`{"spec":{"overhead":null,"volumes":[{"name":"a","configMap":{"items":[{"key":"k"}]}}]}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got, want corev1.Pod
		gotErr, wantErr := decode([]byte(text), &got), kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &want)
		if (gotErr == nil) != (wantErr == nil) || gotErr != nil && gotErr.Error() != wantErr.Error() {
			t.Fatalf("%q: %v, not %v", text, gotErr, wantErr)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q:\ngot  %+v\nwant %+v", text, got, want)
		}
	})
}

// TestAlikeIsKeptOnce holds that pods of one workload have one map of labels and one of each amount of resources, and
// that no pod is given what it does not say.
func TestAlikeIsKeptOnce(t *testing.T) {
	var list strings.Builder
	list.WriteString("apiVersion: v1\nitems:\n")
	for name, says := range [][2]string{{"app: a", "cpu: 1"}, {"app: a", "cpu: 1"}, {"app: b", "cpu: 2"}, {"", ""}} {
		fmt.Fprintf(&list, "- {apiVersion: v1, kind: Pod, metadata: {name: p%d, namespace: shop, labels: {%s}}, "+
			"spec: {containers: [{name: c, resources: {requests: {%s}}}]}}\n",
			name, says[0], says[1])
	}
	s, _ := read(t, "in", list.String()+"kind: List\n")
	maps := func(pod corev1.Pod) [2]uintptr {
		return [2]uintptr{reflect.ValueOf(pod.Labels).Pointer(),
			reflect.ValueOf(pod.Spec.Containers[0].Resources.Requests).Pointer()}
	}
	if maps(s.Pods[0]) != maps(s.Pods[1]) {
		t.Error("two pods that are alike have maps of their own")
	}
	for i, want := range []string{"a 1", "a 1", "b 2", " 0"} {
		if pod := s.Pods[i]; pod.Labels["app"]+" "+pod.Spec.Containers[0].Resources.Requests.Cpu().String() != want {
			t.Errorf("%s is not as it was written: %v", pod.Name, pod)
		}
	}
}
