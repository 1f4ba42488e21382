package calico_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestServed: of a cluster whose definitions keep Calico's objects as projectcalico.org/v3 the same is found, but for
// the names of those. The snapshots are derived from real ones (cnitest.Served).
func TestServed(t *testing.T) {
	for _, name := range []string{"calico", "calico-v3.30.1", "calico-typha-v3.28.5", "calico-bgp"} {
		t.Run(name, func(t *testing.T) {
			stored := calico.Driver{}.Detect(cnitest.Golden(t, name))
			served := cnitest.Served(t, cnitest.Golden(t, name))
			found := calico.Driver{}.Detect(served)
			if diff := cmp.Diff(stored, found,
				cmpopts.IgnoreFields(cni.Installation{}, "Parts", "Written")); diff != "" {
				t.Errorf("something else is found:\n%s", diff)
			}
			if len(stored.Written) != len(found.Written) || len(stored.Parts) != len(found.Parts) {
				t.Errorf("%d objects of users and %d parts, not %d and %d",
					len(found.Written), len(found.Parts), len(stored.Written), len(stored.Parts))
			}
			for _, ref := range slices.Concat(found.Written, found.Parts) {
				if strings.Contains(ref.APIVersion+ref.Name, "crd.projectcalico.org") {
					t.Errorf("%s %s is not in this cluster", ref.APIVersion, ref)
				}
			}
			if ref := (step.Ref{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition",
				Name: "ippools.projectcalico.org"}); !slices.Contains(found.Parts, ref) {
				t.Errorf("%s is no part of it", ref)
			}
			cnitest.Detects(t, cnitest.Case{Driver: calico.Driver{}, Present: served,
				Other: cnitest.Golden(t, "flannel")})
		})
	}
}

// TestServedLeft: without its agent it is found by its pools, whichever group they are in.
func TestServedLeft(t *testing.T) {
	snapshot := cnitest.Served(t, cnitest.Golden(t, "calico"))
	snapshot.DaemonSets = nil
	cnitest.Understood(t, calico.Driver{}, snapshot, "no DaemonSet calico-node", func(i *cni.Installation) bool {
		return slices.Equal(i.PodCIDRs, []string{"198.19.0.0/20"})
	})
}

// TestServedByBoth: with Calico's API server an object is in both groups, and counts once.
func TestServedByBoth(t *testing.T) {
	snapshot := cnitest.Golden(t, "calico")
	stored := calico.Driver{}.Detect(snapshot)
	for _, object := range cnitest.Served(t, snapshot).Other {
		if object.GetKind() != "CustomResourceDefinition" {
			snapshot.Other = append(snapshot.Other, object)
		}
	}
	if diff := cmp.Diff(stored, calico.Driver{}.Detect(snapshot)); diff != "" {
		t.Errorf("something else is found:\n%s", diff)
	}
}

// TestWebhooks: what stands before writes to definitions of projectcalico.org goes with them, and before them.
func TestWebhooks(t *testing.T) {
	snapshot := cnitest.Served(t, cnitest.Golden(t, "calico"))
	webhooks := *snapshot.Deployments[0].DeepCopy()
	webhooks.Name, webhooks.Namespace = "calico-webhooks", "kube-system"
	snapshot.Deployments = append(snapshot.Deployments, webhooks)
	parts := calico.Driver{}.Detect(snapshot).Parts
	kinds := []string{"Deployment", "ValidatingWebhookConfiguration", "ClusterRole"}
	at := slices.IndexFunc(parts, func(r step.Ref) bool { return r.Kind == "CustomResourceDefinition" })
	for i, ref := range parts {
		if ref.Name == "calico-webhooks" && i < at {
			kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == ref.Kind })
		}
	}
	if len(kinds) > 0 {
		t.Errorf("%v of calico-webhooks stay, or go after the definitions: %v", kinds, parts)
	}
}

// servedBy is a request whose manifest has its definitions in projectcalico.org.
func servedBy(r cni.Request) cni.Request {
	for i := range r.Manifest {
		r.Manifest[i] = *cnitest.ServedObject(&r.Manifest[i])
	}
	return r
}

