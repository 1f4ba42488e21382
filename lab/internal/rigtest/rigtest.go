// Package rigtest starts labs for tests, and runs theseus in them as operators on several machines would.
package rigtest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/workload/serve"
	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// Tests measure less often than the demos do. At the rates of the demos the clients, the servers that answer them,
// and the probers take more than half of two slow cores, and then the control plane has to wait.
const (
	rate          = 60     // requests a second of each client inside the cluster
	probeInterval = "60ms" // of the fastest paths
)

// patience is a generous limit: only a failed test reaches it.
const patience = 10 * time.Minute

// Full skips a test, and says so, unless THESEUS_FULL=1 is set; why describes the skipped test.
func Full(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("THESEUS_FULL") != "1" {
		t.Skip("NOT TESTED: " + why + "; THESEUS_FULL=1 tests it")
	}
}

// Unstarted is a lab that is not running yet; it is removed at the end of the test. bin is the folder of the built
// programs.
func Unstarted(t *testing.T, bin, name string, nodes int, flags ...string) *scenario.Rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the lab makes namespaces: run the tests as root")
	}
	dir, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	rig := &scenario.Rig{Name: name, Nodes: nodes, Rate: rate, Dir: t.TempDir(), Out: &writer{name: t.Name()},
		Flags: append([]string{"--probe-interval", probeInterval}, flags...),
		Lab:   filepath.Join(dir, "theseus-lab"), Theseus: filepath.Join(dir, "theseus")}
	for _, program := range []string{rig.Lab, rig.Theseus} {
		if _, err := os.Stat(program); err != nil {
			t.Fatalf("%v: run `make build` first", err)
		}
	}
	t.Cleanup(func() {
		if err := rig.Down(); err != nil {
			t.Errorf("the lab could not be removed: %v", err)
		}
	})
	return rig
}

// New starts a lab on a network; it is removed at the end of the test. bin is the folder of the built programs.
func New(t *testing.T, bin, name string, nodes int, network string, flags ...string) *scenario.Rig {
	t.Helper()
	rig := Unstarted(t, bin, name, nodes, flags...)
	if err := rig.Up(t.Context(), network); err != nil {
		t.Fatal(err)
	}
	return rig
}

// NothingLost waits until the clients are steady, up to a limit, and demands that they lost nothing and that no denied
// request was answered.
func NothingLost(t *testing.T, rig *scenario.Rig, limit time.Duration, when string) tally.Summary {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cost, err := rig.Steady(ctx)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if loss := scenario.Loss(cost); loss != nil && !excused(t, rig, cost) {
		cost.Print(rig.Out) //nolint:errcheck // for the reader
		t.Fatalf("%s: %v", when, loss)
	}
	return cost
}

// outside begins the names of the kinds of requests that leave the cluster; newOutside opens a new UDP connection each.
const (
	outside    = "outside-"
	newOutside = outside + "udp-new"
)

// excused reports whether the network lost none of the lost requests, as the server outside of the cluster saw it: it
// was held up itself, or they are new UDP connections that came from VXLAN's port. The latter is a fault of Calico
// itself (docs/known-issues.md), not of a change.
func excused(t *testing.T, rig *scenario.Rig, cost tally.Summary) bool {
	t.Helper()
	log, err := rig.InLab(t.Context(), "logs", "controlplane", "init")
	if err != nil {
		t.Errorf("the log of the server outside of the cluster: %v", err)
		return false
	}
	slow := serve.SlowIn(log)
	var left uint64
	for kind, count := range cost.Kinds {
		lost := count.Failed
		if strings.HasPrefix(kind, outside) {
			lost -= heldUp(count.Errors, slow)
		}
		if kind != newOutside && lost > 0 {
			return false
		}
		left += lost
	}
	fromVXLAN := strings.Count(log, serve.FromVXLAN)
	t.Logf("%d requests to the outside failed; the server there took over a second to answer itself %d times; %d "+
		"datagrams came from VXLAN's port, which Calico does not track",
		cost.Failed(), len(slow), fromVXLAN)
	return left <= uint64(fromVXLAN)
}

// margin is how much of the time that a request waited its server may have answered itself.
const margin = time.Second

// heldUp counts the requests that waited while their server did not answer its own machine either.
func heldUp(lost []tally.Error, slow []serve.Span) (n uint64) {
	for _, e := range lost {
		until := e.At.Add(time.Duration(float64(e.After) * float64(time.Millisecond)))
		if slices.ContainsFunc(slow, func(s serve.Span) bool {
			return s.From.Before(e.At.Add(margin)) && s.To.After(until.Add(-margin))
		}) {
			n++
		}
	}
	return n
}

// writer prints output as it comes, so that a test of minutes shows its progress.
type writer struct {
	name string
	lock sync.Mutex
}

func (w *writer) Write(p []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for line := range strings.Lines(string(p)) {
		fmt.Printf("    %s: %s\n", w.name, strings.TrimRight(line, "\n"))
	}
	return len(p), nil
}

// Program is the path of a program that the lab builds, such as build.Kube(version); it is built if the cache does not
// have it. It is for tests in folders of lab/test.
func Program(name string) (string, error) {
	cache := os.Getenv("THESEUS_LAB_CACHE")
	if cache == "" {
		home, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(home, "theseus-lab")
	}
	source, err := filepath.Abs("../../..")
	if err != nil {
		return "", err
	}
	return build.New(source, cache, os.Stderr).Binary(context.Background(), name)
}

// Process is a running theseus.
type Process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lock  sync.Mutex
	said  strings.Builder
	more  chan struct{} // a line was printed
	ended chan struct{}
}

