package canal_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/canal"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

func present(t *testing.T) *cluster.Snapshot { return cnitest.Shape(t, "canal") }

func TestAcceptance(t *testing.T) {
	for _, other := range []string{"flannel", "weave", "bridge"} {
		t.Run(other, func(t *testing.T) {
			cnitest.Run(t, cnitest.Case{Driver: canal.Driver{}, Present: present(t), Other: cnitest.Golden(t, other)})
		})
	}
}

func TestDetect(t *testing.T) {
	snapshot := present(t)
	for i := range snapshot.Facts {
		snapshot.Facts[i].Links = append(snapshot.Facts[i].Links, cluster.Link{Name: "flannel.1", MTU: 1450},
			cluster.Link{Name: "cali123", MTU: 1480})
	}
	found := canal.Driver{}.Detect(snapshot)
	caps := found.Capabilities
	if found.Version != "v3.31.0" || !slices.Equal(found.PodCIDRs, []string{"10.244.0.0/16"}) || caps.VNI != 1 ||
		caps.Port != 8472 || caps.MTU != 1450 || caps.LinkMTU != 1480 || caps.Policy != cni.PolicyCalico ||
		caps.ConfName != "10-canal.conflist" || !slices.Equal(caps.HostLinks, []string{"flannel.1"}) ||
		caps.Masquerade == nil || caps.Attachment != nil || found.Untried != "" || len(found.Problems) > 0 {
		t.Errorf("found %+v", found)
	}
	if len(found.Readings) != 1 || found.Readings[0].URL != "http://127.0.0.1:9091/metrics" {
		t.Errorf("the metrics of Calico's agent are not read: %+v", found.Readings)
	}
	var order []string
	for _, part := range found.Parts {
		order = append(order, part.String())
	}
	want := []string{"DaemonSet/kube-system/canal", "ConfigMap/kube-system/canal-config",
		"ClusterRoleBinding/canal-flannel", "ClusterRoleBinding/canal-calico", "ClusterRole/flannel",
		"ServiceAccount/kube-system/canal"}
	if !slices.Equal(order, want) {
		t.Errorf("parts are %q, not %q", order, want)
	}
	residue := canal.Driver{}.Residue(found)
	if !slices.Contains(residue.Paths, "/var/lib/cni/networks/k8s-pod-network") ||
		slices.ContainsFunc(residue.Links, func(l string) bool { return strings.HasPrefix(l, "cali") }) {
		t.Errorf("residue %+v", residue)
	}
}

// TestCession: the rest of Canal runs where the label is, without Calico's agent and what only that needs, and the
// DaemonSet leaves the same nodes, whatever it demanded of nodes before.
func TestCession(t *testing.T) {
	snapshot := present(t)
	pod := &snapshot.DaemonSets[0].Spec.Template.Spec
	linux := corev1.NodeSelectorRequirement{Key: "kubernetes.io/os", Operator: "In", Values: []string{"linux"}}
	plain := canal.Driver{}.Detect(snapshot).Cession
	pod.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{linux}}}}}}
	bound := canal.Driver{}.Detect(snapshot).Cession

	kept, _, _ := unstructured.NestedSlice(plain.Keep.Object, "spec", "template", "spec", "containers")
	selector, _, _ := unstructured.NestedStringMap(plain.Keep.Object, "spec", "template", "spec", "nodeSelector")
	volumes, _, _ := unstructured.NestedSlice(plain.Keep.Object, "spec", "template", "spec", "volumes")
	if _, init, _ := unstructured.NestedSlice(plain.Keep.Object, "spec", "template", "spec", "initContainers"); init ||
		len(kept) != 1 || kept[0].(map[string]any)["name"] != "kube-flannel" || len(volumes) > 0 ||
		selector["theseus.dev/target"] != "true" || plain.To != "calico" {
		t.Errorf("the rest is %+v", plain.Keep)
	}
	role, binding := plain.Rights[0], plain.Rights[1]
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
	if len(plain.Rights) != 2 || role.GetName() != "canal-cni-token" || binding.GetName() != role.GetName() ||
		!reflect.DeepEqual(rules, []any{map[string]any{"apiGroups": []any{""}, "verbs": []any{"create"},
			"resources": []any{"serviceaccounts/token"}, "resourceNames": []any{"canal"}}}) ||
		!reflect.DeepEqual(subjects, []any{map[string]any{"kind": "ServiceAccount", "namespace": "kube-system",
			"name": "canal"}}) {
		t.Errorf("it keeps the rights %+v", plain.Rights)
	}
	if plain.Selector != "k8s-app=canal,theseus.dev/managed=true" {
		t.Errorf("its pods are those of %s", plain.Selector)
	}
	if got := string(plain.Return); !strings.Contains(got, `"affinity":null`) ||
		!strings.Contains(got, "updateStrategy") {
		t.Errorf("the way back is %s", got)
	}
	for _, c := range []*cni.Cession{plain, bound} {
		if got := string(c.Leave); !strings.Contains(got, `"NotIn"`) || !strings.Contains(got, `"OnDelete"`) {
			t.Errorf("it leaves by %s", got)
		}
	}
	if !strings.Contains(string(bound.Leave), "kubernetes.io/os") ||
		!strings.Contains(string(bound.Return), "kubernetes.io/os") || strings.Contains(string(bound.Return), "NotIn") {
		t.Errorf("what the DaemonSet demanded is lost: %s, and %s", bound.Leave, bound.Return)
	}
	if _, err := json.Marshal(plain); err != nil {
		t.Error(err)
	}
}

