package whatif

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// node makes a node of a line: name, kubelet's version, then labels, !taints and @annotations.
func node(line string) corev1.Node {
	var n corev1.Node
	n.Labels, n.Annotations = map[string]string{}, map[string]string{}
	for i, field := range strings.Fields(line) {
		key, value, _ := strings.Cut(field, "=")
		switch {
		case i == 0:
			n.Name = field
		case i == 1:
			n.Status.NodeInfo.KubeletVersion = field
		case field[0] == '!':
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key[1:], Effect: corev1.TaintEffectNoSchedule})
		case field[0] == '@':
			n.Annotations[key[1:]] = value
		default:
			n.Labels[key] = value
		}
	}
	return n
}

func describe(n *corev1.Node) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		parts = append(parts, strings.TrimSuffix(key+"="+n.Labels[key], "="))
	}
	for _, t := range n.Spec.Taints {
		parts = append(parts, "!"+t.Key)
	}
	for _, key := range slices.Sorted(maps.Keys(n.Annotations)) {
		parts = append(parts, "@"+key)
	}
	return strings.Join(parts, " ")
}

const kubeadmNode = "m v1.23.4 " + Master + " !" + Master + " @kubeadm.alpha.kubernetes.io/cri-socket=x"

func TestApply(t *testing.T) {
	for name, test := range map[string]struct {
		node   string
		change v1alpha1.ChangeSpec
		want   string
	}{
		"kubeadm 1.24": {kubeadmNode, v1alpha1.ChangeSpec{KubernetesTo: "v1.24.0"},
			"!" + Master + " !" + ControlPlane + " @kubeadm.alpha.kubernetes.io/cri-socket"},
		"kubeadm 1.25, short": {kubeadmNode, v1alpha1.ChangeSpec{KubernetesTo: "1.25"},
			"!" + ControlPlane + " @kubeadm.alpha.kubernetes.io/cri-socket"},
		"kubeadm from 1.19 gets the new label first": {"m v1.19.16 " + Master +
			" @kubeadm.alpha.kubernetes.io/cri-socket=x",
			v1alpha1.ChangeSpec{KubernetesTo: "v1.24.0"}, ControlPlane + " @kubeadm.alpha.kubernetes.io/cri-socket"},
		"nothing tells: kubeadm":   {"m v1.23.4 " + Master, v1alpha1.ChangeSpec{KubernetesTo: "v1.24.0"}, ""},
		"the version is not known": {"m ? " + Master, v1alpha1.ChangeSpec{KubernetesTo: "v1.27.0"}, ControlPlane},
		"kOps": {"m v1.23.4 kops.k8s.io/instancegroup=m kubernetes.io/role=master " + Master + " !" + Master,
			v1alpha1.ChangeSpec{KubernetesTo: "v1.24.0"},
			"kops.k8s.io/instancegroup=m " + ControlPlane + " !" + ControlPlane},
		"k3s keeps it": {"m v1.33.1+k3s1 " + Master, v1alpha1.ChangeSpec{KubernetesTo: "v1.34.0"}, Master},
		"k3s, and the node is replaced": {"m v1.33.1+k3s1 a=b " + Master,
			v1alpha1.ChangeSpec{KubernetesTo: "v1.34.0", ReplaceNodes: "a=b"}, ""},
		"OpenShift": {"m v1.23.4 node.openshift.io/os_id=rhcos " + Master, v1alpha1.ChangeSpec{KubernetesTo: "v1.24.0"},
			"node-role.kubernetes.io/master node.openshift.io/os_id=rhcos"},
		"labels": {"a v1.30.0 x=1 y=2",
			v1alpha1.ChangeSpec{RemoveLabels: []string{"x"}, AddLabels: map[string]string{"y": "3", "z": ""}}, "y=3 z"},
		"replaced": {"a v1.30.0 kubernetes.io/hostname=a topology.kubernetes.io/zone=z " +
			"eks.amazonaws.com/nodegroup=g mine=1 node-role.kubernetes.io/worker !dedicated " +
			"!node.kubernetes.io/unschedulable @projectcalico.org/RouteReflectorClusterID=1 " +
			"@projectcalico.org/IPv4Address=1",
			v1alpha1.ChangeSpec{ReplaceNodes: "mine"},
			"eks.amazonaws.com/nodegroup=g kubernetes.io/hostname=a topology.kubernetes.io/zone=z " +
				"!node.kubernetes.io/unschedulable @projectcalico.org/IPv4Address"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &cluster.Snapshot{Nodes: []corev1.Node{node(test.node)}}
			before := describe(&s.Nodes[0])
			r, err := Apply(s, test.change)
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(&r.After.Nodes[0]); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			if describe(&s.Nodes[0]) != before {
				t.Error("the snapshot was changed")
			}
			for _, e := range r.Effects {
				if len(e.Nodes) == 0 || e.Why == "" ||
					e.Why != replaced && e.Why != "asked for" && !strings.HasPrefix(e.Source, "https://") {
					t.Errorf("an effect without nodes, reason or source: %+v", e)
				}
			}
		})
	}
}

