package rehearsal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

// pool is a cluster of so many nodes of 10 processors, with a Deployment and, if it is the original, quotas of its
// namespace.
func pool(t *testing.T, nodes int, uid, more string) *cluster.Snapshot {
	t.Helper()
	text := fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: kube-system, uid: %s}\n", uid)
	for i := range nodes {
		text += fmt.Sprintf("---\napiVersion: v1\nkind: Node\nmetadata: {name: %s-%d}\nstatus: {allocatable: {cpu: "+
			"\"10\", memory: 10Gi, pods: \"110\"}, conditions: [{type: Ready, status: \"True\"}]}\n", uid, i)
	}
	s := cnitest.Snapshot(t, cnitest.Documents(t, []byte(text+more)))
	for _, resource := range slices.Concat(needed(), []string{"resourcequotas", "limitranges"}) {
		s.Sources = append(s.Sources, cluster.Source{Resource: resource, From: "test"})
	}
	return s
}

// withPods adds pods of workloads, each with its requests, and memory as a limit, too: "web 3 100m 1Gi".
func withPods(t *testing.T, s *cluster.Snapshot, all ...string) {
	t.Helper()
	for _, one := range all {
		var name, cpu, memory string
		var n int
		if _, err := fmt.Sscan(one, &name, &n, &cpu, &memory); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s-%d, namespace: shop, "+
				"ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: %[1]s-x, uid: u, controller: "+
				"true}]}\nspec: {containers: [{name: a, resources: {requests: {cpu: %[3]s, memory: %[4]s}, "+
				"limits: {memory: %[4]s}}}]}\nstatus: {phase: Running}\n", name, i, cpu, memory)
			s.Pods = append(s.Pods, cnitest.Snapshot(t, cnitest.Documents(t, []byte(text))).Pods...)
		}
		text := fmt.Sprintf("apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: %s-x, namespace: shop, "+
			"ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: %[1]s, uid: u, controller: true}]}\n",
			name)
		s.ReplicaSets = append(s.ReplicaSets, cnitest.Snapshot(t, cnitest.Documents(t, []byte(text))).ReplicaSets...)
	}
}

const deployed = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n" +
	"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 12, " +
	"selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, " +
	"resources: {requests: {cpu: \"1\", memory: 1Gi}, limits: {memory: 1Gi}}}]}}}\n"

// TestQuotas: in a copy of 8 pods of 12, of which each asks for less, quotas let the same further pods in: one, the
// whole surge (a quarter), or none. A quota that its pods are over is one in the copy, too.
func TestQuotas(t *testing.T) {
	for name, test := range map[string]struct {
		spec   string
		used   string
		copied []string // the pods of the copy, if others than those of web
		want   string
		unlike bool
	}{
		"full":           {"hard: {pods: 12}", "pods: 12", nil, "pods 8 of 8", false},
		"one further":    {"hard: {pods: 13}", "pods: 12", nil, "pods 8 of 9", false},
		"not the surge":  {"hard: {pods: 14}", "pods: 12", nil, "pods 8 of 9", false},
		"the surge":      {"hard: {pods: 15}", "pods: 12", nil, "pods 8 of 10", false},
		"half full":      {"hard: {pods: 24}", "pods: 12", nil, "pods 8 of 16", false},
		"over":           {"hard: {pods: 11}", "pods: 12", nil, "pods 8 of 7", false},
		"not in status":  {"hard: {pods: 13}", "", nil, "pods 8 of 9", false},
		"others there":   {"hard: {count/pods: 21}", "count/pods: 20", nil, "count/pods 8 of 9", false},
		"full by cpu":    {"hard: {cpu: 12}", "cpu: 12", nil, "cpu 2 of 2", false},
		"nearly by cpu":  {"hard: {cpu: 12900m}", "cpu: 12", nil, "cpu 2 of 2150m", false},
		"further by cpu": {"hard: {requests.cpu: 13}", "requests.cpu: 12", nil, "requests.cpu 2 of 2250m", false},
		"limits": {"hard: {limits.memory: 15Gi}", "limits.memory: 12Gi", nil,
			"limits.memory 4Gi of 5Gi", false},
		"best effort": {"hard: {pods: 7}, scopes: [BestEffort]", "pods: 3", nil, "pods 0 of 0", false},
		"not best": {"hard: {pods: 13}, scopes: [NotBestEffort, NotTerminating]", "pods: 12", nil, "pods 8 of 9",
			false},
		"a class": {"hard: {pods: 13}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, " +
			"values: [high]}]}", "", nil, "pods 0 of 8", false},
		"no class": {"hard: {pods: 13}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: " +
			"DoesNotExist}]}", "", nil, "pods 8 of 9", false},
		"none asks in the copy": {"hard: {cpu: 12}", "cpu: 12", []string{"web 8 0 512Mi"}, "cpu 0 of 0", true},
	} {
		t.Run(name, func(t *testing.T) {
			original := pool(t, 3, "o", deployed+"---\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, "+
				"namespace: shop}\nspec: {"+test.spec+"}\nstatus: {used: {"+test.used+"}}\n")
			withPods(t, original, "web 12 1 1Gi")
			scratch := pool(t, 2, "s", "")
			made, err := Make(original, scratch, nil, nil, Options{Certify: certified})
			if err != nil {
				t.Fatal(err)
			}
			if test.copied == nil {
				test.copied = []string{"web 8 250m 512Mi"}
			}
			withPods(t, scratch, test.copied...)
			made.Bound(original, scratch)
			bound := made.Quotas[0].Bounds[0]
			if got := fmt.Sprintf("%s %s of %s", bound.Resource, bound.CopyUsed, bound.CopyHard); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			hard, _, _ := unstructured.NestedString(made.Bounding()[0].Object, "spec", "hard", bound.Resource)
			if hard != bound.CopyHard {
				t.Errorf("the object has %s", hard)
			}
			if unlike := len(made.Unlike()) > 0; unlike != test.unlike {
				t.Errorf("unlike: %q", made.Unlike())
			}
			covered := made.placed(nil)
			if test.unlike != (covered.Alike < covered.All) {
				t.Errorf("%+v", covered)
			}
		})
	}
}

