package plan_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// large is a cluster of n nodes with ten pods each.
func large(t testing.TB, n int) *request {
	r := flannelToCalico(t)
	grow(r, n, 10)
	r.change.PodCIDR = "11.0.0.0/8"
	return r
}

// grow gives a request's snapshot n nodes like that of one of its pods, or its first, with pods like that, one of each
// workload on each of 100 nodes.
func grow(r *request, n, pods int) {
	node, pod := r.snapshot.Nodes[0], corev1.Pod{}
	if all := r.snapshot.Pods; len(all) > 2 {
		pod = all[2]
	}
	if i := slices.IndexFunc(r.snapshot.Nodes,
		func(other corev1.Node) bool { return other.Name == pod.Spec.NodeName }); i >= 0 {
		node = r.snapshot.Nodes[i] // in whose range its address is, or it could not be adopted
	}
	looked := r.snapshot.Facts
	// The peak of memory is measured: lists that grow would leave more behind than the snapshot of a cluster takes.
	r.snapshot.Nodes, r.snapshot.Pods = make([]corev1.Node, 0, n), make([]corev1.Pod, 0, n*pods)
	r.snapshot.Facts = nil
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		next := *node.DeepCopy()
		next.Name = name
		r.snapshot.Nodes = append(r.snapshot.Nodes, next)
		if len(looked) > 0 {
			facts := looked[0]
			facts.Node = name
			r.snapshot.Facts = append(r.snapshot.Facts, facts)
		}
		for j := range pods {
			one := corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec, Status: pod.Status}
			one.Name, one.Spec.NodeName = fmt.Sprintf("web-%d-%d", i, j), name
			one.OwnerReferences = slices.Clone(one.OwnerReferences)
			for k := range one.OwnerReferences {
				one.OwnerReferences[k].Name = fmt.Sprintf("web-%d-%d", i/100, j)
			}
			r.snapshot.Pods = append(r.snapshot.Pods, one)
		}
	}
}

// The largest cluster that is measured, and what planning may take there.
const (
	mostNodes   = 5000
	mostSeconds = 10 // of one core
	mostMiB     = 1536
	// And what writing its plan and reading it, each, may take; the memory is with what planning took.
	mostFileSeconds = 30
	mostFileMiB     = 2048
)

// woven is a cluster on Weave Net whose pods are recreated.
func woven(t testing.TB) *request {
	r := flannelToCalico(t)
	r.snapshot = cnitest.Snapshot(t, cnitest.Fixture(t, "weave.yaml"))
	return r
}

// scaled are the changes that are planned for many nodes.
var scaled = []scale{
	{name: "flannel-to-calico", make: flannelToCalico},
	{name: "weave-to-calico", make: woven},
	{name: "bridge-to-calico", make: func(t testing.TB) *request {
		r := bridged(t)
		r.change.Strategy, r.change.PodCIDR = "recreate", "10.96.0.0/16"
		return r
	}},
	{name: "calico-to-flannel", make: calicoToFlannel},
	{name: "flannel-to-calico-adopt", make: adoption},
	{name: "weave-to-calico-adopt", make: flat},
	{name: "bridge-to-calico-adopt", make: bridged},
	{name: "flannel-to-calico-surge", make: surging},
	{name: "weave-to-calico-surge", make: func(t testing.TB) *request { return hooked(woven(t)) }},
	{name: "bridge-to-calico-surge", make: func(t testing.TB) *request { return hooked(bridged(t)) }},
	{name: "calico-upgrade", make: newer},
	{name: "calico-upgrade-bgp", make: func(t testing.TB) *request { return unencapsulated(newer(t)) },
		then: reflecting},
	{name: "calico-upgrade-owned", make: owned},
	{name: "calico-to-nftables", make: toNFTables},
	{name: "calico-encapsulation", make: func(t testing.TB) *request {
		r := toNFTables(t)
		r.change.Dataplane, r.change.Encapsulation = "", "vxlan-cross-subnet"
		_ = unstructured.SetNestedField(poolIn(r), "Always", "spec", "vxlanMode")
		return r
	}},
	{name: "calico-to-no-encapsulation", make: func(t testing.TB) *request {
		r := withBackend(toNFTables(t), "bird")
		r.change.Dataplane, r.change.Encapsulation = "", "none"
		_ = unstructured.SetNestedField(poolIn(r), "Always", "spec", "vxlanMode")
		return r
	}, then: func(r *request) {
		marked(r)
		for i := range r.snapshot.Nodes {
			r.snapshot.Nodes[i].Annotations["projectcalico.org/IPv4VXLANTunnelAddr"] = fmt.Sprintf("10.96.%d.%d",
				i/200, i%200+1)
		}
	}},
	{name: "calico-to-pool", make: func(t testing.TB) *request {
		r := toNFTables(t)
		r.change.Dataplane, r.change.Pool = "", "11.0.0.0/8"
		r.snapshot.Pods = flannelToCalico(t).snapshot.Pods
		for i := range r.snapshot.Pods {
			r.snapshot.Pods[i].Status.PodIP = "10.96.0.9"
		}
		return r
	}},
	{name: "calico-mesh-to-reflectors", make: func(t testing.TB) *request { return peering(t, "has(rr)") },
		then: marked},
	{name: "calico-reflectors-to-mesh", make: func(t testing.TB) *request { return peering(t, kind.FullMesh) },
		then: reflecting},
	{name: "calico-reflectors-to-others", make: func(t testing.TB) *request { return peering(t, "has(rr)") },
		then: reflecting},
}

