package benched

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// node is a node that is Ready unless text says "down"; "cordoned" and "tainted" are what they say.
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
		}
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

func TestChoose(t *testing.T) {
	nodes := []corev1.Node{node("e"), node("a", "tainted"), node("b", "down"), node("c", "cordoned"), node("d"), node("f")}
	for _, c := range []struct {
		nodes       []corev1.Node
		names       []string
		want, error string
	}{
		{nodes, nil, "d,e", ""},
		{nodes, []string{"f", "a"}, "f,a", ""},
		{nodes, []string{"c"}, "c", ""},
		{nodes[:1], nil, "e", ""},
		{nodes[1:4], nil, "", "none of 3 nodes is Ready, schedulable and without taints"},
		{nil, nil, "", "none of 0 nodes"},
		{nodes, []string{"x"}, "", `there is no node "x"`},
		{nodes, []string{"b", "a"}, "", "node b is not Ready"},
		{nodes, []string{"d", "d"}, "", "d,d are no pair of nodes"},
		{nodes, []string{"d", "e", "f"}, "", "d,e,f are no pair of nodes"},
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
