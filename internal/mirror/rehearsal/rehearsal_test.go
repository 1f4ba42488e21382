package rehearsal

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func read(t *testing.T, name string) *cluster.Snapshot {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	s := cnitest.Snapshot(t, cnitest.Documents(t, data))
	for _, resource := range slices.AppendSeq(slices.AppendSeq(needed(), maps.Values(hookKinds())),
		maps.Values(bounding())) {
		s.Sources = append(s.Sources, cluster.Source{Resource: resource, From: "test"})
	}
	cluster.Trim(s)
	return s
}

func same(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs (%v); -update rewrites it:\n%s", name, err, got)
	}
}

// TestGolden: the whole copy of an odd cluster, as text and as objects. Nothing of the original's images, commands,
// secrets, host folders and claims is in it.
func TestGolden(t *testing.T) {
	made, err := Make(read(t, "odd.yaml"), read(t, "scratch.yaml"), nil, nil,
		Options{Image: "registry.example.com/agent:1", Certify: certified})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := made.Text(&out); err != nil {
		t.Fatal(err)
	}
	same(t, "odd.txt", out.Bytes())
	out.Reset()
	for _, node := range made.Nodes {
		fmt.Fprintf(&out, "# Node %s: %v %v\n", node.Name, node.Labels, node.Taints)
	}
	for _, object := range made.All() {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
	same(t, "odd-copy.yaml", out.Bytes())
	for _, private := range []string{"example.com/web", "--secret", "hostPath", "volumeClaimTemplates", "Authorization",
		"192.0.2.7", "imagePullSecrets", "serviceAccountName", "private", "type: LoadBalancer"} {
		if strings.Contains(strings.ReplaceAll(out.String(), "registry.example.com", ""), private) {
			t.Errorf("the copy has %q", private)
		}
	}
}

// patched is a node after a merge patch, with the managedFields of a rehearsal that sets these labels and the
// annotation.
func patched(t *testing.T, node *corev1.Node, patch []byte, labels ...string) *corev1.Node {
	t.Helper()
	before, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		t.Fatal(err)
	}
	var made corev1.Node
	if err := json.Unmarshal(after, &made); err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	for _, label := range labels {
		fields["f:"+label] = map[string]any{}
	}
	raw, err := json.Marshal(map[string]any{"f:metadata": map[string]any{"f:labels": fields,
		"f:annotations": map[string]any{"f:" + BeforeAnnotation: map[string]any{}}}})
	if err != nil {
		t.Fatal(err)
	}
	made.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: Manager, FieldsV1: &metav1.FieldsV1{Raw: raw}}}
	return &made
}

// TestRestore: a node gets back what it had. What others did to it meanwhile stays, and what others wrote into the
// annotation is not believed.
func TestRestore(t *testing.T) {
	scratch := read(t, "scratch.yaml")
	made, err := Make(read(t, "odd.yaml"), scratch, nil, nil, Options{Certify: certified})
	if err != nil {
		t.Fatal(err)
	}
	change := made.Nodes[slices.IndexFunc(made.Nodes, func(n NodeChange) bool { return n.Name == "s-2" })]
	live := &scratch.Nodes[slices.IndexFunc(scratch.Nodes, func(n corev1.Node) bool { return n.Name == "s-2" })]
	theirs := corev1.Taint{Key: "theirs", Effect: corev1.TaintEffectNoExecute}
	live.Spec.Taints = append(live.Spec.Taints, theirs) // since the scratch cluster was read
	live.ResourceVersion = "7"
	patch, err := change.Patch(live)
	if err != nil || !strings.Contains(string(patch), `"resourceVersion":"7"`) {
		t.Fatal(err, string(patch))
	}
	given := patched(t, live, patch, "gpu", "topology.kubernetes.io/zone")
	if again, err := change.Patch(given); err != nil || again != nil {
		t.Errorf("a second time: %v, %s", err, again)
	}
	if len(given.Spec.Taints) != 2 || given.Labels["gpu"] != "yes" {
		t.Errorf("%v %v", given.Labels, given.Spec.Taints)
	}
	given.Spec.Taints = append(given.Spec.Taints, corev1.Taint{Key: "later", Effect: corev1.TaintEffectNoSchedule})
	given.Labels["later"] = "yes"
	if patch, err = Restore(given); err != nil {
		t.Fatal(err)
	}
	back := patched(t, given, patch)
	if want := []corev1.Taint{theirs, given.Spec.Taints[2]}; !slices.Equal(back.Spec.Taints, want) {
		t.Errorf("taints are %v, want %v", back.Spec.Taints, want)
	}
	if _, has := back.Labels["gpu"]; has || back.Labels["topology.kubernetes.io/zone"] != "z" ||
		back.Labels["later"] != "yes" || back.Annotations[BeforeAnnotation] != "" {
		t.Errorf("%v %v", back.Labels, back.Annotations)
	}
	given.Labels["gpu"] = "no" // set by another program since
	if patch, err = Restore(given); err != nil || strings.Contains(string(patch), "gpu\":null") {
		t.Errorf("%v: %s", err, patch)
	}
	given.Annotations[BeforeAnnotation] = "{"
	if _, err := Restore(given); err == nil {
		t.Error("a broken annotation is accepted")
	}
	given.ManagedFields[0].Manager = "kubectl"
	if patch, err := Restore(given); err != nil || patch != nil {
		t.Errorf("an annotation that another program wrote: %v, %s", err, patch)
	}
}