type scale struct {
	name string
	make func(testing.TB) *request
	then func(*request) // what differs between nodes, once they are there
}

// on is the change for n nodes with that many pods each.
func (s scale) on(t testing.TB, n, pods int) *request {
	r := s.make(t)
	grow(r, n, pods)
	if s.then != nil {
		s.then(r)
	}
	if r.change.PodCIDR != "" && r.change.To != "flannel" { // whose range is that of the nodes' own
		r.change.PodCIDR = "11.0.0.0/8"
	}
	return r
}

// BenchmarkScale plans, which proves every prefix of the plan, with 20 pods on each node. `make bench-scale` runs each
// in a process of its own, since the peak of memory is that of the process.
func BenchmarkScale(b *testing.B) {
	for _, change := range scaled {
		for _, nodes := range []int{mostNodes / 10, mostNodes} {
			b.Run(fmt.Sprintf("%s/%d", change.name, nodes), func(b *testing.B) {
				r := change.on(b, nodes, 20)
				before, _ := used(b)
				planning := 0.0
				for b.Loop() {
					begun, _ := used(b)
					p := mustMake(b, r)
					made, _ := used(b)
					planning += made - begun
					b.ReportMetric(float64(len(p.Steps)), "steps")
					lines := strings.Count(plan.Runbook(p), "\n")
					if b.ReportMetric(float64(lines), "runbook-lines"); lines > mostLines {
						b.Errorf("the runbook has %d lines, more than %d", lines, mostLines)
					}
					b.ReportMetric(time.Duration(p.Estimate).Hours(), "estimated-h")
				}
				after, peak := used(b)
				took := (after - before) / float64(b.N)
				b.ReportMetric(planning/float64(b.N), "plan-cpu-s") // without the runbook
				b.ReportMetric(took, "cpu-s")
				b.ReportMetric(peak, "peak-MiB")
				if took > mostSeconds || peak > mostMiB {
					b.Errorf("%.1f s and %.0f MiB, of %d s and %d MiB", took, peak, mostSeconds, mostMiB)
				}
			})
		}
	}
}

// BenchmarkTime says where the time of an estimate goes: by kind of step, and by kind of what is done in steps.
func BenchmarkTime(b *testing.B) {
	for _, name := range []string{"flannel-to-calico-adopt", "flannel-to-calico", "flannel-to-calico-surge"} {
		change := scaled[slices.IndexFunc(scaled, func(s scale) bool { return s.name == name })]
		for _, nodes := range []int{mostNodes / 10, mostNodes} {
			b.Run(fmt.Sprintf("%s/%d", name, nodes), func(b *testing.B) {
				p := mustMake(b, change.on(b, nodes, 20))
				byStep, byPart := spent{}, spent{}
				for b.Loop() {
				}
				for i, parts := range estimate.Parts(p.Steps, nodes, nil) {
					s := &p.Steps[i]
					does := s.Group + "/" + s.Does
					if s.Wave == s.Group {
						does = "wave/" + s.Does
					}
					byStep.add(does, time.Duration(s.Estimate))
					left := time.Duration(s.Estimate)
					for _, part := range parts {
						what, took := part.Kind, part.Takes()
						switch {
						case part.Kind == "evict" || part.Kind == "node/adopt": // pods are not known here
							continue
						case part.Kind == "gate" && part.Asked > 0:
							what += " that asks some"
						case part.Kind == "gate" && part.Bake > 0:
							what += " that bakes"
						}
						byPart.add(what, took)
						left -= took
					}
					if left > time.Second {
						byPart.add("pods move", left)
					}
				}
				fmt.Printf("%s of %d nodes, %s, %d steps\n%s\n%s", name, nodes, time.Duration(p.Estimate),
					len(p.Steps), byStep, byPart)
			})
		}
	}
}

// spent is how often something is done, and how long it takes in all.
type spent map[string]*struct {
	times int
	sum   time.Duration
}

func (s spent) add(what string, took time.Duration) {
	if s[what] == nil {
		s[what] = new(struct {
			times int
			sum   time.Duration
		})
	}
	s[what].times++
	s[what].sum += took
}

