// Package test holds the tests of the whole lab. They run in a world of their own: pid, mount,
// network, uts and ipc namespaces in which nothing else runs, so that "before" and "after" can be
// compared to the last process whatever else the machine does.
package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/lab/internal/supervise"
)

// worldKey says how far a test process is on its way into the world.
const worldKey = "THESEUS_LAB_TEST_WORLD"

func TestMain(m *testing.M) {
	switch os.Getenv(worldKey) {
	case "":
		os.Exit(enterWorld())
	case "init":
		os.Exit(beInit())
	}
	os.Exit(m.Run())
}

// enterWorld runs this program again as process 1 of the world.
func enterWorld() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), worldKey+"=init")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		// With this one Go makes the mounts private as well.
		Unshareflags: unix.CLONE_NEWNS,
	}
	if err := cmd.Run(); errors.Is(err, os.ErrPermission) {
		return exitCode(fmt.Errorf("the lab's tests need root: %w", err))
	} else {
		return exitCode(err)
	}
}

// beInit is process 1 of the world: it runs the tests as a child and reaps what they leave.
func beInit() int {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return exitCode(fmt.Errorf("mount proc: %w", err))
	}
	if err := exec.Command("ip", "link", "set", "lo", "up").Run(); err != nil {
		return exitCode(fmt.Errorf("set lo up: %w", err))
	}
	dir, err := os.MkdirTemp("", "lab-world-")
	if err != nil {
		return exitCode(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return exitCode(err)
	}
	// Set, not appended: supervise hands the environment on as it is, and the first of two values counts.
	if err := os.Setenv(worldKey, "inside"); err != nil {
		return exitCode(err)
	}
	return exitCode(supervise.New(dir, "").Run(context.Background(), supervise.Program{
		Name: "tests", Argv: append([]string{self}, os.Args[1:]...),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	}))
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}

// lab is a program under test with a state directory of its own.
type lab struct {
	t       *testing.T
	program string
	state   string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{t: t, program: filepath.Join(dir, "theseus-lab"), state: filepath.Join(dir, "state")}
	build := exec.Command("go", "build", "-o", l.program, "../cmd/theseus-lab")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	t.Cleanup(func() { _, _ = l.try("down", "--all") })
	return l
}

// try runs a command line and returns what it printed on both streams.
func (l *lab) try(args ...string) (string, error) {
	cmd := exec.Command(l.program, append([]string{"--state", l.state}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// do runs a command line that must succeed.
func (l *lab) do(args ...string) string {
	l.t.Helper()
	out, err := l.try(args...)
	if err != nil {
		l.t.Fatalf("theseus-lab %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}
