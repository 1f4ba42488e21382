package state

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/spec"
)

func TestStore(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load("a"); !errors.Is(err, ErrNoLab) {
		t.Errorf("got %v, want ErrNoLab", err)
	}
	if err := os.MkdirAll(s.Dir("a"), 0o755); err != nil {
		t.Fatal(err)
	}
	me := Lab{Spec: spec.Lab{Name: "a", Index: 3}, Pid: os.Getpid(), Born: Born(os.Getpid())}
	if err := s.Save(me); err != nil {
		t.Fatal(err)
	}
	got, err := s.Load("a")
	if err != nil || got.Spec.Index != 3 || !got.Running() {
		t.Errorf("got %+v, %v", got, err)
	}
	if others, err := s.Others("a"); err != nil || len(others) != 0 {
		t.Errorf("others of a: %v, %v", others, err)
	}
	if others, err := s.Others("b"); err != nil || len(others) != 1 {
		t.Errorf("others of b: %v, %v", others, err)
	}
	if err := s.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if names, err := s.Names(); err != nil || len(names) != 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}

func TestFreeIndex(t *testing.T) {
	at := func(indexes ...int) (labs []Lab) {
		for _, i := range indexes {
			labs = append(labs, Lab{Spec: spec.Lab{Index: i}})
		}
		return labs
	}
	for want, labs := range map[int][]Lab{0: at(1, 2), 1: at(0, 2), 3: at(2, 1, 0)} {
		if got, err := FreeIndex(labs); err != nil || got != want {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
	}
	if i, err := FreeIndex(at(0, 1, 2, 3, 4, 5, 6, 7)); err == nil {
		t.Errorf("a ninth lab got slot %d", i)
	}
}

// A process id that is used again must not be taken for the lab.
func TestRunning(t *testing.T) {
	l := Lab{Pid: os.Getpid(), Born: "1"}
	if l.Running() {
		t.Error("a process with another start time counts as the lab")
	}
	if (Lab{}).Running() {
		t.Error("a lab that never started runs")
	}
}

func TestKillAndWait(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := killAndWait(cmd.Process.Pid, time.Minute); err != nil {
		t.Error(err)
	}
	if Born(cmd.Process.Pid) != "" {
		t.Error("an ended process that nobody has waited for counts as running")
	}
	_ = cmd.Wait()
}

func TestMatches(t *testing.T) {
	const status = "Name:\ttheseus-lab\nPPid:\t100\nNSpid:\t205\t7\t1\n"
	tests := []struct {
		name              string
		outer, pid, inner int
		want              bool
	}{
		{"the node's process 1", 100, 205, 7, true},
		{"another lab's", 101, 205, 7, false},
		{"another node's", 100, 205, 8, false},
		{"a stale directory", 100, 206, 7, false},
	}
	for _, tt := range tests {
		if got := matches(status, tt.outer, tt.pid, tt.inner); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
	if matches("PPid:\t100\nNSpid:\t205\n", 100, 205, 205) {
		t.Error("a process of the host's own namespace counts as a lab's")
	}
}
