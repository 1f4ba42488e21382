package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

// BenchmarkCheckFile runs the built theseus on a snapshot file: every check, reading and writing included, in a
// process of its own. 5,000 nodes are 100,000 pods and 5,000 policies. It reports the process' own CPU time and its
// largest resident size next to the time on the clock.
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
				check := exec.Command(theseus, "check", "--from", file, "--from",
					filepath.Join(dir, "flannel.yaml"), "--to", "calico", "--manifest",
					filepath.Join(dir, "calico-manifest.yaml"), "--pod-cidr", "100.64.0.0/10",
					"--agent-image", "a:v1", "-o", "json")
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

// writeCluster makes the file in a process of its own: a child's largest resident size counts from its parent's.
func writeCluster(b *testing.B, file string, nodes int) int64 {
	generate := filepath.Join(filepath.Dir(file), generateCommand)
	if err := os.Symlink(os.Args[0], generate); err != nil && !errors.Is(err, os.ErrExist) {
		b.Fatal(err)
	}
	if out, err := exec.Command(generate, file, strconv.Itoa(nodes)).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(file)
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}

// generateCommand is this binary as a program that writes the snapshot of a generated cluster.
const generateCommand = "generate-cluster"

func generateCluster() error {
	nodes, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	output, err := os.Create(os.Args[1])
	if err != nil {
		return err
	}
	defer output.Close()
	return kube.WriteSnapshot(output, clustertest.Cluster(nodes))
}
