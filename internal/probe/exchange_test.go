package probe

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestPod plays the agent: it asks for paths, waits for results of their generation, and asks for others.
func TestPod(t *testing.T) {
	t.Parallel()
	udp, _ := echoServer(t)
	dir := t.TempDir()
	if err := os.WriteFile(ResultsPath(dir, "old"), []byte(`{"generation":99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- RunPod(ctx, Pod{Dir: dir, Network: "old", Ports: Ports{UDP: port(t, closedPort(t))}})
	}()
	results := func() ResultsFile {
		file, err := ReadResults(ResultsPath(dir, "old"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return file
	}
	eventually(t, "old results are removed", func() bool { return results().Generation == 0 })
	for generation := int64(1); generation <= 2; generation++ {
		err := WritePaths(PathsPath(dir, "old"), PathsFile{generation, []v1alpha1.Path{pathTo("a", v1alpha1.UDP, udp)}})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "results of the generation", func() bool {
			file := results()
			return file.Generation == generation && len(file.Paths) == 1 && file.Paths[0].Answered > 10
		})
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestServeTakenPort: a port that cannot be had is an error at once, and lets the others go.
func TestServeTakenPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := port(t, closedPort(t))
	if err := Serve(t.Context(), "127.0.0.1", Ports{UDP: free, TCP: port(t, taken.Addr().String())}); err == nil {
		t.Fatal("no error")
	}
	if err := RunPod(t.Context(), Pod{Dir: t.TempDir(), Network: "new", Ports: Ports{TCP: port(t, taken.Addr().String())}}); err == nil {
		t.Fatal("a pod that cannot serve goes on")
	}
}

// TestServeOnlyProbes: the datagram server answers probes, and nothing that another server could have said.
func TestServeOnlyProbes(t *testing.T) {
	t.Parallel()
	udp, _ := echoServer(t)
	conn, err := net.Dial("udp", udp)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, data := range []string{"x", answer + "01234567890123456789", question + "01234567890123456789"} {
		if _, err := conn.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	buffer := make([]byte, 100)
	n, err := conn.Read(buffer) // the server takes them in order: the first answer is to the last
	if err != nil || string(buffer[:n]) != answer+"01234567890123456789" {
		t.Errorf("got %q, %v", buffer[:n], err)
	}
}

func TestReadBrokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(file, []byte(`{"generation":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPaths(file); err == nil {
		t.Error("half a file is read")
	}
	if err := WritePaths(filepath.Join(filepath.Dir(file), "absent", "x"), PathsFile{}); err == nil {
		t.Error("written into a folder that is not there")
	}
}