// String is a table, the longest first, without what takes less than ten seconds.
func (s spent) String() string {
	var text strings.Builder
	longest := func(x, y string) int { return cmp.Compare(s[y].sum, s[x].sum) }
	for _, what := range slices.SortedFunc(maps.Keys(s), longest) {
		if one := s[what]; one.sum >= 10*time.Second {
			fmt.Fprintf(&text, "%30s %4d %7.1f min\n", what, one.times, one.sum.Minutes())
		}
	}
	return text.String()
}

// BenchmarkFile writes the largest of plans down and reads it again, in a process of its own as BenchmarkScale.
func BenchmarkFile(b *testing.B) {
	change := scaled[slices.IndexFunc(scaled, func(s scale) bool { return s.name == "flannel-to-calico-adopt" })]
	for _, form := range []struct {
		name  string
		write func(*plan.Plan) ([]byte, error)
	}{{"yaml", plan.Write}, {"json", plan.WriteJSON}} {
		for _, nodes := range []int{mostNodes / 10, mostNodes} {
			b.Run(fmt.Sprintf("%s/%d", form.name, nodes), func(b *testing.B) {
				p := mustMake(b, change.on(b, nodes, 20))
				var writing, reading float64
				for b.Loop() {
					begun, _ := used(b)
					text, err := form.write(p)
					if err != nil {
						b.Fatal(err)
					}
					written, _ := used(b)
					again, err := plan.Read(text)
					if err != nil || again.Hash != p.Hash {
						b.Fatalf("another plan, or none, is read: %v", err)
					}
					read, _ := used(b)
					writing, reading = writing+written-begun, reading+read-written
					b.ReportMetric(float64(len(text))/1e6, "MB")
				}
				writing, reading = writing/float64(b.N), reading/float64(b.N)
				_, peak := used(b)
				b.ReportMetric(writing, "write-cpu-s")
				b.ReportMetric(reading, "read-cpu-s")
				b.ReportMetric(peak, "peak-MiB")
				if writing > mostFileSeconds || reading > mostFileSeconds || peak > mostFileMiB {
					b.Errorf("%.1f s, %.1f s and %.0f MiB, of %d s and %d MiB",
						writing, reading, peak, mostFileSeconds, mostFileMiB)
				}
			})
		}
	}
}

// BenchmarkWindows: what a plan's stopping places cost, and the windows that end at them.
func BenchmarkWindows(b *testing.B) {
	for _, nodes := range []int{mostNodes / 10, mostNodes} {
		r := scaled[slices.IndexFunc(scaled, func(s scale) bool { return s.name == "flannel-to-calico-adopt" })].on(b,
			nodes, 20)
		whole := mustMake(b, r)
		r.options.Window = whole.Estimate / 2
		divided := mustMake(b, r)
		for _, part := range []struct {
			name string
			do   func() error
		}{
			{"make", func() error { r.options.Window = 0; _, err := r.make(); return err }},
			{"make-windows", func() error { r.options.Window = whole.Estimate / 2; _, err := r.make(); return err }},
			{"verify", func() error { return plan.Verify(whole) }},
			{"verify-windows", func() error { return plan.Verify(divided) }},
			{"summary", func() error { plan.Summary(whole); return nil }},
			{"runbook", func() error { plan.Runbook(whole); return nil }},
			{"takes", func() error {
				for i := range divided.Steps {
					divided.Takes(&divided.Steps[i])
				}
				return nil
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", part.name, nodes), func(b *testing.B) {
				before, _ := used(b)
				for b.Loop() {
					if err := part.do(); err != nil {
						b.Fatal(err)
					}
				}
				after, _ := used(b)
				b.ReportMetric((after-before)*1000/float64(b.N), "cpu-ms/op")
				b.ReportMetric(float64(len(divided.Legs())), "windows")
				b.ReportMetric(float64(len(divided.Steps)), "steps")
			})
		}
	}
}

// used is the time that this process had on all cores, and the most memory at any time. The clock on the wall depends
// on who else is on the machine.
func used(b *testing.B) (seconds, peakMiB float64) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds(), float64(usage.Maxrss) / 1024
}

// TestLargeClusters: rules hold whatever the size, and a plan grows with the nodes, not with their square.
func TestLargeClusters(t *testing.T) {
	for name, change := range map[string]func(n int) *request{
		"replaced": func(n int) *request { return large(t, n) },
		"rolled out": func(n int) *request {
			r := toNFTables(t)
			grow(r, n, 10)
			return r
		},
	} {
		sizes := map[int]int{}
		for _, n := range []int{1, 2, 7, 30, 60} {
			p := mustMake(t, change(n))
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
				t.Errorf("%s, %d nodes: the hash changes on reading", name, n)
			}
		}
		if sizes[60] > sizes[30]*21/10 {
			t.Errorf("%s: 60 nodes take %d bytes, 30 take %d", name, sizes[60], sizes[30])
		}
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