// TestDetectOddities: what a person must look at is a problem, and what Theseus was never run with is refused.
func TestDetectOddities(t *testing.T) {
	felix := func(s *cluster.Snapshot) *corev1.Container { return &s.DaemonSets[0].Spec.Template.Spec.Containers[0] }
	pool := func(name, cidr string) func(*cluster.Snapshot) {
		return func(s *cluster.Snapshot) {
			s.Other = append(s.Other, unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": map[string]any{"name": name},
				"spec": map[string]any{"cidr": cidr}}})
		}
	}
	for _, test := range []struct {
		name    string
		change  func(*cluster.Snapshot)
		problem string
	}{
		{"another pool", pool("own", "10.99.0.0/16"), "IPPool own (10.99.0.0/16)"},
		{"a pool of the pods' range", pool("own", "10.244.0.0/16"), "IPPool own (10.244.0.0/16)"},
		{"its own pool of the pods' range", func(s *cluster.Snapshot) {
			s.Other[0].Object["spec"].(map[string]any)["cidr"] = "10.244.0.0/16"
		}, ""},
		{"its own pool with a tunnel", func(s *cluster.Snapshot) {
			s.Other[0].Object["spec"].(map[string]any)["vxlanMode"] = "Always"
		}, "IPPool default-ipv4-ippool (192.168.0.0/16)"},
		{"no pool", func(s *cluster.Snapshot) { s.Other = nil }, "no IPPool for IPv4 exists"},
		{"Typha in the settings", func(s *cluster.Snapshot) {
			s.ConfigMaps[0].Data["typha_service_name"] = "calico-typha"
		}, "may go through Typha"},
		{"Typha runs", func(s *cluster.Snapshot) {
			s.Deployments = append(s.Deployments,
				appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "calico-typha"}})
		}, "may go through Typha"},
		{"a pool of the other family", pool("six", "fd00::/64"), ""},
		{"etcd", func(s *cluster.Snapshot) { felix(s).Env[0].Value = "etcdv3" }, "etcd"},
		{"host-gw", func(s *cluster.Snapshot) {
			s.ConfigMaps[0].Data["net-conf.json"] = `{"Network": "10.244.0.0/16", "Backend": {"Type": "host-gw"}}`
		}, "another backend than vxlan"},
		{"bad settings", func(s *cluster.Snapshot) { s.ConfigMaps[0].Data["net-conf.json"] = "{" }, "cannot be read"},
		{"no settings", func(s *cluster.Snapshot) { s.ConfigMaps = nil }, "canal-config does not exist"},
		{"half removed", func(s *cluster.Snapshot) { s.DaemonSets = nil }, "but no DaemonSet runs flannel and Calico"},
		{"an unfinished change", func(s *cluster.Snapshot) {
			s.DaemonSets[0].Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.
					NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "theseus.dev/target", Operator: "NotIn", Values: []string{"true"}}}}}}}}
		}, "one was begun here"},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := present(t)
			test.change(snapshot)
			cnitest.Understood(t, canal.Driver{}, snapshot, test.problem, nil)
		})
	}
	tunnel := present(t)
	tunnel.Other[0].Object["spec"].(map[string]any)["vxlanMode"] = "Always"
	if found := (canal.Driver{}).Detect(tunnel); !strings.Contains(found.Instead, "kubectl patch ippools") {
		t.Errorf("the hint would leave Canal without a pool: %s", found.Instead)
	}
	if found := (canal.Driver{}).Detect(cnitest.Shape(t, "rke2-canal")); !strings.Contains(found.Untried, "RKE2") ||
		len(found.Problems) > 0 || found.Cession != nil {
		t.Errorf("found %+v", found)
	}
}
