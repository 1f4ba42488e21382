package nodes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSelector(t *testing.T) {
	expression := func(key, operator string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOperator(operator), Values: values}
	}
	affinity := func(terms ...corev1.NodeSelectorTerm) *corev1.PodSpec {
		return &corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}}
	}
	term := func(all ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: all}
	}
	for name, test := range map[string]struct {
		nodes *Selector
		want  string // what it picks, as written, and the patch that has b for a
	}{
		"nothing": {OfPod(&corev1.PodSpec{}, "/spec"), "none a1 a5 b1 | | null"},
		"nodeSelector": {OfPod(&corev1.PodSpec{NodeSelector: map[string]string{"a": "1"}}, "/spec"),
			`a1 | a=1 | [{"op":"remove","path":"/spec/nodeSelector/a"},{"op":"add","path":"/spec/nodeSelector/b","value":"1"}]`},
		"either": {OfPod(affinity(term(expression("a", "In", "5")), term(expression("b", "Exists"))), ""),
			`a5 b1 | a in (5), b | [{"op":"replace","path":"/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/key","value":"b"}]`},
		"both": {OfPod(affinity(term(expression("a", "Gt", "0"), expression("a", "Lt", "3"))), ""),
			"a1 | a gt (0), a lt (3) | -"},
		"not": {OfPod(affinity(term(expression("a", "NotIn", "1"), expression("b", "DoesNotExist"))), ""),
			"none a5 | a notin (1), !b | -"},
		"no term":    {OfPod(affinity(), ""), " | | null"},
		"empty term": {OfPod(affinity(term()), ""), " | | null"},
		"by name": {OfPod(affinity(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{expression(
			"metadata.name", "In", "b1")}}), ""), "b1 | | null"},
		"any of": {AnyOf([]metav1.LabelSelector{{MatchLabels: map[string]string{"a": "1"}}, {}}, "/x"),
			"none a1 a5 b1 | a=1 | -"},
		"any of no": {AnyOf(nil, "/x"), "none a1 a5 b1 | | null"},
		"selector": {OfLabels(
			metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Exists"}}},
			"/x"), `a1 a5 | a | [{"op":"replace","path":"/x/matchExpressions/0/key","value":"b"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			var picked []string
			for _, node := range []string{"none", "a1", "a5", "b1"} {
				n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
				if node != "none" {
					n.Labels = map[string]string{node[:1]: node[1:]}
				}
				if test.nodes.Picks(nil, &n) {
					picked = append(picked, node)
				}
			}
			patch, err := json.Marshal(test.nodes.Patch(map[string]string{"a": "b"}))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(
				strings.Fields(fmt.Sprintf("%s | %s | %s", strings.Join(picked, " "), test.nodes, patch)), " ")
			want := strings.TrimSpace(test.want)
			if prefix, open := strings.CutSuffix(want, "-"); open {
				got, want = got[:min(len(got), len(prefix))], prefix
			}
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	either := OfPod(affinity(term(expression("a", "Exists"))), "")
	b := corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"b": ""}}}
	if either.Picks(nil, &b) || !either.Picks(map[string]string{"a": "b"}, &b) ||
		!slices.Equal(either.Keys(), []string{"a"}) {
		t.Error("other keys do not count")
	}
}