// TestEvictingTaints: a taint that evicts pods keeps them off in the copy, and pods that tolerate it are not kept off.
func TestEvictingTaints(t *testing.T) {
	original := read(t, "odd.yaml")
	for i := range original.Nodes {
		for j := range original.Nodes[i].Spec.Taints {
			if taint := &original.Nodes[i].Spec.Taints[j]; taint.Key == "gpu" {
				taint.Effect = corev1.TaintEffectNoExecute
			}
		}
	}
	tolerations := &original.DaemonSets[0].Spec.Template.Spec.Tolerations
	*tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists,
		Effect: corev1.TaintEffectNoExecute}}
	made, err := Make(original, read(t, "scratch.yaml"), nil, nil, Options{Certify: certified})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range made.Nodes {
		for _, taint := range node.Taints {
			if taint.Effect == corev1.TaintEffectNoExecute {
				t.Errorf("%s gets %v", node.Name, taint)
			}
		}
	}
	var text bytes.Buffer
	for _, object := range made.Objects {
		if object.GetKind() == "DaemonSet" {
			data, err := yaml.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(data)
		}
	}
	if err := made.Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"effect: NoSchedule\n        key: gpu", "taints that evict pods (gpu)"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing:\n%s", want, text.String())
		}
	}
}

// TestRefused: clusters that no copy is made of, or on, each with what it says.
func TestRefused(t *testing.T) {
	flannel, calico := &cni.Installation{CNI: "flannel", Version: "v0.26"},
		&cni.Installation{CNI: "calico", Version: "v3.30"}
	one := []*cni.Installation{flannel}
	for name, test := range map[string]struct {
		run  func(original, scratch *cluster.Snapshot) error
		says string
	}{
		"no kinds": {func(original, _ *cluster.Snapshot) error {
			original.Sources = original.Sources[3:]
			return Usable(original)
		}, "nodes (not in the input), namespaces (not in the input), pods"},
		"no identity": {func(original, _ *cluster.Snapshot) error { original.UID = ""; return Usable(original) },
			"does not identify its cluster"},
		"the original": {func(original, _ *cluster.Snapshot) error { return Same(original, original, one, one) },
			"is the original itself"},
		"two networks": {func(o, s *cluster.Snapshot) error {
			return Same(o, s, []*cni.Installation{flannel, calico}, one)
		}, "2 known networks"},
		"no network": {func(o, s *cluster.Snapshot) error { return Same(o, s, one, nil) },
			"no network that Theseus knows, and the original has flannel"},
		"another network": {func(o, s *cluster.Snapshot) error { return Same(o, s, one, []*cni.Installation{calico}) },
			"the scratch cluster has calico v3.30, and the original has flannel v0.26"},
		"not empty": {func(_, s *cluster.Snapshot) error {
			s.Namespaces = append(s.Namespaces, corev1.Namespace{})
			s.Namespaces[1].Name = "theirs"
			s.Services = append(s.Services, corev1.Service{}, corev1.Service{})
			s.Services[0].Namespace, s.Services[0].Name = "default", "kubernetes"
			s.Services[1].Namespace, s.Services[1].Name = "default", "mine"
			return Empty(s, nil)
		}, "is not empty: it has Namespace theirs, Service default/mine"},
		"guests of the system": {func(_, s *cluster.Snapshot) error {
			s.Pods = append(s.Pods, corev1.Pod{}, corev1.Pod{})
			s.Pods[0].Namespace, s.Pods[0].Name, s.Pods[0].Spec.PriorityClassName = "kube-system",
				"dns", "system-cluster-critical"
			s.Pods[1].Namespace, s.Pods[1].Name = "kube-system", "ingress"
			return Empty(s, nil)
		}, "is not empty: it has Pod kube-system/ingress"},
		"of another controller": {func(_, s *cluster.Snapshot) error {
			s.Pods = append(s.Pods, corev1.Pod{})
			s.Pods[0].Namespace, s.Pods[0].Name = "default", "kafka-0"
			s.Pods[0].OwnerReferences = []metav1.OwnerReference{{Kind: "Kafka", Name: "kafka"}}
			return Empty(s, nil)
		}, "is not empty: it has Pod default/kafka-0"},
		"unread": {func(_, s *cluster.Snapshot) error {
			s.Sources = slices.DeleteFunc(s.Sources, func(s cluster.Source) bool { return s.Resource == "services" })
			return Empty(s, nil)
		}, "is empty: these could not be read: services"},
		"mistyped key": {func(o, s *cluster.Snapshot) error {
			_, err := Make(o, s, nil, nil, Options{Certify: certified, Ignore: []string{"gpus"}})
			return err
		}, "--ignore gpus: no node of the original has such a label or taint"},
		"no control-plane node": {func(o, s *cluster.Snapshot) error {
			s.Nodes = s.Nodes[1:]
			_, err := Make(o, s, nil, nil, Options{Certify: certified})
			return err
		}, "it has 0 ready, schedulable control-plane nodes"},
		"kept": {func(_, s *cluster.Snapshot) error {
			s.Namespaces = append(s.Namespaces, corev1.Namespace{})
			s.Namespaces[1].Name, s.Namespaces[1].Labels = "shop", map[string]string{MarkLabel: "x"}
			return Empty(s, nil)
		}, "a copy of an earlier rehearsal: shop"},
		"too few nodes": {func(o, s *cluster.Snapshot) error {
			s.Nodes = s.Nodes[:3]
			_, err := Make(o, s, nil, nil, Options{Certify: certified})
			return err
		}, "it has 2 ready, schedulable workers, and the original has 3 classes of workers"},
		"no room": {func(o, s *cluster.Snapshot) error {
			for i := range s.Nodes {
				s.Nodes[i].Status.Allocatable[corev1.ResourcePods] = *s.Nodes[i].Status.Allocatable.Cpu()
			}
			_, err := Make(o, s, nil, nil, Options{Certify: certified})
			return err
		}, "too small: the copy has"},
	} {
		err := test.run(read(t, "odd.yaml"), read(t, "scratch.yaml"))
		refusal, ok := err.(*cni.Refusal)
		if !ok || !strings.Contains(err.Error(), test.says) || refusal.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Empty(read(t, "scratch.yaml"), nil); err != nil {
		t.Error(err)
	}
}

// TestNamespacesLeft: nothing of a namespace that is being deleted is copied, nor of one that the scratch cluster's
// network has.
func TestNamespacesLeft(t *testing.T) {
	for name, network := range map[string][]*cni.Installation{
		"it is being deleted": nil,
		"the scratch cluster's network has a namespace of this name": {{CNI: "flannel",
			Agent: step.Ref{Kind: "DaemonSet", Namespace: "shop", Name: "agent"}}},
	} {
		original := read(t, "odd.yaml")
		if network == nil {
			now := metav1.Now()
			original.Namespaces[1].DeletionTimestamp = &now
		}
		made, err := Make(original, read(t, "scratch.yaml"), nil, network, Options{Certify: certified})
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range made.Objects {
			if object.GetNamespace() == "shop" || object.GetName() == "shop" {
				t.Errorf("%s: the copy has %s %s", name, object.GetKind(), object.GetName())
			}
		}
		if !slices.ContainsFunc(made.Left,
			func(l Left) bool { return l.Object == "Namespace shop" && strings.HasPrefix(l.Why, name) }) {
			t.Errorf("%s: %v", name, made.Left)
		}
	}
}

// TestIgnore: what is ignored does not tell classes apart, so that fewer nodes can play them.
func TestIgnore(t *testing.T) {
	scratch := read(t, "scratch.yaml")
	scratch.Nodes = scratch.Nodes[:2]
	made, err := Make(read(t, "odd.yaml"), scratch, nil, nil,
		Options{Certify: certified, Ignore: []string{"gpu", "capacity", "topology.kubernetes.io/zone"}})
	if err != nil || len(made.Classes) != 2 || len(made.Classes[0].Nodes)+len(made.Classes[1].Nodes) != 7 {
		t.Errorf("%v: %+v", err, made.Classes)
	}
}

// TestBudgets: a budget allows nothing in the copy if it allows nothing in the original, and something if it allows
// something, for all forms and sizes.
func TestBudgets(t *testing.T) {
	for _, text := range []string{"0", "1", "3", "7", "0%", "10%", "50%", "90%", "99%", "100%"} {
		for before := 1; before <= 30; before++ {
			for after := min(before, 2); after <= before; after++ {
				for _, of := range []bool{false, true} {
					value := intstr.Parse(text)
					spec := &policyv1.PodDisruptionBudgetSpec{MinAvailable: &value}
					if of {
						spec = &policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &value}
					}
					allowed := allows(spec, before)
					got := share(allowed, before, after)
					if (allowed == 0) != (got == 0) ||
						after > 1 && (allowed == before) != (got == after) || got > after {
						t.Errorf("%s (maxUnavailable %v): %d of %d become %d of %d",
							text, of, allowed, before, got, after)
					}
				}
			}
		}
	}
}