// TestRoom: if some room lets the same further pods in, that is what the copy has; and whatever fits in the original
// fits.
func TestRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	found := map[bool]int{}
	for range 20_000 {
		original, share := random.Int64N(40)-10, random.Float64()
		var further []pods
		for range random.IntN(4) {
			further = append(further, pods{random.Int64N(30), random.Int64N(15)})
		}
		same := func(room int64) bool {
			return (room < 0) == (original < 0) && !slices.ContainsFunc(further, func(one pods) bool {
				// the API server asks no quota about a pod that uses nothing of it
				return (one.original == 0 || one.original <= original) != (one.copy == 0 || one.copy <= room)
			})
		}
		possible := false
		for room := int64(-20); room < 60; room++ {
			possible = possible || same(room)
		}
		got, alike := room(original, share, further)
		found[alike]++
		if alike != possible || alike && !same(got) {
			t.Fatalf("%d, %v: %d, alike: %v, possible: %v", original, further, got, alike, possible)
		}
		for _, one := range further {
			if one.original <= original && one.copy > got {
				t.Fatalf("%d, %v: %d: %v does not fit", original, further, got, one)
			}
		}
	}
	if found[true] < 1000 || found[false] < 1000 {
		t.Errorf("%v", found)
	}
}

// TestLimitRanges: where requests are those of the original, a LimitRange is, too; stand-ins have the limits that it
// demands. Others have none.
func TestLimitRanges(t *testing.T) {
	const limits = "{type: Container, min: {cpu: 100m}, max: {memory: 2Gi}, maxLimitRequestRatio: {memory: 4}}"
	original := pool(t, 1, "o", deployed+"---\napiVersion: v1\nkind: LimitRange\nmetadata: {name: l, "+
		"namespace: shop}\nspec: {limits: ["+limits+", {type: Pod, max: {cpu: 8}}]}\n"+
		"---\napiVersion: v1\nkind: Pod\nmetadata: {name: other, namespace: default}\nspec: {containers: [{name: a, "+
		"resources: {limits: {cpu: 1}}}]}\nstatus: {phase: Running}\n")
	original.Deployments[0].Spec.Replicas = new(int32(2))
	made, err := Make(original, pool(t, 1, "s", ""), nil, nil, Options{Certify: certified})
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{
		// as the API server completes it
		"LimitRange": "[{default: {memory: 2Gi}, defaultRequest: {cpu: 100m, memory: 2Gi}, " + limits[1:] +
			", {type: Pod, max: {cpu: \"8\"}}]",
		"Deployment": "{requests: {cpu: \"1\", memory: 1Gi}, limits: {memory: 1Gi}}",
		"Pod":        "{}",
	} {
		at := slices.IndexFunc(made.Objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
		var got any
		switch object := made.Objects[at].Object; kind {
		case "LimitRange":
			got, _, _ = unstructured.NestedSlice(object, "spec", "limits")
		default:
			path := []string{"spec", "template", "spec", "containers"}
			if kind == "Pod" {
				path = []string{"spec", "containers"}
			}
			containers, _, _ := unstructured.NestedSlice(object, path...)
			got = containers[0].(map[string]any)["resources"]
		}
		text, err := yaml.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		wanted, err := yaml.YAMLToJSON([]byte(want))
		if err != nil {
			t.Fatal(err)
		}
		is, err := yaml.YAMLToJSON(text)
		if err != nil || strings.ReplaceAll(string(is), `"4"`, "4") != string(wanted) {
			t.Errorf("%s: %v\n%s\n%s", kind, err, is, wanted)
		}
	}
	if !slices.ContainsFunc(made.Lacks, func(l Lack) bool { return l.What == "1 container with limits" }) {
		t.Errorf("%v", made.Lacks)
	}
}

// TestNotRead: quotas and LimitRanges that a snapshot lacks are said; those that a scratch cluster has in the namespace
// default are users'.
func TestNotRead(t *testing.T) {
	original, scratch := pool(t, 1, "o", deployed), pool(t, 1, "s", "")
	original.Sources = original.Sources[:len(needed())]
	made, err := Make(original, scratch, nil, nil, Options{Certify: certified})
	want := "LimitRanges (not in the input), ResourceQuotas (not in the input)"
	if err != nil || strings.Join(made.Unbounded, ", ") != want ||
		!slices.ContainsFunc(made.Lacks, func(l Lack) bool { return l.What == want }) {
		t.Errorf("%v: %q, %v", err, made.Unbounded, made.Lacks)
	}
	if err := Empty(scratch, nil); err != nil {
		t.Error(err)
	}
	for _, kind := range []string{"LimitRange", "ResourceQuota"} {
		one := unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind,
			"metadata": map[string]any{"name": "a", "namespace": corev1.NamespaceDefault}}}
		scratch.Other = []unstructured.Unstructured{one}
		if err := Empty(scratch, nil); err == nil || !strings.Contains(err.Error(), kind+" default/a") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
