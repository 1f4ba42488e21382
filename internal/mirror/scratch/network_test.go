package scratch

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// definition is the CRD of Calico's pools.
const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ippools.crd.projectcalico.org}
spec:
  group: crd.projectcalico.org
  names: {kind: IPPool, listKind: IPPoolList, plural: ippools, singular: ippool}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// TestNetworkAPIServer: a real API server takes Calico's manifest and the settings of an original, although it serves
// their kinds only then, and has none of it after the removal. Settings of a network that is there are changed, and
// are as before after the removal; an object that another program made since stays.
func TestNetworkAPIServer(t *testing.T) {
	program := clustertest.Program(t, "a network on a scratch cluster with a real API server")
	config := clustertest.ControlPlane(t, program, clustertest.Options{})
	s := &Scratch{Client: kubetest.Users(t, config)("token"), Note: func(text string) { t.Log(text) }}
	text, err := os.ReadFile(filepath.Join("..", "..", "network", "calico", "testdata", "calico-vxlan-v3.31.0.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// this API server allows no privileged pods, and the file is without definitions
	text = bytes.ReplaceAll(text, []byte("privileged: true"), []byte("privileged: false"))
	text = bytes.ReplaceAll(text, []byte("mountPropagation: Bidirectional"), []byte("mountPropagation: None"))
	text = append(append(text, "\n---\n"...), definition...)
	mark := func(documents []unstructured.Unstructured) (all []*unstructured.Unstructured) {
		for i := range documents {
			labels := documents[i].GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[rehearsal.MarkLabel], labels[rehearsal.NetworkLabel] = "of", "true"
			documents[i].SetLabels(labels)
			all = append(all, &documents[i])
		}
		return all
	}
	pools := s.Client.Dynamic.Resource(schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1",
		Resource: "ippools"})
	of := func(name string) string {
		t.Helper()
		pool, err := pools.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return "none"
		}
		return cni.FieldText(pool.Object["spec"])
	}
	const pool = "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: odd}\nspec: {cidr: " +
		"10.77.0.0/20, blockSize: 28, ipipMode: Never, vxlanMode: Always}\n"
	made := &rehearsal.Copy{Of: "of", Network: rehearsal.Network{Installs: mark(cnitest.Documents(t, text)),
		Settings: mark(cnitest.Documents(t, []byte(pool)))}}
	for range 2 {
		if err := s.Network(t.Context(), made, 2*time.Second); err == nil || !strings.Contains(err.Error(),
			"is not ready after 2s: DaemonSet kube-system/calico-node is not ready") {
			t.Fatalf("no agent runs here: %v", err)
		}
	}
	if got := of("odd"); !strings.Contains(got, `"blockSize":28`) {
		t.Errorf("the pool is %s", got)
	}
	parts, err := s.Find(t.Context())
	if err != nil || len(parts.Network) != len(made.Network.All()) || len(parts.Objects)+len(parts.Changed) > 0 {
		t.Fatalf("%v: %d of %d objects of the network; %+v", err, len(parts.Network), len(made.Network.All()), parts)
	}
	done, err := s.Remove(t.Context(), parts)
	if err != nil || done.Network != len(made.Network.All()) {
		t.Errorf("%v: %+v", err, done)
	}
	if parts, err = s.Find(t.Context()); err != nil || !parts.None() || of("odd") != "none" {
		t.Errorf("%v: left %+v", err, parts)
	}

	s.Client.Mapper.Reset()
	for _, object := range cnitest.Documents(t, append(append(text, "\n---\n"...), pool...)) { // as a user installs it
		object.SetLabels(map[string]string{"theirs": "yes"})
		if err := s.put(t.Context(), &object, nil); err != nil {
			t.Fatal(err)
		}
	}
	before := of("odd")
	agent := step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-system", Name: "calico-node"}
	const settings = "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: odd}\nspec: {cidr: " +
		"10.77.0.0/20, blockSize: 28, ipipMode: Always, natOutgoing: true}\n---\n" +
		"apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: more}\nspec: {cidr: 10.78.0.0/20}\n" +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: calico-config, namespace: kube-system}\n" +
		"data: {veth_mtu: '1380'}\n"
	gone := agent
	gone.Name = "gone"
	const passing = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: gone, namespace: kube-system}\nspec: " +
		"{selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, " +
		"image: b}]}}}\n"
	if err := s.put(t.Context(), &cnitest.Documents(t, []byte(passing))[0], nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Unchanged(t.Context()); err != nil {
		t.Errorf("a user's network: %v", err)
	}
	made = &rehearsal.Copy{Of: "of", Network: rehearsal.Network{Settings: mark(cnitest.Documents(t, []byte(settings))),
		Restart: []step.Ref{gone, agent}}}
	if err := s.Network(t.Context(), made, 2*time.Second); err == nil ||
		!strings.Contains(err.Error(), "is not ready") {
		t.Fatal(err)
	}
	restarted := func() string {
		set, err := s.Client.Typed.AppsV1().DaemonSets("kube-system").Get(t.Context(), "calico-node",
			metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return set.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"]
	}
	first := restarted()
	if !strings.Contains(of("odd"), `"ipipMode":"Always"`) || first == "" {
		t.Errorf("%s, restarted at %q", of("odd"), first)
	}
	if parts, err = s.Find(t.Context()); err != nil || len(parts.Network) != 1 || len(parts.Changed) != 2 {
		t.Fatalf("%v: %+v", err, parts)
	}
	if err := s.Unchanged(t.Context()); err == nil || !strings.Contains(err.Error(),
		"of an earlier rehearsal: IPPool more") {
		t.Errorf("what a rehearsal left: %v", err)
	}
	if err := s.Client.Typed.AppsV1().DaemonSets("kube-system").Delete(t.Context(), "gone",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if done, err = s.Remove(t.Context(), parts); err != nil || done.Network != 1 || done.Changed != 2 {
		t.Errorf("%v: %+v", err, done)
	}
	configMap, err := s.Client.Typed.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "calico-config",
		metav1.GetOptions{})
	if err != nil || configMap.Data["veth_mtu"] != "0" || of("odd") != before || of("more") != "none" ||
		restarted() == first {
		t.Errorf("%v: %v, %s, %s", err, configMap.Data["veth_mtu"], of("odd"), of("more"))
	}
	if parts, err = s.Find(t.Context()); err != nil || !parts.None() {
		t.Errorf("%v: left %+v", err, parts)
	}

	// What is there already, and cannot be changed, is refused.
	made = &rehearsal.Copy{Of: "of", Network: rehearsal.Network{Installs: mark(cnitest.Documents(t, text))}}
	if err := s.Network(t.Context(), made, time.Second); err == nil ||
		!strings.Contains(err.Error(), "the scratch cluster has such an object already") {
		t.Errorf("objects of others: %v", err)
	}
}
