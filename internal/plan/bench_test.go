package plan_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/plan"
)

// large is a cluster of n nodes with ten pods each.
func large(t testing.TB, n int) *request {
	r := flannelToCalico(t)
	node, pod := r.snapshot.Nodes[0], r.snapshot.Pods[2]
	r.snapshot.Nodes, r.snapshot.Pods = nil, nil
	r.options.Manifest = r.options.Manifest[:len(r.options.Manifest):len(r.options.Manifest)]
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		next := *node.DeepCopy()
		next.Name = name
		r.snapshot.Nodes = append(r.snapshot.Nodes, next)
		for j := range 10 {
			one := corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec, Status: pod.Status}
			one.Name, one.Spec.NodeName = fmt.Sprintf("web-%d-%d", i, j), name
			r.snapshot.Pods = append(r.snapshot.Pods, one)
		}
	}
	r.change.PodCIDR = "11.0.0.0/8"
	return r
}

// TestLargeClusters: rules hold whatever the size, and a plan grows with the nodes, not with their square.
func TestLargeClusters(t *testing.T) {
	sizes := map[int]int{}
	for _, n := range []int{1, 2, 7, 30, 60} {
		p := mustMake(t, large(t, n))
		text, err := plan.Write(p)
		if err != nil {
			t.Fatal(err)
		}
		sizes[n] = len(text)
		again, err := plan.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		if again.Hash != p.Hash {
			t.Errorf("%d nodes: the hash changes on reading", n)
		}
	}
	if sizes[60] > sizes[30]*21/10 {
		t.Errorf("60 nodes take %d bytes, 30 take %d", sizes[60], sizes[30])
	}
}

func BenchmarkMake5000(b *testing.B) {
	r := large(b, 5000)
	for b.Loop() {
		p, err := r.make()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(p.Steps)), "steps")
	}
}

func BenchmarkWrite5000(b *testing.B) {
	p := mustMake(b, large(b, 5000))
	for b.Loop() {
		text, err := plan.Write(p)
		if err != nil {
			b.Fatal(err)
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(text); err != nil {
			b.Fatal(err)
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(text)), "bytes")
		b.ReportMetric(float64(packed.Len()), "bytes-gzipped")
	}
}

func BenchmarkVerify5000(b *testing.B) {
	p := mustMake(b, large(b, 5000))
	for b.Loop() {
		if err := plan.Verify(p); err != nil {
			b.Fatal(err)
		}
	}
}
