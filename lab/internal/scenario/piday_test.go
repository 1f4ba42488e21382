package scenario

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

func TestView(t *testing.T) {
	const list = `{"items":[
		{"kind":"Node","status":{"conditions":[{"type":"Ready","status":"True"}]}},
		{"kind":"Node","status":{"conditions":[{"type":"Ready","status":"Unknown"}]}},
		{"kind":"Pod","metadata":{"labels":{"k8s-app":"calico-node"}},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}},
		{"kind":"Pod","metadata":{"labels":{"k8s-app":"calico-node"}},"status":{"phase":"Running"}},
		{"kind":"Pod","status":{"phase":"Pending"}}]}`
	var v View
	if err := v.read([]byte(list)); err != nil {
		t.Fatal(err)
	}
	sum := func(fine, bad, denied uint64) tally.Summary {
		return tally.Summary{Kinds: map[string]tally.Count{
			"http": {Sent: fine, Failed: bad}, "denied-http": {Sent: 10, Failed: denied},
		}}
	}
	v.count(sum(100, 3, 1), sum(150, 7, 1))
	if want := (View{Pods: 3, Running: 2, CalicoNodes: 2, CalicoOK: 1, Nodes: 2, NodesReady: 1,
		Sent: 50, Failed: 4}); v != want {
		t.Errorf("got  %+v\nwant %+v", v, want)
	}
	if err := v.read([]byte("{")); err == nil {
		t.Error("half a list is no error")
	}
}

func TestVersion(t *testing.T) {
	const was = `{"kubernetes":"v1.36.3","kubeletVersion": "v1.36.3","kubeProxyVersion":"","kernelVersion":"v6.1","image":"v1.36.3"}`
	const want = `{"kubernetes":"v1.23.17","kubeletVersion": "v1.23.17","kubeProxyVersion":"","kernelVersion":"v6.1","image":"v1.36.3"}`
	if got := string(version.ReplaceAll([]byte(was), []byte(`$1"`+before24+`"`))); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestExitCode(t *testing.T) {
	for err, want := range map[error]int{
		nil: 0, exec.Command("sh", "-c", "exit 3").Run(): 3, errors.New("no program"): -1,
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: got %d, want %d", err, got, want)
		}
	}
}

// TestPiDayNeedsOthers holds that a cluster of reflectors alone is refused before anything is made.
func TestPiDayNeedsOthers(t *testing.T) {
	for nodes := range 4 {
		if _, err := PiDay(t.Context(), &Rig{Name: "x", Nodes: nodes, Lab: "/nowhere", Out: io.Discard}); err == nil ||
			!strings.Contains(err.Error(), "too few") {
			t.Errorf("%d nodes: %v", nodes, err)
		}
	}
}
