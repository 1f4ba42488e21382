package run

import (
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
)

// manyPaths is how many paths of a node are measured while two networks are joined.
const manyPaths = 54

// manyReports is the evidence of a cluster of so many nodes, as a run collects it.
func manyReports(nodes int) kube.Collected {
	var all kube.Collected
	begun := time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
	for n := range nodes {
		name := fmt.Sprintf("node-%d", n+1)
		for i := range manyPaths {
			to := fmt.Sprintf("node-%d", (n+1+i/18)%nodes+1)
			one := v1alpha1.Path{ID: fmt.Sprintf("%s/old>%s/new/udp-%d", name, to, i), Class: "pod-pod",
				Source: v1alpha1.Endpoint{Node: name, Network: "old"},
				Target: v1alpha1.Endpoint{Node: to, Network: "new", Address: fmt.Sprintf("10.64.%d.%d:7946", n%250,
					i+1)}, Protocol: v1alpha1.UDP, Size: 64, IntervalMillis: 200}
			all.Paths = append(all.Paths, one)
			all.Results = append(all.Results, v1alpha1.PathResult{ID: one.ID, Sent: 9000, Answered: 9000, Since: begun,
				Last: begun.Add(30 * time.Minute), RTTMicros: [3]int64{310, 900, 4200},
				RTTCounts: []int64{0, 0, 0, 0, 1125, 1968, 1968, 1969, 1970}})
		}
		for _, part := range []string{"agent", "host", "new", "old"} {
			all.Parts = append(all.Parts, kube.PartRun{Node: name,
				Part: v1alpha1.Part{Name: part, Pod: "1f0c4c1e-0000-4000-8000-000000000000", Since: begun, At: begun}})
		}
	}
	return all
}

// BenchmarkManyNodes: the processor time of what a run does with its evidence, on clusters of two sizes.
func BenchmarkManyNodes(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		evidence, dir := kube.NewEvidence(manyReports(nodes)), b.TempDir()
		document := evidence.Document()
		packed := sync.OnceValue(func() []byte {
			text, err := pack(document)
			if err != nil {
				b.Error(err)
			}
			return text
		})
		for _, part := range []struct {
			name string
			do   func() error
		}{
			{"document", func() error { evidence.Document(); return nil }},
			{"seen", func() error { SeenIn(document); return nil }},
			{"keep", func() error { return Keep(dir, document) }},
			{"read", func() error { _, err := kept(dir); return err }},
			{"read-whole", func() error { // by the standard library, to compare with
				var all kube.Collected
				return infile.ReadJSON(filepath.Join(dir, EvidenceFile), 1<<29, &all)
			}},
			{"pack", func() error { _, err := pack(document); return err }},
			{"unpack", func() error { _, err := unpack(packed(), 1<<29); return err }},
		} {
			b.Run(fmt.Sprintf("%s/%d", part.name, nodes), func(b *testing.B) {
				begun := processor(b)
				for b.Loop() {
					if err := part.do(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((processor(b)-begun).Milliseconds())/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// processor is the processor time that this process has used.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
