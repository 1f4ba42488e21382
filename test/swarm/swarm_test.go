package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/probe"
	"github.com/theseus-cni/theseus/internal/step"
)

func TestFaults(t *testing.T) {
	for text, right := range map[string]bool{
		"node-1=fail:adopt": true, "node-1=slow:join:30s": true, "node-1=lose:adopt:1%": true,
		"node-1=vanish:hold": true, "fail:adopt": false, "node-1=fail": false, "node-1=fail:dance": false,
		"node-1=slow:join:soon": false, "node-1=lose:join:200": false, "node-1=lose:join:0": false,
		"=fail:adopt": false, "node-1=burn:adopt": false,
	} {
		var f faults
		if err := f.Set(text); (err == nil) != right {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// two are a swarm of two nodes that no API server knows, and whose work takes no time.
func two(t *testing.T, texts ...string) (one, other *machine) {
	t.Helper()
	var all faults
	for _, text := range texts {
		if err := all.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newSwarm(&rest.Config{}, 2, "10.64.0.0/11", 0, all)
	if err != nil {
		t.Fatal(err)
	}
	return s.machines["node-1"], s.machines["node-2"]
}

// hold gives a machine a pod that runs.
func hold(m *machine, name string) *pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &pod{namespace: "shop", name: name, uid: types.UID(name), address: m.give(), conf: m.conf}
	m.pods[p.uid] = p
	m.swarm.addresses.Store(p.address.String(), true)
	return p
}

// TestProbes: probes are answered while their target runs, and lost when it does not, or when a node loses packets.
func TestProbes(t *testing.T) {
	one, other := two(t, "node-2=lose:join:50%")
	target := hold(other, "target")
	one.probers.begin("old", "prober")
	way := v1alpha1.Path{ID: "a", Class: "pod-pod", IntervalMillis: 10,
		Source: v1alpha1.Endpoint{Node: one.name, Network: "old"},
		Target: v1alpha1.Endpoint{Node: other.name, Network: "old", Address: fmt.Sprintf("%s:80", target.address)}}
	denied := way
	denied.ID, denied.Denied = "b", true
	if err := one.probers.Order("old",
		probe.PathsFile{Generation: 3, Paths: []v1alpha1.Path{way, denied}}); err != nil {
		t.Fatal(err)
	}
	// look lets time pass, and returns what was sent and answered of the path since the last look.
	var sent, answered int64
	look := func(passes time.Duration) (int64, int64, v1alpha1.PathResult) {
		t.Helper()
		for _, m := range one.probers.of["old"].paths {
			m.begun = m.begun.Add(-passes)
		}
		file, err := one.probers.Results("old")
		if err != nil || file.Generation != 3 || len(file.Paths) != 2 || file.Paths[1].Answered > 0 {
			t.Fatalf("%v: %+v", err, file)
		}
		result := file.Paths[0]
		s, a := result.Sent-sent, result.Answered-answered
		sent, answered = result.Sent, result.Answered
		return s, a, result
	}
	if s, a, _ := look(10 * time.Second); s < 990 || a != s {
		t.Errorf("%d of %d answered while all is well", a, s)
	}
	if _, err := other.Do(t.Context(), step.VerbJoin,
		json.RawMessage(`{"old":["10.0.0.0/11"],"new":["10.64.0.0/11"]}`)); err != nil {
		t.Fatal(err)
	}
	if s, a, result := look(10 * time.Second); s < 990 || a > s*6/10 || a < s*4/10 ||
		len(result.Gaps) != maxGaps || result.Dropped == 0 {
		t.Errorf("%d of %d answered while half of all packets are lost, %d gaps", a, s, len(result.Gaps))
	}
	one.swarm.addresses.Delete(target.address.String())
	if s, a, result := look(10 * time.Second); s < 990 || a != 0 || result.Open == nil || result.Open.Probes != s {
		t.Errorf("%d of %d answered by a pod that is gone: %+v", a, s, result.Open)
	}
}

// TestPodInAnOutage: a pod that begins, or ends, while the API server is away does so when it is back.
func TestPodInAnOutage(t *testing.T) {
	one, _ := two(t)
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "a"}}
	client, away := fake.NewClientset(object), 0
	client.PrependReactor("*", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		away--
		return away >= 0, nil, apierrors.NewServiceUnavailable("away")
	})
	one.swarm.client = client
	hold(one, "a")
	for i, do := range []func(context.Context, *corev1.Pod) error{one.begin, one.end} {
		away = 1
		if err := do(t.Context(), object); err != nil || away >= 0 {
			t.Errorf("%s: %v", []string{"begin", "end"}[i], err)
		}
	}
}

