package benched

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// node is a node that is Ready, with what is said of it.
func node(name string, is ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	ready := corev1.ConditionTrue
	for _, what := range is {
		switch what {
		case "down":
			ready = corev1.ConditionFalse
		case "cordoned":
			n.Spec.Unschedulable = true
		case "tainted":
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		case "windows":
			n.Labels = map[string]string{corev1.LabelOSStable: what}
		case "control":
			n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		case "going":
			n.DeletionTimestamp = &metav1.Time{}
		case "full":
			n.Status.Conditions = append(n.Status.Conditions,
				corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue})
		case "apart":
			n.Status.Conditions = append(n.Status.Conditions,
				corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue})
		}
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: ready},
		corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse})
	return n
}

func TestChoose(t *testing.T) {
	nodes := []corev1.Node{node("e"), node("a", "tainted"), node("b", "down"),
		node("c", "cordoned"), node("d"), node("f"), node("g", "windows"), node("h", "going"),
		node("i", "full"), node("j", "apart")}
	control := []corev1.Node{node("a", "control"), node("m"), node("z")}
	for _, c := range []struct {
		nodes       []corev1.Node
		names       []string
		want, error string
	}{
		{nodes, nil, "d,e", ""},
		{control, nil, "m,z", ""},
		{control[:2], nil, "m,a", ""},
		{nodes, []string{"f", "d"}, "f,d", ""},
		{nodes, []string{"f", "a"}, "", "node a has the taint gpu:NoSchedule"},
		{nodes, []string{"c"}, "", "node c is cordoned"},
		{nodes, []string{"g"}, "", "node g runs windows"},
		{nodes, []string{"h"}, "", "node h is being deleted"},
		{nodes, []string{"i"}, "", "node i has the condition DiskPressure"},
		{nodes, []string{"j"}, "", "node j has the condition NetworkUnavailable"},
		{nodes[:1], nil, "e", ""},
		{nodes[1:4], nil, "", "none of 3 nodes is Ready, schedulable, without taints"},
		{nil, nil, "", "none of 0 nodes"},
		{nodes, []string{"x"}, "", `there is no node "x"`},
		{nodes, []string{"b", "a"}, "", "node b is not Ready"},
		{nodes, []string{"d", "d"}, "", "--nodes d,d is not one or two different nodes"},
		{nodes, []string{"d", "e", "f"}, "", "--nodes d,e,f is not one or two different nodes"},
	} {
		chosen, err := Choose(c.nodes, c.names)
		var got []string
		for i := range chosen {
			got = append(got, chosen[i].Name)
		}
		switch {
		case c.error == "" && (err != nil || strings.Join(got, ",") != c.want):
			t.Errorf("%v: %v, %v", c.names, got, err)
		case c.error != "" && (err == nil || !strings.Contains(err.Error(), c.error) || engine.HintOf(err) == ""):
			t.Errorf("%v: %v, want %s, with a hint", c.names, err, c.error)
		}
	}
}