// written are the API versions of all of Calico's objects that a target makes or changes.
func written(target *cni.Target) []string {
	var all []string
	add := func(version string) {
		if group, _, _ := strings.Cut(version, "/"); cluster.IsCalico(group) && !slices.Contains(all, version) {
			all = append(all, version)
		}
	}
	for _, object := range slices.Concat(target.Objects, target.Extras) {
		add(object.GetAPIVersion())
	}
	if a := target.Adoption; a != nil {
		for _, object := range a.Pools {
			add(object.GetAPIVersion())
		}
		for _, action := range slices.Concat(a.Carry, a.Drop, a.Settle) {
			add(action.Ref().APIVersion)
		}
	}
	for _, part := range target.Installation.Parts {
		add(part.APIVersion)
	}
	return all
}

// TestInstallAPI: what is written of Calico's own kinds is where the agents of the manifest will look for it.
func TestInstallAPI(t *testing.T) {
	bare := func(r cni.Request) cni.Request { // its definitions came on their own
		r.Manifest = slices.DeleteFunc(r.Manifest, func(o unstructured.Unstructured) bool {
			return o.GetKind() == "CustomResourceDefinition"
		})
		return r
	}
	told := func(r cni.Request, group string) cni.Request {
		agent := find(t, r.Manifest, "DaemonSet")
		containers, _, _ := unstructured.NestedSlice(agent.Object, "spec", "template", "spec", "containers")
		container := containers[0].(map[string]any)
		container["env"] = append(container["env"].([]any), map[string]any{"name": "CALICO_API_GROUP", "value": group})
		_ = unstructured.SetNestedSlice(agent.Object, containers, "spec", "template", "spec", "containers")
		return r
	}
	defined := func(r cni.Request, names ...string) cni.Request { r.Defined = names; return r }
	const stored, served = "ippools.crd.projectcalico.org", "ippools.projectcalico.org"
	for _, test := range []struct {
		name    string
		request cni.Request
		want    string
		refused string
	}{
		{"definitions of old", request(t), cluster.CalicoStored, ""},
		{"definitions of old, taking over", takeover(t), cluster.CalicoStored, ""},
		{"definitions of v3", servedBy(request(t)), cluster.CalicoServed, ""},
		{"definitions of v3, taking over", servedBy(takeover(t)), cluster.CalicoServed, ""},
		{"none, and none in the cluster", bare(request(t)), cluster.CalicoStored, ""},
		{"none, and v3 in the cluster", defined(bare(request(t)), served), cluster.CalicoServed, ""},
		{"none, and both in the cluster", defined(bare(request(t)), served, stored), cluster.CalicoStored, ""},
		{"definitions of old, and v3 in the cluster", defined(request(t), served), cluster.CalicoStored, ""},
		{"v3, where the old are left", defined(servedBy(request(t)), stored), "",
			"which agents prefer by default"},
		{"v3, where the old are left, and agents are told",
			told(defined(servedBy(request(t)), stored), "projectcalico.org/v3"), cluster.CalicoServed, ""},
		{"told v3, and nothing defines it", told(request(t), "projectcalico.org/v3"), "",
			"neither the manifest nor the cluster has their CRDs"},
		{"told the old", told(defined(request(t), served), "crd.projectcalico.org/v1"), cluster.CalicoStored, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			target, err := calico.Driver{}.Install(test.request)
			var refused *cni.Refusal
			if test.refused != "" {
				if !errors.As(err, &refused) || !strings.Contains(refused.Message, test.refused) || refused.Hint == "" {
					t.Errorf("not refused with a hint, as %q: %v", test.refused, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := written(target); !slices.Equal(got, []string{test.want}) {
				t.Errorf("objects of %v are written, not of %s", got, test.want)
			}
		})
	}
}

// TestProbesWithoutBIRD: however a release writes it, nobody asks for BIRD where it does not run.
func TestProbesWithoutBIRD(t *testing.T) {
	r := request(t)
	newer := strings.NewReplacer("-bird-", "--bird-", "-felix-",
		"--felix-").Replace(string(cnitest.Text(t, "calico-manifest.yaml")))
	r.Manifest = cnitest.Documents(t, []byte(newer))
	target, err := calico.Driver{}.Install(r)
	if err != nil {
		t.Fatal(err)
	}
	if agent := text(t, find(t, target.Objects, "DaemonSet")); strings.Contains(agent, "bird-") ||
		!strings.Contains(agent, "--felix-ready") {
		t.Errorf("the agent's probes: %s", agent)
	}
}
