package kube_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/network/policy"
)

// TestAPIServer: with a real API server, a snapshot by a user with the role plan has AdminNetworkPolicies, also
// next to ClusterNetworkPolicies, which the same group serves in another version alone; and the model names each.
func TestAPIServer(t *testing.T) {
	program := clustertest.Program(t, "policies of administrators with a real API server")
	config := clustertest.ControlPlane(t, program, clustertest.Options{Users: []string{"op"}})
	as := kubetest.Users(t, config)
	admin, op := as("token"), as("op")
	roles, err := kube.Roles(kube.Plan, "", nil, []kube.Subject{{Kind: rbacv1.UserKind, Name: "op"}})
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Apply(t, admin, roles...)
	define := func(kind, plural, version string) unstructured.Unstructured {
		return object(t, fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
metadata: {name: %[2]s.policy.networking.k8s.io, annotations: {api-approved.kubernetes.io: "https://example.org"}},
spec: {group: policy.networking.k8s.io, scope: Cluster, names: {kind: %[1]s, plural: %[2]s}, versions: [{name: %[3]s,
served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`,
			kind, plural, version))
	}
	kubetest.Apply(t, admin, define("AdminNetworkPolicy", "adminnetworkpolicies", "v1alpha1"),
		define("ClusterNetworkPolicy", "clusternetworkpolicies", "v1alpha2"),
		object(t, "{apiVersion: policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicy, metadata: {name: a}, "+
			"spec: {subject: {namespaces: {}}}}"),
		object(t, "{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: b}, "+
			"spec: {subject: {namespaces: {}}}}"))
	var s *cluster.Snapshot
	for range 100 { // a new role takes the API server a moment
		if s, err = kube.Snapshot(t.Context(), op, "test", time.Now()); err != nil {
			t.Fatal(err)
		}
		if has, _ := s.Has("adminnetworkpolicies.policy.networking.k8s.io"); has {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	profile := policy.Profile{CNI: "calico", Dialect: policy.Calico}
	var got []string
	for _, gap := range policy.Build(s, profile, profile).Unevaluated() {
		got = append(got, gap.Policy.String())
	}
	if want := []string{"AdminNetworkPolicy/a", "ClusterNetworkPolicy/b"}; !slices.Equal(got, want) {
		t.Errorf("gaps %q, want %q; sources %v", got, want, s.Sources)
	}
}

func object(t *testing.T, text string) unstructured.Unstructured {
	t.Helper()
	var o unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}