// TestPlacesOfLosses: what is lost has its place among the probes of a look, whatever the looks are.
func TestPlacesOfLosses(t *testing.T) {
	one, _ := two(t, "node-2=lose:join:50%")
	one.share = 0.01
	m := &measured{path: v1alpha1.Path{IntervalMillis: 10}}
	m.restart()
	begun := m.begun
	for _, passed := range []int{60, 150, 420, 430, 520} {
		one.probers.count(m, begun.Add(time.Duration(passed)*10*time.Millisecond+5*time.Millisecond))
	}
	var lost []int
	for _, gap := range m.result.Gaps {
		lost = append(lost, int(gap.From.Sub(begun)/(10*time.Millisecond))+1)
	}
	if want := []int{100, 200, 300, 400, 500}; !slices.Equal(lost, want) {
		t.Errorf("lost are the probes %d, want %d", lost, want)
	}
}

// TestAdopt: pods move to the network that is asked for, and back, and new ones have addresses of the network that
// serves.
func TestAdopt(t *testing.T) {
	one, _ := two(t, "node-1=fail:settle")
	a, b := hold(one, "a"), hold(one, "b")
	there := step.AdoptArgs{From: step.Attachment{Conf: []string{firstConf}},
		To:   step.Attachment{Conf: []string{"10-calico.conflist.theseus", "10-calico.conflist"}},
		Skip: []string{"shop/b"}}
	back := step.AdoptArgs{From: there.To, To: there.From}
	for _, move := range []struct {
		args step.AdoptArgs
		on   string
	}{{there, "10-calico.conflist.theseus"}, {there, "10-calico.conflist.theseus"}, {back, firstConf}} {
		if _, err := one.adopt(t.Context(), move.args); err != nil || a.conf != move.on || b.conf != firstConf {
			t.Errorf("%v: a is on %s, b on %s", err, a.conf, b.conf)
		}
	}
	if _, err := one.serve("10-calico.conflist"); err != nil {
		t.Fatal(err)
	}
	if p := hold(one, "c"); !netip.MustParsePrefix("10.64.0.0/11").Contains(p.address) ||
		!one.source.Contains(a.address) {
		t.Errorf("the addresses %s and %s", a.address, p.address)
	}
	settle := json.RawMessage(`{"network":{"conf":["10-flannel.conflist"]}}`)
	if _, err := one.Do(t.Context(), step.VerbSettle, settle); err == nil {
		t.Error("the fault was not felt")
	}
	if _, err := one.Do(t.Context(), step.VerbSettle, settle); err != nil {
		t.Errorf("the fault was felt twice: %v", err)
	}
}

// TestClean: what a network left is found, and is gone once it is cleaned.
func TestClean(t *testing.T) {
	one, _ := two(t)
	one.found = append(one.found, traces["kube-flannel-ds"])
	count := func(clean bool) int {
		t.Helper()
		got, err := one.inventory(step.Residue{Links: []string{"flannel.*", "cni0"}}, clean)
		var found step.Inventory
		if err != nil || json.Unmarshal(got.Result, &found) != nil {
			t.Fatal(err)
		}
		return found.Found.Count()
	}
	if before, left, after := count(false), count(true), count(false); before != 2 || left != 0 || after != 0 {
		t.Errorf("%d found, %d left, %d found after", before, left, after)
	}
}

// TestVanish: a node that vanishes answers nothing any more.
func TestVanish(t *testing.T) {
	one, _ := two(t, "node-1=vanish:hold")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := one.Do(ctx, step.VerbHold, json.RawMessage(
		`{"within":["10.0.0.0/11"],"source":["cni0"],"target":["cali*"]}`)); err == nil || one.losing() != 1 {
		t.Errorf("%v, and it loses %.0f %%", err, one.losing()*100)
	}
}
