package loss

import (
	"fmt"
	"testing"
)

// TestWhom: a question is for the nodes that are asked, and for hardly any other. It takes few bytes for each.
func TestWhom(t *testing.T) {
	asked := map[string]bool{}
	for i := range 352 {
		asked[fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i, i)] = true
	}
	of := Whom(asked)
	if len(of) > 6*len(asked) {
		t.Errorf("%d nodes take %d bytes", len(asked), len(of))
	}
	for node := range asked {
		if !Asks(of, node) {
			t.Errorf("%s is not asked", node)
		}
	}
	others := 0
	for i := range 5000 {
		if Asks(of, fmt.Sprintf("node-%d", i)) {
			others++
		}
	}
	if others > 2 {
		t.Errorf("%d others are asked", others)
	}
	if Whom(nil) != "" || !Asks("", "a") {
		t.Error("a question of all nodes is not for all")
	}
}

// FuzzAsks: whatever a plan has, a node that is not surely left out answers.
func FuzzAsks(f *testing.F) {
	f.Add("", "a")
	f.Add("?", "a")
	f.Add("AAAA", "a")
	f.Add(Whom(map[string]bool{"b": true}), "a")
	f.Fuzz(func(t *testing.T, of, node string) {
		if !Asks(of, node) && len(of) < 6 {
			t.Errorf("%q names no node, and leaves out %q", of, node)
		}
	})
}
