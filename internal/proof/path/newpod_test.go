package path

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestTries: a new pod tries what its node's probe pod measures, no more often outside of the cluster, and another new
// pod; denied paths only where there were some.
func TestTries(t *testing.T) {
	topology := Topology{Nodes: []Node{{"a", "192.0.2.1"}, {"b", "192.0.2.2"}},
		Old:      map[string]string{"a": "10.1.0.1", "b": "10.2.0.1"},
		Services: map[string]string{Old: "10.96.0.7"}, DNS: "10.96.0.10:53", Query: "x.",
		Denied: map[string]bool{Old: true}, NodesOutside: map[string]bool{Old: true},
		Ports: Ports{UDP: 7001, TCP: 7002, Denied: 7009, HostOffset: 100, SecondOffset: 2}}
	paths := Build(topology)
	tries := Tries(paths, "a", v1alpha1.Endpoint{Node: "b", Address: "10.2.0.9"}, topology.Ports)
	ids := map[string]v1alpha1.Path{}
	for _, one := range tries {
		if one.Source != (v1alpha1.Endpoint{Node: "a", Network: NewPod}) || one.Second != "" || ids[one.ID].ID != "" {
			t.Errorf("%+v", one)
		}
		ids[one.ID] = one
	}
	for id, want := range map[string]struct {
		address string
		denied  bool
		every   int
	}{
		"a/new-pod>b/old/udp":            {"10.2.0.1:7001", false, 100},
		"a/new-pod>service/old/tcp-new":  {"10.96.0.7:7002", false, 100},
		"a/new-pod>dns":                  {"10.96.0.10:53", false, 100},
		"a/new-pod>b/old/udp/denied":     {"10.2.0.1:7009", true, 250},
		"a/new-pod>b/new-pod/udp":        {"10.2.0.9:7001", false, 100},
		"a/new-pod>b/new-pod/tcp-new":    {"10.2.0.9:7002", false, 100},
		"a/new-pod>b/new-pod/udp/denied": {"10.2.0.9:7009", true, 250},
	} {
		one := ids[id]
		if one.Target.Address != want.address || one.Denied != want.denied || one.IntervalMillis != want.every {
			t.Errorf("%s: %+v", id, one)
		}
	}
	for _, one := range paths {
		again := ids[strings.Replace(one.ID, "a/old>", "a/new-pod>", 1)]
		if one.Class == ClassOutside && one.Source.Network == Old && one.Source.Node == "a" &&
			again.IntervalMillis != one.IntervalMillis {
			t.Errorf("%s is tried every %d ms, not %d ms", one.ID, again.IntervalMillis, one.IntervalMillis)
		}
	}
	topology.Denied = nil
	for _, one := range Tries(Build(topology), "a", v1alpha1.Endpoint{Node: "b", Address: "10.2.0.9"}, topology.Ports) {
		if one.Denied {
			t.Errorf("%s is denied, without a policy", one.ID)
		}
	}
	if got := Tries(nil, "a", v1alpha1.Endpoint{Address: "10.2.0.9"}, topology.Ports); len(got) > 0 {
		t.Errorf("nothing is measured, and yet %+v", got)
	}
}

// TestTried: what a new pod says fits a termination message, and is read as it was written.
func TestTried(t *testing.T) {
	tried := Tried{Paths: 50, Millis: 30000}
	for range 50 {
		id := strings.Repeat("n", 250) + "/new-pod>" + strings.Repeat("m", 250) + "/old/udp"
		tried.Wrong(v1alpha1.Path{ID: id})
		tried.Wrong(v1alpha1.Path{ID: id, Denied: true})
	}
	text, err := json.Marshal(tried)
	if err != nil || len(text) > maxTriedText {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	again, err := ParseTried(string(text))
	if err != nil || !slices.Equal(again.Silent, tried.Silent) || again.More != 94 || again.Fault() != tried.Fault() {
		t.Errorf("%+v, %v", again, err)
	}
	if (&Tried{Paths: 3}).Fault() != "" {
		t.Error("nothing is wrong, and yet there is a fault")
	}
	for _, text := range []string{"", "{}", "[]", `{"paths":1,"silent":["a","b","c","d"]}`} {
		if _, err := ParseTried(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