// TestCovered: what is alike is counted, and what is not is named.
func TestCovered(t *testing.T) {
	original, scratch := read(t, "odd.yaml"), read(t, "scratch.yaml")
	made, err := Make(original, scratch, nil, nil, Options{Certify: certified})
	if err != nil {
		t.Fatal(err)
	}
	pod := func(s *cluster.Snapshot, kind, name, app, ip string) {
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %[2]s-0, namespace: shop, labels: {app: "+
			"%[3]s}, ownerReferences: [{apiVersion: apps/v1, kind: %[1]s, name: %[2]s, uid: u, controller: true}]}\n"+
			"spec: {containers: [{name: a, image: a, ports: [{containerPort: 5432}]}]}\n"+
			"status: {phase: Running, podIP: %[4]s, podIPs: [{ip: %[4]s}]}\n", kind, name, app, ip)
		s.Pods = append(s.Pods, cnitest.Snapshot(t, cnitest.Documents(t, []byte(text))).Pods...)
	}
	scratch.Namespaces = append(scratch.Namespaces, original.Namespaces[1])
	for i, s := range []*cluster.Snapshot{original, scratch} {
		pod(s, "StatefulSet", "db", "db", fmt.Sprintf("172.%d.0.1", 16+i))
		pod(s, "DaemonSet", "gpu", "gpu", fmt.Sprintf("172.%d.0.2", 16+i))
	}
	network := func(version string) *cni.Installation {
		return &cni.Installation{CNI: "calico", Version: version, PodCIDRs: []string{"172.16.0.0/12"},
			Capabilities: cni.Capabilities{Policy: cni.PolicyCalico}}
	}
	finds := func(ids ...string) finding.Result {
		var all []finding.Finding
		for _, id := range ids {
			all = append(all, finding.Finding{ID: id, Severity: finding.Warn})
		}
		return finding.NewResult(all, []finding.NotChecked{{ID: "c", Why: "x"}})
	}
	var out bytes.Buffer
	covered := made.Covered(Side{original, network("v3.30"), finds("a", "b")},
		Side{scratch, network("v3.29"), finds("a")}, []string{"a", "b", "c"}, []string{"DaemonSet shop/gpu: no node"})
	if err := CoverageText(&out, covered); err != nil {
		t.Fatal(err)
	}
	// the policy of the original denies gpu to db; the copy of the test has no policies
	for _, want := range []string{"classes of nodes  4 of 4", "not alike: DaemonSet shop/gpu: no node",
		"not alike: Kafka shop/kafka: the copy has no controller for its pods",
		"not alike: version of the network: v3.30 in the original, v3.29 in the copy",
		"checks            1 of 3", "not alike: c: not checked on the original, not checked on the copy",
		"not alike: b: warn on the original, nothing on the copy",
		"policy verdicts   1 of 2",
		"not alike: DaemonSet shop/gpu to StatefulSet shop/db, TCP 5432: deny in the original, allow in the copy"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
}

// TestVerdictsUnevaluated: a policy that is not evaluated is named, and no verdict that it may decide is alike.
func TestVerdictsUnevaluated(t *testing.T) {
	pod := func(name, ip string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %[1]s-0, namespace: shop, ownerReferences: "+
			"[{apiVersion: apps/v1, kind: StatefulSet, name: %[1]s, uid: u, controller: true}]}\n"+
			"spec: {nodeName: node-1, containers: [{name: a, ports: [{containerPort: 80}]}]}\n"+
			"status: {phase: Running, podIP: %[2]s}\n---\n", name, ip)
	}
	text := pod("a", "10.0.0.1") + pod("b", "10.0.0.2")
	const admin = "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: all}\n" +
		"spec: {subject: {namespaces: {}}}\n"
	network := &cni.Installation{CNI: "calico", Capabilities: cni.Capabilities{Policy: cni.PolicyCalico}}
	c := &Copy{Workloads: []Workload{{Kind: "StatefulSet", Namespace: "shop", Name: "a"},
		{Kind: "StatefulSet", Namespace: "shop", Name: "b"}}}
	for text, alike := range map[string]int{text: 2, text + admin: 0} {
		side := Side{Snapshot: cnitest.Snapshot(t, cnitest.Documents(t, []byte(text))), Network: network}
		covered := verdicts(c, side, side)
		named := slices.ContainsFunc(covered.Not, func(not string) bool {
			return strings.HasPrefix(not, "AdminNetworkPolicy/all: policies of this kind are not evaluated")
		})
		if covered.All != 2 || covered.Alike != alike || named != (alike == 0) ||
			slices.Contains(covered.Unevaluated, "AdminNetworkPolicy/all") != named {
			t.Errorf("%+v", covered)
		}
	}
	const odd = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: odd}\n" +
		"spec: {selector: '('}\n"
	side := Side{Snapshot: cnitest.Snapshot(t, cnitest.Documents(t, []byte(text+odd))), Network: network}
	if covered := verdicts(c, side, side); len(covered.Unevaluated) != 1 {
		t.Errorf("a policy that cannot be read is not in the copy: %+v", covered)
	}
	c.Objects = append(c.Objects, &cnitest.Documents(t, []byte(odd))[0])
	if covered := verdicts(c, side, side); len(covered.Unevaluated) > 0 || len(covered.Not) == 0 {
		t.Errorf("a policy that cannot be read is in the copy: %+v", covered)
	}
}

