package rehearsal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestChange: an object gets another spec, and back what it had; an annotation that no rehearsal wrote is not believed.
func TestChange(t *testing.T) {
	const text = "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: a, labels: {keep: 'yes'}}\n" +
		"spec: {cidr: 10.0.0.0/16, natOutgoing: true}\n"
	live := &cnitest.Documents(t, []byte(text))[0]
	wanted := live.DeepCopy()
	wanted.SetLabels(map[string]string{MarkLabel: "of"})
	if changed, err := Change(live, wanted, nil); err != nil || changed != nil {
		t.Errorf("the same: %v, %v", changed, err)
	}
	wanted.Object["spec"] = map[string]any{"cidr": "10.0.0.0/16"}
	agent := []step.Ref{{Kind: "DaemonSet", Name: "agent"}}
	changed, err := Change(live, wanted, agent)
	if err != nil || cni.FieldText(changed.Object["spec"]) != `{"cidr":"10.0.0.0/16"}` {
		t.Fatalf("%v, %v", changed, err)
	}
	if Changed(changed) || Made(changed) {
		t.Error("an annotation that no rehearsal wrote is believed")
	}
	changed.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: Manager, FieldsV1: &metav1.FieldsV1{Raw: []byte(
		`{"f:metadata":{"f:labels":{"f:` + MarkLabel + `":{}},"f:annotations":{"f:` + BeforeAnnotation + `":{}}}}`)}}})
	if !Changed(changed) || Made(changed) {
		t.Error("a rehearsal's change is not known, or taken for an object that it made")
	}
	wanted.Object["spec"] = map[string]any{"cidr": "10.0.0.0/16", "disabled": true}
	twice, err := Change(changed, wanted, agent)
	if err != nil || twice.GetAnnotations()[BeforeAnnotation] != changed.GetAnnotations()[BeforeAnnotation] {
		t.Errorf("a second change forgets what was before the first: %v, %v", twice, err)
	}
	back, again, err := TakenBack(twice)
	if err != nil || cni.FieldText(back.Object["spec"]) != cni.FieldText(live.Object["spec"]) || len(again) > 0 ||
		fmt.Sprint(back.GetLabels()) != "map[keep:yes]" || len(back.GetAnnotations()) > 0 {
		t.Errorf("%v, %v, %v", back, again, err)
	}
	twice.SetAnnotations(map[string]string{BeforeAnnotation: `{"field":"metadata"}`})
	if _, _, err := TakenBack(twice); err == nil {
		t.Error("another field than spec and data is accepted")
	}
	config := &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "data": map[string]any{"a": "1"}}}
	if config, err = Change(config, &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{
		"a": "2"}}}, agent); err != nil || !strings.Contains(config.GetAnnotations()[BeforeAnnotation], "agent") {
		t.Errorf("what has to be restarted is not noted: %v, %v", config, err)
	}
}