// TestCalicoNodes holds that Calico's own Nodes follow, and that what was read stays as it was.
func TestCalicoNodes(t *testing.T) {
	object := unstructured.Unstructured{Object: map[string]any{"apiVersion": "projectcalico.org/v3", "kind": "Node",
		"metadata": map[string]any{"name": "a", "labels": map[string]any{"x": "1", "own": "2"}}}}
	s := &cluster.Snapshot{Nodes: []corev1.Node{node("a v1.30.0 x=1")}, Other: []unstructured.Unstructured{object}}
	r, err := Apply(s, v1alpha1.ChangeSpec{RemoveLabels: []string{"x"}, AddLabels: map[string]string{"y": "3"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.After.Other[0].GetLabels(), s.Other[0].GetLabels()); got != "map[own:2 y:3] map[own:2 x:1]" {
		t.Error(got)
	}
}

func TestNotAsked(t *testing.T) {
	if r, err := Apply(&cluster.Snapshot{}, v1alpha1.ChangeSpec{To: "calico"}); r != nil || err != nil {
		t.Error(r, err)
	}
}

func TestErrors(t *testing.T) {
	s := &cluster.Snapshot{Kubernetes: "v1.30.2", Nodes: []corev1.Node{node("a v1.29.0 x=1")}}
	for want, change := range map[string]v1alpha1.ChangeSpec{
		`"v1.x" is not a version`:        {KubernetesTo: "v1.x"},
		"is not an upgrade":              {KubernetesTo: "v1.29.9"},
		`"a b" is not a key`:             {RemoveLabels: []string{"a b"}},
		`"!" is not a value`:             {AddLabels: map[string]string{"a": "!"}},
		`"a in" is not a label selector`: {ReplaceNodes: "a in"},
		`"x=2" selects none of the 1`:    {ReplaceNodes: "x=2"},
		`"y" selects none of the 1`:      {RemoveLabels: []string{"x"}, LabelNodes: "y"},
		"is given without --add-label":   {KubernetesTo: "v1.31.0", LabelNodes: "x"},
	} {
		if _, err := Apply(s, change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestRepair(t *testing.T) {
	picks := func(key string) Picks {
		return func(rename map[string]string, n *corev1.Node) bool {
			if to, ok := rename[key]; ok {
				return has(n.Labels, to)
			}
			return has(n.Labels, key)
		}
	}
	for name, test := range map[string]struct {
		nodes  []string
		change v1alpha1.ChangeSpec
		key    string
		want   string
	}{
		"its successor is on the same nodes": {[]string{"m v1.23.4 " + Master + " " + ControlPlane, "w v1.23.4"},
			v1alpha1.ChangeSpec{KubernetesTo: "v1.24.0"}, Master, fmt.Sprintf("map[%s:%s] []", Master, ControlPlane)},
		"its successor is on another node too": {[]string{"m v1.23.4 " + Master + " " + ControlPlane,
			"w v1.23.4 " + ControlPlane},
			v1alpha1.ChangeSpec{KubernetesTo: "v1.24.0"}, Master,
			fmt.Sprintf("map[%s:own] [kubectl label node m own=]", Master)},
		"there is no successor": {[]string{"a v1.30.0 x=1", "b v1.30.0 x=2", "c v1.30.0"},
			v1alpha1.ChangeSpec{RemoveLabels: []string{"x"}}, "x",
			"map[x:own] [kubectl label node a own=1 kubectl label node b own=2]"},
		"the node is replaced": {[]string{"a v1.30.0 x=1"}, v1alpha1.ChangeSpec{ReplaceNodes: "x"}, "x",
			"map[] [kubectl label node a x=1]"},
		"the label stays": {[]string{"a v1.30.0 x=1 y=1"},
			v1alpha1.ChangeSpec{RemoveLabels: []string{"x"}}, "y", "nil"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &cluster.Snapshot{}
			for _, line := range test.nodes {
				s.Nodes = append(s.Nodes, node(line))
			}
			r, err := Apply(s, test.change)
			if err != nil {
				t.Fatal(err)
			}
			got := "nil"
			if repair := r.Repair([]string{test.key}, "own", picks(test.key)); repair != nil {
				got = fmt.Sprint(repair.Rename, repair.Commands)
				got = strings.Replace(got, "][", "] [", 1)
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
