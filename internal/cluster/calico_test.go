package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// of makes a snapshot of objects, each an API version, a kind and a name.
func of(objects ...string) *cluster.Snapshot {
	s := &cluster.Snapshot{}
	for _, text := range objects {
		words := strings.Fields(text)
		object := unstructured.Unstructured{Object: map[string]any{"apiVersion": words[0], "kind": words[1]}}
		object.SetName(words[2])
		s.Other = append(s.Other, object)
	}
	return s
}

const (
	stored        = cluster.CalicoStored
	served        = cluster.CalicoServed
	storedDefined = "apiextensions.k8s.io/v1 CustomResourceDefinition ippools.crd.projectcalico.org"
	servedDefined = "apiextensions.k8s.io/v1 CustomResourceDefinition ippools.projectcalico.org"
)

func TestCalicoAPI(t *testing.T) {
	for name, test := range map[string]struct {
		snapshot *cluster.Snapshot
		want     string
	}{
		"nothing":                  {of(), stored},
		"objects of old":           {of(stored + " IPPool a"), stored},
		"objects of v3":            {of(served + " IPPool a"), served},
		"both, by the API server":  {of(storedDefined, stored+" IPPool a", served+" IPPool a"), served},
		"definitions of old":       {of(storedDefined), stored},
		"definitions of v3":        {of(servedDefined), served},
		"both are defined":         {of(storedDefined, servedDefined), stored},
		"both, and objects of old": {of(servedDefined, stored+" IPPool a"), stored},
		"definitions of the others": {of("apiextensions.k8s.io/v1 CustomResourceDefinition " +
			"datastoremigrations.migration.projectcalico.org"), stored},
	} {
		if got := test.snapshot.CalicoAPI(); got != test.want {
			t.Errorf("%s: %s, not %s", name, got, test.want)
		}
	}
	if got := of(servedDefined).CalicoResource("ippools"); got != "ippools.projectcalico.org" {
		t.Errorf("kubectl is asked for %s", got)
	}
}

// TestCalicoOnce: an object that is in both groups counts once, under its name in projectcalico.org; two of one group
// are two.
func TestCalicoOnce(t *testing.T) {
	for name, test := range map[string]struct {
		snapshot *cluster.Snapshot
		kind     string
		want     []string
	}{
		"both": {of(stored+" IPPool a", served+" IPPool a", stored+" IPPool b"), "IPPool",
			[]string{served + " a", stored + " b"}},
		"a policy without its tier": {of(stored+" NetworkPolicy default.a", served+" NetworkPolicy a"),
			"NetworkPolicy", []string{served + " a"}},
		"a policy with its tier": {of(stored+" NetworkPolicy default.a", served+" NetworkPolicy default.a"),
			"NetworkPolicy", []string{served + " default.a"}},
		"two policies": {of(stored+" NetworkPolicy a", stored+" NetworkPolicy default.a"), "NetworkPolicy",
			[]string{stored + " a", stored + " default.a"}},
		"a policy of Kubernetes'": {of(served+" NetworkPolicy knp.default.a", served+" NetworkPolicy a"),
			"NetworkPolicy", []string{served + " a"}},
		"no policy": {of(stored+" IPPool default.a", served+" IPPool a"), "IPPool",
			[]string{served + " a", stored + " default.a"}},
		"read twice":    {of(stored+" IPPool a", stored+" IPPool a"), "IPPool", []string{stored + " a"}},
		"another group": {of("networking.k8s.io/v1 NetworkPolicy a"), "NetworkPolicy", nil},
	} {
		var got []string
		for _, object := range test.snapshot.Calico(test.kind) {
			got = append(got, object.GetAPIVersion()+" "+object.GetName())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, not %q", name, got, test.want)
		}
	}
}
