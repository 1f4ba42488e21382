package rehearsal

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
)

// TestRelabels: the nodes that stand for those whose labels change are changed. A node that stands for others, too, is
// a lack of the copy; taints are not changed.
func TestRelabels(t *testing.T) {
	c := &Copy{Classes: []Class{{Nodes: []string{"m1", "m2", "m3"}, Plays: []string{"s1", "s2"}},
		{Nodes: []string{"w1"}, Plays: []string{"s3", "s4"}}}}
	removed := func(nodes ...string) []whatif.Effect {
		return []whatif.Effect{{What: whatif.Label, Key: "role", Removed: true, Nodes: nodes},
			{What: whatif.Taint, Key: "role", Removed: true, Nodes: []string{"w1"}}}
	}
	names := func(all []Relabel) string {
		var text []string
		for _, one := range all {
			if value, changes := one.Labels["role"]; !changes || value != nil {
				t.Errorf("%+v", one)
			}
			text = append(text, one.Node)
		}
		return strings.Join(text, " ")
	}
	if got := names(c.Relabels(removed("m1", "m2", "m3"))); got != "s1 s2" || len(c.Lacks) > 0 {
		t.Errorf("all of a class: %s, %v", got, c.Lacks)
	}
	if got := names(c.Relabels(removed("w1"))); got != "s3 s4" || len(c.Lacks) > 0 {
		t.Errorf("a class with fewer nodes than stand for it: %s, %v", got, c.Lacks)
	}
	c.Relabels(removed("m1"))
	if got := names(c.Relabels(removed("m1"))); got != "s1" || len(c.Lacks) != 1 ||
		!strings.HasPrefix(c.Lacks[0].Follows, "s1 stand") {
		t.Errorf("one of a class: %s, %v", got, c.Lacks)
	}
	got := c.Relabels([]whatif.Effect{{What: whatif.Label, Key: "new", Value: "x", Nodes: []string{"w1"}}})
	if len(got) != 2 || *got[0].Labels["new"] != "x" {
		t.Errorf("a label that is added: %+v", got)
	}
}

// TestRelabelable: a change of labels that is none on a node of the copy is refused. The node has its own labels and
// those that the copy gives it.
func TestRelabelable(t *testing.T) {
	c := &Copy{Nodes: []NodeChange{{Name: "s", Labels: map[string]string{"given": "a"}}}}
	scratch := &cluster.Snapshot{Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "s",
		Labels: map[string]string{"own": "a"}}}}}
	for name, one := range map[string]struct {
		labels map[string]*string
		refuse string
	}{
		"loses what it has":          {map[string]*string{"own": nil, "given": nil}, ""},
		"gets what it has not":       {map[string]*string{"own": new("b"), "given": new("b"), "new": new("a")}, ""},
		"loses what it has not":      {map[string]*string{"own": nil, "other": nil}, "would not have the label other"},
		"gets what it has":           {map[string]*string{"own": new("a")}, "has the label own=a"},
		"gets what the copy gave it": {map[string]*string{"given": new("a")}, "has the label given=a"},
	} {
		err := c.Relabelable([]Relabel{{"s", one.labels}}, scratch)
		if (err == nil) != (one.refuse == "") || err != nil && !strings.Contains(err.Error(), one.refuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Relabelable(nil, scratch); err == nil {
		t.Error("a change of no node is accepted")
	}
}

// TestTrafficShown: that a check is the reason for a lost connection is not certain.
func TestTrafficShown(t *testing.T) {
	s := Shown{Trap: TrapTraffic, Object: "Deployment shop/web", Checks: []string{"bgp/partition"}}
	if !strings.HasSuffix(s.String(), "; may be what these checks reported: bgp/partition") ||
		ShownTable([]Shown{s}).Rows[0][3] != "perhaps bgp/partition" {
		t.Errorf("%s, %v", s, ShownTable([]Shown{s}).Rows)
	}
}

// TestRelabelBack: a label that the copy gave or that a node had itself is there again after the change, and after the
// removal of the copy the node has what it had. What another program sets in between stays.
func TestRelabelBack(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"own": "a", "zone": "z"}}}
	given := NodeChange{Name: "s", Labels: map[string]string{"disk": "ssd", "zone": "y"}}
	change := Relabel{"s", map[string]*string{"own": nil, "disk": nil, "zone": new("x"), "new": new("n")}}
	step := func(patch []byte, err error) {
		t.Helper()
		if err != nil || patch == nil {
			t.Fatal(err, string(patch))
		}
		node = patched(t, node, patch, "disk", "zone", "own", "new")
	}
	step(given.Patch(node))
	step(change.Patch(node))
	if want := map[string]string{"zone": "x", "new": "n"}; !maps.Equal(node.Labels, want) {
		t.Errorf("changed: %v", node.Labels)
	}
	if patch, err := change.Patch(node); err != nil || patch != nil {
		t.Errorf("changed twice: %v, %s", err, patch)
	}
	changed := node
	step(change.Back(node))
	if want := map[string]string{"own": "a", "disk": "ssd", "zone": "y"}; !maps.Equal(node.Labels, want) {
		t.Errorf("taken back: %v", node.Labels)
	}
	if patch, err := change.Back(node); err != nil || patch != nil {
		t.Errorf("taken back twice: %v, %s", err, patch)
	}
	for name, from := range map[string]*corev1.Node{"after that": node, "without": changed} {
		node = from.DeepCopy()
		step(Restore(node))
		if want := map[string]string{"own": "a", "zone": "z"}; !maps.Equal(node.Labels, want) ||
			node.Annotations[BeforeAnnotation] != "" {
			t.Errorf("removed %s: %v %v", name, node.Labels, node.Annotations)
		}
	}
	node = changed.DeepCopy()
	node.Labels["own"], node.Labels["new"] = "theirs", "theirs"
	step(change.Back(node))
	if node.Labels["own"] != "theirs" || node.Labels["new"] != "theirs" {
		t.Errorf("another program's: %v", node.Labels)
	}
	node.Annotations[BeforeAnnotation] = "{"
	if _, err := change.Patch(node); err == nil {
		t.Error("a broken annotation is accepted")
	}
	var plain Given
	if err := json.Unmarshal([]byte(`{"labels":{"a":{"now":"b"}}}`), &plain); err != nil || plain.Relabelled != nil {
		t.Errorf("an annotation of an earlier version: %v, %+v", err, plain)
	}
}
