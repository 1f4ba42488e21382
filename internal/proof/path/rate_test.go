package path

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
)

// TestRate: the rate of a node is that of all paths that start there; paths that policy denies and those to the outside
// are probes, but no gap is seen by them.
func TestRate(t *testing.T) {
	from := func(node, class string, millis int) v1alpha1.Path {
		return v1alpha1.Path{Source: v1alpha1.Endpoint{Node: node}, Class: class, IntervalMillis: millis,
			Denied: class == ClassDenied}
	}
	got := RateOf([]v1alpha1.Path{from("a", ClassPodPod, 20), from("b", ClassPodPod, 20), from("b", ClassDNS, 200),
		from("b", ClassDenied, 2000), from("a", ClassOutside, 500), from("a", ClassOutside, 10), {}})
	if want := (Rate{All: 207.5, Most: 152, Finest: 20 * time.Millisecond,
		Coarsest: 200 * time.Millisecond}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	text := "up to 208 probes a second in all and 152 from one node, about 0.6 % of one CPU on a node " +
		"(42 µs a probe, measured over UDP: docs/results.md); sees gaps from 20 ms on the fastest paths, from " +
		"200 ms on every path within the cluster"
	if got.String() != text {
		t.Errorf("%s", got)
	}
}

// TestPerProbe: the figure is the one that was measured.
func TestPerProbe(t *testing.T) {
	page, err := os.ReadFile("../../../docs/results.md")
	if err != nil {
		t.Fatal(err)
	}
	if row := fmt.Sprintf("\n| CPU time of one probe, there and back | %d µs |\n",
		perProbe.Microseconds()); !strings.Contains(string(page), row) {
		t.Errorf("docs/results.md does not hold %q", row)
	}
}

// TestBudget: normal changes nothing, small costs less and fine more, over the same paths; and with each, every prober
// sends often enough that its stalls are noticed.
func TestBudget(t *testing.T) {
	built := map[string][]v1alpha1.Path{}
	for _, name := range []string{"small", "normal", "fine"} {
		fast, known := Budget(name)
		if !known || !strings.Contains(Budgets, name) {
			t.Fatalf("%s is not known", name)
		}
		topology := whole(4)
		topology.New, topology.Services = nil, map[string]string{Old: "198.18.96.1"}
		topology.Intervals.Fast = fast
		built[name] = Build(topology)
		fastest := map[v1alpha1.Endpoint]time.Duration{}
		for _, one := range built[name] {
			who := v1alpha1.Endpoint{Node: one.Source.Node, Network: one.Source.Network}
			interval := time.Duration(one.IntervalMillis) * time.Millisecond
			if fastest[who] == 0 || interval < fastest[who] {
				fastest[who] = interval
			}
		}
		for who, interval := range fastest {
			if interval > loss.DefaultTimeout/8 {
				t.Errorf("%s: %v sends every %s: its stalls would not be noticed", name, who, interval)
			}
		}
		if topology.Intervals.Fast = 0; !cmp.Equal(ids(built[name]), ids(Build(topology))) {
			t.Errorf("%s leaves paths out", name)
		}
		if name == "normal" && !cmp.Equal(built[name], Build(topology)) {
			t.Error("normal is not what is measured without a budget")
		}
	}
	small, normal, fine := RateOf(built["small"]), RateOf(built["normal"]), RateOf(built["fine"])
	if small.Most > normal.Most/4 || fine.Most < normal.Most*1.9 || small.Finest <= normal.Finest ||
		fine.Finest >= normal.Finest {
		t.Errorf("small %+v, normal %+v, fine %+v", small, normal, fine)
	}
	for _, name := range []string{"", "huge", "Small"} {
		if _, known := Budget(name); known {
			t.Errorf("%q is known", name)
		}
	}
}