// TestNetworkManifest: a manifest of another network, or of another version, is refused, and so is a cluster that has a
// network.
func TestNetworkManifest(t *testing.T) {
	network := func(name, version string) []*cni.Installation {
		return []*cni.Installation{{CNI: name, Version: version}}
	}
	ours, s := network("calico", "v3.31.0"), &cluster.Snapshot{UID: "s"}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"version": {Fits(ours, network("calico", "v3.30.1")),
			"installs calico v3.30.1, and the original has calico v3.31.0"},
		"kind":    {Fits(ours, network("flannel", "v3.31.0")), "installs flannel v3.31.0, and the original"},
		"nothing": {Fits(ours, nil), "installs no network that Theseus knows"},
		"two":     {Fits(ours, append(network("flannel", ""), ours...)), "installs flannel and calico"},
		"fits":    {Fits(ours, ours), ""},
		"has one": {Bare(&cluster.Snapshot{UID: "o"}, s, ours, ours), "has a network already, calico v3.31.0"},
		"itself":  {Bare(s, s, ours, nil), "is the original itself"},
		"bare":    {Bare(&cluster.Snapshot{UID: "o"}, s, ours, nil), ""},
	} {
		switch refusal, _ := c.err.(*cni.Refusal); {
		case c.want == "" && c.err != nil, c.want != "" && (refusal == nil || refusal.Hint == "" ||
			!strings.Contains(refusal.Message, c.want)):
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

// TestInstalls: a network that is installed has the original's settings before its agents run: its ConfigMap in the
// manifest is edited. Nodes that wait for a network take part, and others that are not ready do not.
func TestInstalls(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "network", "calico", "testdata", "calico-vxlan-v3.31.0.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const definition = "\n---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " +
		"ippools.crd.projectcalico.org}\n"
	manifest := cnitest.Documents(t, append(text, definition...)) // the file is without them
	original, scratch := read(t, "odd.yaml"), read(t, "scratch.yaml")
	network := cnitest.Snapshot(t, manifest)
	const pool = "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: odd}\nspec: {cidr: " +
		"10.77.0.0/20, blockSize: 28}\n"
	network.Other = append(network.Other, cnitest.Snapshot(t, cnitest.Documents(t, []byte(pool))).Other...)
	original.DaemonSets = append(original.DaemonSets, network.DaemonSets...)
	original.ConfigMaps = append(original.ConfigMaps, network.ConfigMaps...)
	original.Other = append(original.Other, network.Other...)
	original.Sources = append(original.Sources, cluster.Source{Resource: "ippools.crd.projectcalico.org", From: "t"})
	for i := range original.ConfigMaps {
		original.ConfigMaps[i].Data["veth_mtu"] = "1380"
	}
	unready := func(message string) {
		for i := range scratch.Nodes {
			scratch.Nodes[i].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady,
				Status: corev1.ConditionFalse, Message: message}}
		}
	}
	ours := drivers.All().Detect(original)
	make := func() (*Copy, error) {
		return Make(original, scratch, ours, drivers.All().Detect(cnitest.Snapshot(t, manifest)),
			Options{Image: "i", Certify: certified, Manifest: manifest})
	}
	unready("the kubelet is starting")
	if _, err := make(); err == nil || !strings.Contains(err.Error(), "too small") {
		t.Errorf("nodes that are not ready: %v", err)
	}
	unready("container runtime network not ready: cni plugin not initialized")
	made, err := make()
	if err != nil {
		t.Fatal(err)
	}
	rank, mtu, ran := map[string]int{}, "", false
	for i, object := range made.Network.Installs {
		rank[object.GetKind()] = i
		if object.GetName() == "calico-config" {
			mtu, _, _ = unstructured.NestedString(object.Object, "data", "veth_mtu")
		}
		if ran = ran || Runs(object); ran && !Runs(object) {
			t.Errorf("%s comes after an object that runs pods", name(object))
		}
		if object.GetLabels()[MarkLabel] != made.Of || object.GetLabels()[NetworkLabel] == "" {
			t.Errorf("%s has the labels %v", name(object), object.GetLabels())
		}
	}
	if mtu != "1380" || len(made.Network.Installs) != len(manifest) ||
		rank["CustomResourceDefinition"] > rank["ConfigMap"] {
		t.Errorf("veth_mtu %q, %d of %d objects, in the order %v", mtu, len(made.Network.Installs), len(manifest), rank)
	}
	if len(made.Network.Settings) != 1 || made.Network.Settings[0].GetName() != "odd" || !made.Network.Links {
		t.Errorf("%+v", made.Network)
	}
	other := made.Network.Settings[0].DeepCopy()
	other.Object["spec"] = map[string]any{"cidr": "10.99.0.0/16"}
	before := manifest
	manifest = append(slices.Clone(manifest), *other)
	if again, err := make(); err != nil || len(again.Network.Settings) > 0 ||
		!slices.ContainsFunc(again.Network.Installs, func(o *unstructured.Unstructured) bool {
			return o.GetName() == "odd" && cni.FieldText(o.Object["spec"]) ==
				cni.FieldText(made.Network.Settings[0].Object["spec"])
		}) {
		t.Errorf("a pool of the manifest does not get the original's spec: %v, %+v", err, again)
	}
	manifest = before
	if text := made.Network.Text(); !strings.Contains(text, "installing the original's network") ||
		!strings.Contains(text, "IPPool 1") {
		t.Error(text)
	}
	copied := *original
	covered := made.Covered(Side{original, ours[0], finding.Result{}}, Side{&copied, ours[0], finding.Result{}}, nil,
		nil)
	if !slices.ContainsFunc(covered, func(c Coverage) bool {
		return c.Area == "settings: IPPools" && c.All > 0 && c.Alike == c.All && c.IsSettings()
	}) || !slices.ContainsFunc(covered, func(c Coverage) bool {
		return c.Area == cni.AreaRanges && !c.IsSettings()
	}) {
		t.Errorf("%+v", covered)
	}
}

// TestUnlikeNetworks: versions and kube-proxy's modes that differ are said.
func TestUnlikeNetworks(t *testing.T) {
	original, scratch := read(t, "odd.yaml"), read(t, "scratch.yaml")
	proxy := func(mode string) corev1.ConfigMap {
		return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"},
			Data: map[string]string{"config.conf": "mode: " + mode}}
	}
	original.ConfigMaps, scratch.ConfigMaps = []corev1.ConfigMap{proxy("ipvs")}, []corev1.ConfigMap{proxy("nftables")}
	made, err := Make(original, scratch, []*cni.Installation{{CNI: "weave", Version: "2.8.1"}},
		[]*cni.Installation{{CNI: "weave", Version: "2.6.5"}}, Options{Certify: certified})
	if err != nil {
		t.Fatal(err)
	}
	said := fmt.Sprint(made.Lacks)
	for _, want := range []string{"weave 2.8.1 the scratch cluster has weave 2.6.5", "kube-proxy's mode ipvs " +
		"the scratch cluster keeps its mode nftables", "does not copy settings of this network"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing: %s", want, said)
		}
	}
}
