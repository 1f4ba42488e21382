package guarded

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/safeio/group"
)

// Process is a command that was started.
type Process interface {
	// Ended is closed when the command has ended. Then Ran says how.
	Ended() <-chan struct{}
	Ran() result.Ran
	// Interrupt sends SIGINT, End SIGTERM and, after a while, SIGKILL, and Kill SIGKILL, to the command and all that it
	// started. The error says that the signal was not sent.
	Interrupt() error
	End() error
	Kill() error
}

// Starter starts a command.
type Starter func(command []string) (Process, error)

const (
	// grace is the time that a command has to end after SIGTERM.
	grace = 10 * time.Second
	// lingers is how long processes that a command leaves behind may keep its output open.
	lingers = 2 * time.Second
)

// Here starts commands on this machine, in a session of their own: a Ctrl-C of the terminal reaches theseus alone,
// which passes it on, and a command that opens /dev/tty gets an error: in the session of theseus, the kernel would stop
// it without a word. Lines of the output go to line. The input is empty if in is nil.
func Here(in io.Reader, line func(string)) Starter {
	return func(command []string) (Process, error) {
		p := &process{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
		out := &lines{to: line}
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, out
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		group.Own(p.cmd, syscall.SIGKILL, lingers)
		if file, ok := in.(*os.File); ok {
			p.cmd.Stdin = file // without a copy, which would wait for the end of the input
		}
		if err := p.cmd.Start(); err != nil {
			return nil, err
		}
		go func() { // ends with the command
			defer close(p.ended)
			err := p.cmd.Wait()
			out.flush()
			p.ran = result.Ran{Code: p.cmd.ProcessState.ExitCode()}
			if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				p.ran.Signal = status.Signal().String()
			}
			var exit *exec.ExitError
			// its output could not be shown
			if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
				p.ran.Error = err.Error()
			}
		}()
		return p, nil
	}
}

type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	ran   result.Ran
}

func (p *process) Ended() <-chan struct{} { return p.ended }
func (p *process) Ran() result.Ran        { return p.ran }
func (p *process) Interrupt() error       { return p.signal(syscall.SIGINT) }
func (p *process) Kill() error            { return p.signal(syscall.SIGKILL) }

func (p *process) End() error {
	time.AfterFunc(grace, func() { _ = p.Kill() }) // it would fail as SIGTERM did
	return p.signal(syscall.SIGTERM)
}

func (p *process) signal(s syscall.Signal) error {
	select {
	case <-p.ended: // the number may be another group's by now
		return nil
	default:
	}
	return group.Send(p.cmd, s)
}

// longestLine bounds a line of output, in bytes.
const longestLine = 16 << 10

// lines passes on what is written to it, line by line. A carriage return ends a line too, as progress bars have it.
type lines struct {
	lock sync.Mutex
	to   func(string)
	rest []byte
}

func (l *lines) Write(data []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.rest = append(l.rest, data...)
	for {
		end := bytes.IndexAny(l.rest, "\r\n")
		if end < 0 && len(l.rest) > longestLine {
			end = longestLine
		}
		if end < 0 {
			return len(data), nil
		}
		text, next := string(l.rest[:end]), end
		if c := l.rest[end]; c == '\n' || c == '\r' {
			next++
		}
		l.rest = l.rest[next:]
		if text != "" {
			l.to(text)
		}
	}
}

// flush passes on a last line without an end.
func (l *lines) flush() {
	l.lock.Lock()
	defer l.lock.Unlock()
	if len(l.rest) > 0 {
		l.to(string(l.rest))
		l.rest = nil
	}
}
