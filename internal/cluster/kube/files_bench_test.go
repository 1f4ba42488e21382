package kube

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
)

// BenchmarkReadSnapshot reads a snapshot file; 5,000 nodes are 100,000 pods.
func BenchmarkReadSnapshot(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		var text bytes.Buffer
		if err := WriteSnapshot(&text, clustertest.Cluster(nodes)); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) { benchmarkRead(b, text.Bytes()) })
	}
}

// BenchmarkReadYAML reads what kubectl prints: 10,000 pods in one List.
func BenchmarkReadYAML(b *testing.B) {
	var text bytes.Buffer
	text.WriteString("apiVersion: v1\nitems:\n")
	pods := clustertest.Cluster(500).Pods
	for i := range pods {
		pods[i].APIVersion, pods[i].Kind = "v1", "Pod"
		one, err := yaml.Marshal(&pods[i])
		if err != nil {
			b.Fatal(err)
		}
		text.WriteString("- " +
			string(bytes.TrimSuffix(bytes.ReplaceAll(one, []byte("\n"), []byte("\n  ")), []byte("  "))))
	}
	text.WriteString("kind: List\n")
	benchmarkRead(b, text.Bytes())
}

func benchmarkRead(b *testing.B, text []byte) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		snapshot, _, err := ReadFiles("v", io.Reader(bytes.NewReader(text)), Stdin)
		if err != nil {
			b.Fatal(err)
		}
		if len(snapshot.Pods) == 0 {
			b.Fatal("nothing was read")
		}
	}
}
