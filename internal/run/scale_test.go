package run

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
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
			one := v1alpha1.Path{ID: fmt.Sprintf("%s/old>%s/new/udp-%d", name, to, i), Class: "pod-pod", Source: v1alpha1.Endpoint{Node: name, Network: "old"},
				Target: v1alpha1.Endpoint{Node: to, Network: "new", Address: fmt.Sprintf("10.64.%d.%d:7946", n%250, i+1)}, Protocol: v1alpha1.UDP, Size: 64, IntervalMillis: 200}
			all.Paths = append(all.Paths, one)
			all.Results = append(all.Results, v1alpha1.PathResult{ID: one.ID, Sent: 9000, Answered: 9000, Since: begun, Last: begun.Add(30 * time.Minute),
				RTTMicros: [3]int64{310, 900, 4200}, RTTCounts: []int64{0, 0, 0, 0, 1125, 1968, 1968, 1969, 1970}})
		}
		for _, part := range []string{"agent", "host", "new", "old"} {
			all.Parts = append(all.Parts, kube.PartRun{Node: name, Part: v1alpha1.Part{Name: part, Pod: "1f0c4c1e-0000-4000-8000-000000000000", Since: begun, At: begun}})
		}
	}
	return all
}

// BenchmarkManyNodes: what a run does with its evidence, on clusters of two sizes.
func BenchmarkManyNodes(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		evidence := kube.NewEvidence(manyReports(nodes))
		b.Run(fmt.Sprintf("document/%d", nodes), func(b *testing.B) {
			for b.Loop() {
				evidence.Document()
			}
		})
		document := evidence.Document()
		b.Run(fmt.Sprintf("seen/%d", nodes), func(b *testing.B) {
			for b.Loop() {
				SeenIn(document)
			}
		})
		dir := b.TempDir()
		b.Run(fmt.Sprintf("keep/%d", nodes), func(b *testing.B) {
			for b.Loop() {
				if err := Keep(dir, document); err != nil {
					b.Fatal(err)
				}
			}
			if info, err := os.Stat(dir + "/" + EvidenceFile); err == nil {
				b.ReportMetric(float64(info.Size())/1e6, "MB")
			}
		})
		b.Run(fmt.Sprintf("read/%d", nodes), func(b *testing.B) {
			for b.Loop() {
				if _, err := kept(dir); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("pack/%d", nodes), func(b *testing.B) {
			for b.Loop() {
				packed, err := pack(document)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(packed))/1e6, "MB")
			}
		})
	}
}