// TestTiers: a policy in a tier is not copied without its tier, and both are named; nor is one of an API group that is
// not served.
func TestTiers(t *testing.T) {
	original := read(t, "odd.yaml")
	text := "apiVersion: crd.projectcalico.org/v1\nkind: Tier\nmetadata: {name: safe}\n---\napiVersion: " +
		"crd.projectcalico.org/v1\nkind: GlobalNetworkPolicy\nmetadata: {name: safe.all}\nspec: {tier: safe}\n" +
		"---\napiVersion: crd.projectcalico.org/v1\nkind: GlobalNetworkPolicy\nmetadata: {name: default.all}\n" +
		"spec: {tier: default}\n"
	original.Other = append(original.Other, cnitest.Snapshot(t, cnitest.Documents(t, []byte(text))).Other...)
	network := &cni.Installation{CNI: "calico"}
	for i := range original.Other {
		if original.Other[i].GetKind() == "GlobalNetworkPolicy" {
			network.Written = append(network.Written, step.RefOf(&original.Other[i]))
		}
	}
	made, err := Make(original, read(t, "scratch.yaml"), []*cni.Installation{network}, nil, Options{Certify: certified})
	if err != nil {
		t.Fatal(err)
	}
	said := fmt.Sprint(made.Left)
	for _, want := range []string{"Tier safe tiers are not copied",
		"GlobalNetworkPolicy safe.all its tier is not copied",
		"GlobalNetworkPolicy default.all the scratch cluster does not serve this kind in this API " +
			"group (crd.projectcalico.org)"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing: %s", want, said)
		}
	}
}