// Arguments adds the plan that was applied last in this lab to a command that takes over a migration: another machine
// does not know which plan was approved. machine is its state folder.
func Arguments(rig *scenario.Rig, machine string, args []string) []string {
	if len(args) > 1 && args[0] == "apply" {
		rig.Applied = args[1]
	}
	takesOver := len(args) > 0 && (args[0] == "resume" || args[0] == "rollback")
	if known, _ := filepath.Glob(filepath.Join(machine, "*", "approved.json")); len(known) > 0 {
		return args
	}
	if !takesOver || rig.Applied == "" || slices.Contains(args, "--expect") || slices.Contains(args, "--plan") {
		return args
	}
	return append(slices.Clone(args), "--plan", rig.Applied)
}

// Start runs theseus on a machine: a name, which means a state folder of its own, or the path of one. A command that
// takes over a migration gets the plan that was applied (Arguments).
func Start(t *testing.T, rig *scenario.Rig, machine string, args ...string) *Process {
	t.Helper()
	if !filepath.IsAbs(machine) {
		machine = filepath.Join(rig.Dir, machine)
	}
	args = Arguments(rig, machine, args)
	p := &Process{t: t, more: make(chan struct{}, 1), ended: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	p.cmd = exec.CommandContext(ctx, rig.Theseus, args...)
	p.cmd.Env = append(os.Environ(), "THESEUS_KUBECONFIG="+cmp.Or(rig.User, filepath.Join(rig.Dir, "kubeconfig")),
		"THESEUS_STATE_DIR="+machine)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(rig.Out, "$ theseus %s\n", strings.Join(args, " "))
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(rig.Out, lines.Text())
			p.lock.Lock()
			fmt.Fprintln(&p.said, lines.Text())
			p.lock.Unlock()
			select {
			case p.more <- struct{}{}:
			default:
			}
		}
		p.cmd.Wait() //nolint:errcheck // the exit code says how it ended
	}()
	return p
}

// Said is its output so far, on both streams.
func (p *Process) Said() string {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.said.String()
}

// Until waits until the process has printed a text.
func (p *Process) Until(text string) {
	p.t.Helper()
	for !strings.Contains(p.Said(), text) {
		select {
		case <-p.more:
		case <-p.ended:
			if !strings.Contains(p.Said(), text) {
				p.t.Fatalf("theseus ended before it said %q:\n%s", text, p.Said())
			}
		}
	}
}

// Signal sends signals, one right after another.
func (p *Process) Signal(signals ...syscall.Signal) {
	p.t.Helper()
	for _, signal := range signals {
		if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			p.t.Fatal(err)
		}
	}
}

// Kill kills the process at once, as a power failure would.
func (p *Process) Kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
	<-p.ended
}

// Code waits for the end, and returns the exit code.
func (p *Process) Code() int {
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// Ends waits for the end, and demands an exit code and texts in the output.
func (p *Process) Ends(code int, texts ...string) {
	p.t.Helper()
	got, said := p.Code(), p.Said()
	if got != code {
		p.t.Fatalf("%s: exit %d, want %d:\n%s", strings.Join(p.cmd.Args, " "), got, code, said)
	}
	for _, text := range texts {
		if !strings.Contains(said, text) {
			p.t.Errorf("%s: %q is not in:\n%s", strings.Join(p.cmd.Args, " "), text, said)
		}
	}
}

// Run runs theseus to its end, as Start and Ends do, and demands that a failure has a hint.
func Run(t *testing.T, rig *scenario.Rig, machine string, code int, texts []string, args ...string) {
	t.Helper()
	if code != 0 {
		texts = append(texts, "\nhint: ")
	}
	Start(t, rig, machine, args...).Ends(code, texts...)
}

// HoldAPIServer holds the API server of the rig's lab for a time, from now on.
func HoldAPIServer(t *testing.T, rig *scenario.Rig, away time.Duration) {
	t.Helper()
	pids := apiServers(t, rig)
	fmt.Fprintf(rig.Out, "-- the API server is unavailable for %s\n", away)
	signal := func(s syscall.Signal) {
		for _, pid := range pids {
			if err := syscall.Kill(pid, s); err != nil {
				t.Error(err)
			}
		}
	}
	signal(syscall.SIGSTOP)
	time.AfterFunc(away, func() { signal(syscall.SIGCONT) })
}

// KillAPIServer kills the API server of the rig's lab; the lab restarts it. Its first answers then come from
// caches that are still cold.
func KillAPIServer(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	for _, pid := range apiServers(t, rig) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	fmt.Fprintln(rig.Out, "-- the API server is killed")
}

// OutsideSpace is the number of the network namespace of a machine that is not a node: the API server's.
func OutsideSpace(t *testing.T, rig *scenario.Rig) string {
	t.Helper()
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", apiServers(t, rig)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(link, "net:[]")
}

// apiServers finds the processes of this lab's API server.
func apiServers(t *testing.T, rig *scenario.Rig) []int {
	t.Helper()
	out, err := exec.Command("pgrep", "-f", "kube-apiserver.*labs/"+rig.Name+"/").Output()
	if err != nil {
		t.Fatalf("no API server of lab %s: %v", rig.Name, err)
	}
	var pids []int
	for _, field := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(field)
		name, _ := os.ReadFile(filepath.Join("/proc", field, "cmdline"))
		if err == nil && slices.Contains(strings.Split(string(name), "\x00"), "kube-apiserver") {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		t.Fatal("no API server found")
	}
	return pids
}
