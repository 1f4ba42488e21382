// Package supervise does the work of a process with id 1 in its own pid namespace: it starts programs, reaps every
// orphan, and restarts programs that ended. Do not use os/exec in the same process: the reaper collects every child, so
// no other code may wait for one.
package supervise

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// restartDelay keeps a program that fails at once from taking the whole CPU.
const restartDelay = 200 * time.Millisecond

// Program is something to run.
type Program struct {
	Name string   // names its log and its pid file
	Argv []string // Argv[0] is looked up in PATH
	Env  []string // nil: that of this process
	Attr *syscall.SysProcAttr
	// Files are the descriptors 0, 1, 2, ... of the program; nil means none, the log and the log.
	Files []*os.File
}

// Supervisor runs programs and reaps.
type Supervisor struct {
	logDir, pidDir string
	mu             sync.Mutex
	waiting        map[int]chan syscall.WaitStatus
}

// New returns a supervisor that writes each program's output to logDir/NAME.log and the id of a
// supervised program to pidDir/NAME.pid (not when pidDir is empty), and starts to reap.
func New(logDir, pidDir string) *Supervisor {
	s := &Supervisor{logDir: logDir, pidDir: pidDir, waiting: map[int]chan syscall.WaitStatus{}}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			s.reap()
		}
	}()
	return s
}

func (s *Supervisor) reap() {
	for {
		s.mu.Lock()
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if pid > 0 {
			if done := s.waiting[pid]; done != nil {
				done <- status
				delete(s.waiting, pid)
			}
		}
		s.mu.Unlock()
		if err == syscall.EINTR {
			continue
		}
		if pid <= 0 || err != nil {
			return
		}
	}
}

// Start starts the program and returns its id and a channel that gets its exit status, once.
func (s *Supervisor) Start(p Program) (int, <-chan syscall.WaitStatus, error) {
	path, err := exec.LookPath(p.Argv[0])
	if err != nil {
		return 0, nil, err
	}
	files := p.Files
	if files == nil {
		log, err := os.OpenFile(filepath.Join(s.logDir, p.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return 0, nil, err
		}
		defer log.Close()
		null, err := os.Open(os.DevNull)
		if err != nil {
			return 0, nil, err
		}
		defer null.Close()
		files = []*os.File{null, log, log}
	}
	attr := &syscall.ProcAttr{Env: p.Env, Sys: p.Attr}
	if attr.Env == nil {
		attr.Env = os.Environ()
	}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := syscall.ForkExec(path, p.Argv, attr)
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", path, err)
	}
	done := make(chan syscall.WaitStatus, 1)
	s.waiting[pid] = done
	return pid, done, nil
}

// Run runs the program to its end; its output goes to its log. A status other than 0 is an error.
func (s *Supervisor) Run(ctx context.Context, p Program) error {
	pid, done, err := s.Start(p)
	if err != nil {
		return err
	}
	select {
	case status := <-done:
		if status.ExitStatus() != 0 {
			return fmt.Errorf("%s ended with %s", p.Name, describe(status))
		}
		return nil
	case <-ctx.Done():
		_ = syscall.Kill(pid, syscall.SIGKILL)
		<-done
		return ctx.Err()
	}
}

// Output runs the program with the given standard input and returns its standard
// output and standard error combined.
func (s *Supervisor) Output(ctx context.Context, stdin string, argv ...string) (string, error) {
	in, inw, err := os.Pipe()
	if err != nil {
		return "", err
	}
	outr, out, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer outr.Close()
	go func() { _, _ = io.WriteString(inw, stdin); inw.Close() }()
	text := make(chan string, 1)
	go func() { b, _ := io.ReadAll(outr); text <- string(b) }()
	err = s.Run(ctx, Program{Name: argv[0], Argv: argv, Files: []*os.File{in, out, out}})
	in.Close()
	out.Close()
	return <-text, err
}

// Keep runs the program and restarts it whenever it ends, until the context is done. It is
// synchronous; each exit is written to events.
func (s *Supervisor) Keep(ctx context.Context, p Program, events io.Writer) {
	for ctx.Err() == nil {
		pid, done, err := s.Start(p)
		if err != nil {
			fmt.Fprintf(events, "%s: %v\n", p.Name, err)
		} else {
			s.writePid(p.Name, pid)
			select {
			case status := <-done:
				fmt.Fprintf(events, "%s ended: %s\n", p.Name, describe(status))
			case <-ctx.Done():
				_ = syscall.Kill(pid, syscall.SIGKILL)
				return
			}
		}
		select {
		case <-time.After(restartDelay):
		case <-ctx.Done():
		}
	}
}

func (s *Supervisor) writePid(name string, pid int) {
	if s.pidDir != "" {
		_ = os.WriteFile(filepath.Join(s.pidDir, name+".pid"), []byte(strconv.Itoa(pid)+"\n"), 0o644)
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return "status " + strconv.Itoa(status.ExitStatus())
}