// TestConfigures: an object that configures the network is left out, unless the scratch cluster's is alike.
func TestConfigures(t *testing.T) {
	pool := func(cidr string) cluster.Snapshot {
		text := "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: pods, uid: '" + cidr +
			"'}\nspec: {cidr: " + cidr + "}\n"
		return *cnitest.Snapshot(t, cnitest.Documents(t, []byte(text)))
	}
	for theirs, want := range map[string]string{"10.0.0.0/16": "",
		"10.1.0.0/16": "it configures the network, and the scratch cluster's object of this name differs",
		"":            "it configures the network, and the scratch cluster's network is as you installed it"} {
		original, scratch := read(t, "odd.yaml"), read(t, "scratch.yaml")
		original.Other = append(original.Other, pool("10.0.0.0/16").Other...)
		if theirs != "" {
			scratch.Other = append(scratch.Other, pool(theirs).Other...)
		}
		network := &cni.Installation{CNI: "calico", Written: []step.Ref{step.RefOf(&pool("10.0.0.0/16").Other[0])}}
		made, err := Make(original, scratch, []*cni.Installation{network}, nil, Options{Certify: certified})
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, left := range made.Left {
			if left.Object == "IPPool pods" {
				said = left.Why
			}
		}
		if said != want {
			t.Errorf("the scratch cluster has %q: %q, want %q", theirs, said, want)
		}
	}
}

