package probe

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestPod plays the agent: it asks for paths, waits for results of their generation, and asks for others.
func TestPod(t *testing.T) {
	t.Parallel()
	udp, _ := echoServer(t)
	dir := folders(t, "old")
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
	if left, _ := filepath.Glob(filepath.Join(dir, "old", "*", ".*")); len(left) > 0 {
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
	if err := RunPod(t.Context(),
		Pod{Dir: t.TempDir(), Network: "new", Ports: Ports{TCP: port(t, taken.Addr().String())}}); err == nil {
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

// folders makes a folder with those of a prober in it.
func folders(t *testing.T, network string) string {
	t.Helper()
	dir := t.TempDir()
	if err := MakeFolders(dir, []string{network}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPodLingers: a prober that is to end sends no more, but answers until it has ended, and what it sent is decided
// then.
func TestPodLingers(t *testing.T) {
	t.Parallel()
	udp, _ := echoServer(t)
	dir := folders(t, "old")
	own := closedPort(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- RunPod(ctx, Pod{Dir: dir, Network: "old", Address: "127.0.0.1", UID: "u",
			Ports: Ports{UDP: port(t, own)}, Linger: time.Second})
	}()
	if err := WritePaths(PathsPath(dir, "old"),
		PathsFile{7, []v1alpha1.Path{pathTo("a", v1alpha1.UDP, udp)}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it measures", func() bool {
		file, _ := ReadResults(ResultsPath(dir, "old"))
		return len(file.Paths) == 1 && file.Paths[0].Answered > 10
	})
	asking := NewRunner(Options{})
	defer asking.Close()
	asking.SetPaths([]v1alpha1.Path{pathTo("b", v1alpha1.UDP, own)})
	eventually(t, "it answers", func() bool { return resultOf(asking, "b").Answered > 10 })
	cancel()
	at := resultOf(asking, "b").Answered
	eventually(t, "it still answers", func() bool { return resultOf(asking, "b").Answered > at+10 })
	select {
	case err := <-ended:
		t.Fatalf("it has ended at once: %v", err)
	default:
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	file, err := ReadResults(ResultsPath(dir, "old"))
	if err != nil || file.Pod != "u" || file.Since.IsZero() || file.Paths[0].Sent != file.Paths[0].Answered {
		t.Errorf("its last results: %+v, %v", file, err)
	}
}

// TestReadHostileFile: what a prober puts where its results should be is an error that costs the agent little.
func TestReadHostileFile(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(`{"generation":7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "results.json")
	for name, put := range map[string]func() error{
		"a link":   func() error { return os.Symlink(secret, file) },
		"a pipe":   func() error { return syscall.Mkfifo(file, 0o600) },
		"a folder": func() error { return os.Mkdir(file, 0o700) },
		"holes":    func() error { return errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 1<<40)) },
		"many paths": func() error {
			return os.WriteFile(file, []byte(`{"paths":[{}`+strings.Repeat(",{}", maxPaths)+`]}`), 0o600)
		},
		"many gaps": func() error {
			return os.WriteFile(file, []byte(`{"paths":[{"gaps":[{}`+strings.Repeat(",{}", maxFile/3)+`]}]}`), 0o600)
		},
	} {
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := ReadResults(file)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: read as %d paths of generation %d", name, len(got.Paths), got.Generation)
		}
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 16<<20 {
			t.Errorf("%s: %d MiB to say %v", name, cost>>20, err)
		}
	}
	if err := os.RemoveAll(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`{"generation":7,"paths":[{"id":"a"},{"id":"b"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadResults(file); err != nil || got.Generation != 7 || len(got.Paths) != 2 ||
		got.Paths[1].ID != "b" {
		t.Errorf("a good file: %+v, %v", got, err)
	}
}

// TestFolders: a prober's user may write into its own "out" folder and nowhere else, and reads its paths.
func TestFolders(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("", "probers") // t.TempDir() has parents that nobody else may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// as a former agent, or kubelet, may have
	if err := os.MkdirAll(filepath.Join(dir, "old", "out"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := MakeFolders(dir, []string{"old", "new"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := WritePaths(PathsPath(dir, "old"), PathsFile{Generation: 1}); err != nil {
		t.Fatal(err)
	}
	for script, may := range map[string]bool{
		"cat old/paths.json": true, "echo {} > old/out/results.json": true,
		"mv old/out/results.json old/out/again": true, "echo {} > old/paths.json": false,
		"mv old/out old/in": false, "mkdir old/more": false, "rm -f old/paths.json": false, "mkdir more": false,
	} {
		command := exec.Command("sh", "-c", script)
		command.Dir = dir
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ProberUser, Gid: ProberUser}}
		if script == "mv old/out/results.json old/out/again" {
			if err := os.WriteFile(filepath.Join(dir, "old/out/results.json"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := command.CombinedOutput(); (err == nil) != may {
			t.Errorf("%s: %v %s", script, err, out)
		}
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
