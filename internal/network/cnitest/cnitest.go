// Package cnitest is the acceptance suite that every network driver runs, and the small clusters that it
// and other tests run on.
package cnitest

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

//go:embed testdata
var testdata embed.FS

// Documents reads a fixture of this package, or text of the caller's own, as a list of objects.
func Documents(t testing.TB, text []byte) []unstructured.Unstructured {
	t.Helper()
	reader := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var all []unstructured.Unstructured
	for {
		var object unstructured.Unstructured
		err := reader.Decode(&object)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("a fixture cannot be decoded: %v", err)
		}
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}

// Fixture reads one of the files of this package: "flannel.yaml" (a cluster of three nodes on flannel with
// kube-router), "calico.yaml" (one on Calico), "weave.yaml" (one on Weave Net), "calico-manifest.yaml" and
// "flannel-manifest.yaml" (what installs them, cut down), "charts/cilium-VERSION.yaml" (what Cilium's chart makes, of
// v1.12.19, v1.16.5, v1.19.0, v1.19.6 and v1.20.2, and "cilium-preflight" of the last), "charts/flannel-v0.28.4.yaml"
// (what flannel's makes), "tigera-operator-v1.38.1.yaml"
// and "tigera-operator-v1.40.0.yaml" (what installs Calico's operator), "tigera-custom-resources.yaml" (what the
// operator acts on) and "operator-crds.yaml" (what defines that, cut down).
func Fixture(t testing.TB, name string) []unstructured.Unstructured {
	t.Helper()
	return Documents(t, Text(t, name))
}

// Cilium is a cluster of two nodes with what the chart of a release makes, but for roles and accounts, which no
// snapshot holds.
func Cilium(t testing.TB, version string) []unstructured.Unstructured {
	t.Helper()
	objects := slices.DeleteFunc(Fixture(t, "charts/cilium-"+version+".yaml"), func(o unstructured.Unstructured) bool {
		return strings.HasPrefix(o.GetAPIVersion(), "rbac.") || o.GetKind() == "ServiceAccount"
	})
	return append(Fixture(t, "cilium-cluster.yaml"), Ready(objects)...)
}

// Ready has the DaemonSets of a manifest say that they run on two nodes.
func Ready(objects []unstructured.Unstructured) []unstructured.Unstructured {
	for i := range objects {
		if objects[i].GetKind() == "DaemonSet" {
			objects[i].Object["status"] = map[string]any{"currentNumberScheduled": int64(2),
				"desiredNumberScheduled": int64(2), "numberMisscheduled": int64(0), "numberReady": int64(2)}
		}
	}
	return objects
}

// Golden is a snapshot of a real cluster, of the files in testdata/golden: taken in the lab, then cut down to what
// networks are about.
func Golden(t testing.TB, name string) *cluster.Snapshot {
	t.Helper()
	snapshot := &cluster.Snapshot{}
	if err := json.Unmarshal(Text(t, "golden/"+name+".json"), snapshot); err != nil {
		t.Fatal(err)
	}
	return snapshot
}

// Text is a fixture as it is written.
func Text(t testing.TB, name string) []byte {
	t.Helper()
	text, err := testdata.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Snapshot makes a snapshot of objects.
func Snapshot(t testing.TB, objects []unstructured.Unstructured) *cluster.Snapshot {
	t.Helper()
	s := &cluster.Snapshot{APIVersion: v1alpha1.APIVersion, Kind: cluster.Kind, UID: "cluster-a", Kubernetes: "v1.36.3"}
	for i := range objects {
		if err := add(s, &objects[i]); err != nil {
			t.Fatalf("%s %s: %v", objects[i].GetKind(), objects[i].GetName(), err)
		}
	}
	return s
}

func add(s *cluster.Snapshot, object *unstructured.Unstructured) error {
	switch object.GetKind() {
	case "Node":
		return into(&s.Nodes, object)
	case "Namespace":
		return into(&s.Namespaces, object)
	case "Pod":
		return into(&s.Pods, object)
	case "Service":
		return into(&s.Services, object)
	case "ConfigMap":
		return into(&s.ConfigMaps, object)
	case "DaemonSet":
		return into(&s.DaemonSets, object)
	case "Deployment":
		return into(&s.Deployments, object)
	case "ReplicaSet":
		return into(&s.ReplicaSets, object)
	case "StatefulSet":
		return into(&s.StatefulSets, object)
	case "Job":
		return into(&s.Jobs, object)
	case "PodDisruptionBudget":
		return into(&s.Budgets, object)
	case "NetworkPolicy":
		return into(&s.NetworkPolicies, object)
	}
	s.Other = append(s.Other, *object)
	return nil
}

func into[T any](list *[]T, object *unstructured.Unstructured) error {
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object,
		&typed, true); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	*list = append(*list, typed)
	return nil
}
