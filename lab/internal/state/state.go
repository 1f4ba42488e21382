// Package state stores labs between commands: one directory per lab below the
// state directory, with its description, its kubeconfig, its logs and the identity of its outer process.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/lab/internal/cgroup"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// Lab is the stored state of a lab.
type Lab struct {
	Spec        spec.Lab
	Pid         int    // outer process, as the host sees it; 0 until it runs
	Born        string // its start time in clock ticks, since ids are used again
	Hierarchies []cgroup.Hierarchy
}

// Store is the state directory.
type Store struct{ dir string }

// Open returns the store in dir, which is made when needed.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, "labs"), 0o755); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return &Store{dir: dir}, nil
}

// Root is the state directory.
func (s *Store) Root() string { return s.dir }

// Dir is the directory of a lab.
func (s *Store) Dir(name string) string { return filepath.Join(s.dir, "labs", name) }

// Lock keeps every other command that changes labs out until the returned function is called.
func (s *Store) Lock() (func(), error) {
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the state directory: %w", err)
	}
	return func() { f.Close() }, nil
}

// Names lists the labs that the store knows, running or not.
func (s *Store) Names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "labs"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// ErrNoLab says that there is no lab of the name.
var ErrNoLab = errors.New("no such lab")

// Load reads a lab; ErrNoLab if there is none.
func (s *Store) Load(name string) (Lab, error) {
	var l Lab
	raw, err := os.ReadFile(filepath.Join(s.Dir(name), "lab.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return l, fmt.Errorf("%w: %s", ErrNoLab, name)
	}
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(raw, &l); err != nil {
		return l, fmt.Errorf("read lab %s: %w", name, err)
	}
	return l, nil
}

// Save writes a lab.
func (s *Store) Save(l Lab) error {
	raw, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(s.Dir(l.Spec.Name), "lab.json")
	if err := os.WriteFile(file+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// Running reports whether the outer process of the lab is there.
func (l Lab) Running() bool { return l.Pid != 0 && Born(l.Pid) == l.Born }

// Others loads every running lab but the named one.
func (s *Store) Others(name string) ([]Lab, error) {
	names, err := s.Names()
	if err != nil {
		return nil, err
	}
	var out []Lab
	for _, other := range names {
		l, err := s.Load(other)
		if err == nil && other != name && l.Running() {
			out = append(out, l)
		}
	}
	return out, nil
}

// FreeIndex is the first slot of the fabric that none of the labs has.
func FreeIndex(labs []Lab) (int, error) {
	for i := range spec.MaxLabs {
		if !slices.ContainsFunc(labs, func(l Lab) bool { return l.Spec.Index == i }) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%d labs are already running", spec.MaxLabs)
}

// Born is the start time of a process in clock ticks since the machine's start; empty when there is
// no such process or when it has ended and only waits for its parent.
func Born(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the name in parentheses and may hold anything.
	_, rest, _ := strings.Cut(string(raw[strings.LastIndexByte(string(raw), ')'):]), " ")
	f := strings.Fields(rest)
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return ""
	}
	return f[19]
}

// Stop kills the lab's outer process, waits until it has ended, and removes the lab's cgroups. It is
// not an error if there is nothing to stop.
func (l Lab) Stop(timeout time.Duration) error {
	if l.Running() {
		if err := killAndWait(l.Pid, timeout); err != nil {
			return fmt.Errorf("stop lab %s: %w", l.Spec.Name, err)
		}
	}
	return cgroup.Remove(l.Hierarchies, l.Spec.Cgroup(), timeout)
}

// killAndWait waits by the process's descriptor, which becomes readable when the process, and with
// it everything in its pid namespace, has ended.
func killAndWait(pid int, timeout time.Duration) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return err
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	end := time.Now().Add(timeout)
	for {
		n, err := unix.Poll(poll, int(time.Until(end).Milliseconds()))
		if n > 0 {
			return nil
		}
		if err == unix.EINTR && time.Now().Before(end) {
			continue
		}
		return fmt.Errorf("process %d did not end in %s", pid, timeout)
	}
}

// Remove deletes everything that is stored of a lab.
func (s *Store) Remove(name string) error { return os.RemoveAll(s.Dir(name)) }

// HostPid translates the id of a process in the lab's pid namespace to the host's.
func (l Lab) HostPid(inner int) (int, error) {
	procs, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return 0, err
	}
	for _, file := range procs {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // it ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && matches(string(raw), l.Pid, pid, inner) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("process %d of lab %s is gone", inner, l.Spec.Name)
}

// matches reports whether status is of a child of outer whose id one namespace further in is inner.
func matches(status string, outer, pid, inner int) bool {
	var parent, nspid string
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "PPid":
			parent = strings.TrimSpace(value)
		case "NSpid":
			nspid = value
		}
	}
	ids := strings.Fields(nspid)
	return parent == strconv.Itoa(outer) && len(ids) >= 2 && ids[0] == strconv.Itoa(pid) &&
		ids[1] == strconv.Itoa(inner)
}
