package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cni/cnitest"
	"github.com/theseus-cni/theseus/internal/kube"
)

// BenchmarkCheckFile runs the built theseus on a snapshot file: every check, reading and writing included, in a
// process of its own. 5,000 nodes are 100,000 pods and 5,000 policies. It reports the process' own CPU time and its
// largest resident size beside the time on the clock.
func BenchmarkCheckFile(b *testing.B) {
	dir := b.TempDir()
	theseus := filepath.Join(dir, "theseus")
	if out, err := exec.Command("go", "build", "-o", theseus, "../../cmd/theseus").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"flannel.yaml", "calico-manifest.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), cnitest.Text(b, name), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			file := filepath.Join(dir, fmt.Sprintf("snapshot-%d.json", nodes))
			size := writeCluster(b, file, nodes)
			b.SetBytes(size)
			for b.Loop() {
				check := exec.Command(theseus, "check", "--from", file, "--from", filepath.Join(dir, "flannel.yaml"), "--to", "calico",
					"--manifest", filepath.Join(dir, "calico-manifest.yaml"), "--pod-cidr", "100.64.0.0/10", "--agent-image", "a:v1", "-o", "json")
				check.Stderr = os.Stderr
				var exit *exec.ExitError
				if _, err := check.Output(); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 3) {
					b.Fatal(err)
				}
				b.ReportMetric(float64(check.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)/1024, "MiB-resident")
				b.ReportMetric((check.ProcessState.UserTime() + check.ProcessState.SystemTime()).Seconds(), "cpu-s")
			}
		})
	}
}

func writeCluster(b *testing.B, file string, nodes int) int64 {
	output, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	defer output.Close()
	if err := kube.WriteSnapshot(output, clustertest.Cluster(nodes)); err != nil {
		b.Fatal(err)
	}
	info, err := output.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}