// TestNothingToCompare: an area without anything is not covered in full.
func TestNothingToCompare(t *testing.T) {
	var out bytes.Buffer
	if err := CoverageText(&out, []Coverage{{Area: "policy verdicts"}}); err != nil ||
		!strings.Contains(out.String(), "policy verdicts  nothing to compare") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestPlatform: nodes of a platform that the scratch cluster does not have are said.
func TestPlatform(t *testing.T) {
	original := read(t, "odd.yaml")
	original.Nodes[1].Status.NodeInfo.OperatingSystem, original.Nodes[1].Status.NodeInfo.Architecture = "linux", "arm64"
	made, err := Make(original, read(t, "scratch.yaml"), nil, nil, Options{Certify: certified})
	if err != nil || !slices.ContainsFunc(made.Lacks, func(l Lack) bool { return l.What == "nodes of linux/arm64" }) {
		t.Errorf("%v: %v", err, made.Lacks)
	}
}

// TestOrder: what pods need comes before them.
func TestOrder(t *testing.T) {
	var all []*unstructured.Unstructured
	for _, kind := range []string{"Pod", "PodDisruptionBudget", "NetworkPolicy", "Secret", "Namespace"} {
		all = append(all, &unstructured.Unstructured{Object: map[string]any{"kind": kind}})
	}
	order(all)
	for i, want := range []string{"Namespace", "Secret", "NetworkPolicy", "PodDisruptionBudget", "Pod"} {
		if all[i].GetKind() != want {
			t.Errorf("%d: %s, want %s", i, all[i].GetKind(), want)
		}
	}
}

// certified is a certificate whose only content is the names that it would be for.
func certified(names []string) (Certificate, error) {
	return Certificate{Authority: []byte("authority of " + strings.Join(names, ",")),
		Serving: []byte("certificate of " + strings.Join(names, ","))}, nil
}

// TestWebhooksLeft: webhooks that the copy cannot have are named, and those that must answer are told as not rehearsed.
func TestWebhooksLeft(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(original, scratch *cluster.Snapshot)
		kept    int
		unasked string
		why     string
	}{
		"as it is": {func(*cluster.Snapshot, *cluster.Snapshot) {}, 1, "outside.example.com system.example.com",
			"it is outside of the cluster"},
		"name taken": {func(original, scratch *cluster.Snapshot) {
			scratch.Other = append(scratch.Other,
				original.OtherOf("admissionregistration.k8s.io", "ValidatingWebhookConfiguration")...)
		}, 0, "shop.example.com outside.example.com system.example.com",
			"the scratch cluster has a configuration of this name"},
		"no pods": {func(original, _ *cluster.Snapshot) {
			original.Deployments = slices.DeleteFunc(original.Deployments, func(d appsv1.Deployment) bool {
				return d.Namespace == "shop" && d.Name == "web"
			})
		}, 0, "outside.example.com system.example.com shop.example.com",
			"the copy has no pods behind port 443 of its Service shop/web"},
		"scope": {func(original, scratch *cluster.Snapshot) {
			for i := range original.Other {
				if hooks, found, _ := unstructured.NestedSlice(original.Other[i].Object, "webhooks"); found {
					hooks[0].(map[string]any)["namespaceSelector"] = map[string]any{
						"matchExpressions": []any{map[string]any{"key": "policy", "operator": "DoesNotExist"}}}
					original.Other[i].Object["webhooks"] = hooks
				}
			}
			system := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}
			scratch.Namespaces = append(scratch.Namespaces, system)
			system.Labels = map[string]string{"policy": "ignore"}
			original.Namespaces = append(original.Namespaces, system)
		}, 0, "shop.example.com outside.example.com system.example.com",
			"its namespaceSelector reads labels of the namespace kube-system, which the scratch cluster's has not"},
		"not read": {func(original, _ *cluster.Snapshot) {
			original.Sources = slices.DeleteFunc(original.Sources, func(s cluster.Source) bool {
				return s.Resource == "mutatingwebhookconfigurations"
			})
		}, 1, "those of MutatingWebhookConfigurations (not in the input) outside.example.com system.example.com", ""},
	} {
		original, scratch := read(t, "odd.yaml"), read(t, "scratch.yaml")
		c.change(original, scratch)
		made, err := Make(original, scratch, nil, nil, Options{Certify: certified})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		said := c.why == "" || slices.ContainsFunc(made.Left, func(l Left) bool {
			return strings.HasPrefix(l.Object, "ValidatingWebhookConfiguration guard: ") && l.Why == c.why
		})
		if len(made.Webhooks) != c.kept || strings.Join(made.Unasked, " ") != c.unasked || !said {
			t.Errorf("%s: %d kept, unasked %q, left %v", name, len(made.Webhooks), made.Unasked, made.Left)
		}
		if secret := slices.ContainsFunc(made.Objects,
			func(o *unstructured.Unstructured) bool { return o.GetName() == servingSecret }); secret != (c.kept > 0) {
			t.Errorf("%s: the Secret of the stand-ins: %v", name, secret)
		}
	}
	made, err := Make(read(t, "odd.yaml"), read(t, "scratch.yaml"), nil, nil, Options{Certify: certified})
	if err != nil {
		t.Fatal(err)
	}
	if late := made.Unanswered([]string{"Deployment shop/web", "StatefulSet shop/db"}); !slices.Equal(late,
		[]string{"Deployment shop/web"}) {
		t.Errorf("%q answer for webhooks", late)
	}
}
