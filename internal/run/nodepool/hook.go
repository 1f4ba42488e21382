package nodepool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/group"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
	"github.com/theseus-cni/theseus/internal/step"
)

// grace is the time that a hook has to end when it is terminated; then its process group is killed.
const grace = 5 * time.Second

// kept is how many bytes of the end of a hook's output are kept.
const kept = 4096

// hook is a running command.
type hook struct {
	verb   string // add or remove
	cmd    *exec.Cmd
	output tail
	err    error // of the command, once it has ended
	ended  chan struct{}
}

// start runs a command, which ends with the context at the latest. A failure to start is an error of the hook.
func start(ctx context.Context, verb string, command, environment []string) *hook {
	h := &hook{verb: verb, cmd: exec.CommandContext(ctx, command[0], command[1:]...), ended: make(chan struct{})}
	h.cmd.Env = append(os.Environ(), environment...)
	h.cmd.Stdout, h.cmd.Stderr = &h.output, &h.output
	group.Own(h.cmd, syscall.SIGTERM, grace) // Ctrl-C must not reach it
	if h.err = h.cmd.Start(); h.err != nil {
		close(h.ended)
		return h
	}
	go func() {
		defer close(h.ended)
		h.err = h.cmd.Wait()
		if ctx.Err() != nil || errors.Is(h.err, exec.ErrWaitDelay) {
			_ = group.Send(h.cmd, syscall.SIGKILL) // processes that it left behind
		}
	}()
	return h
}

// over reports whether the command has ended.
func (h *hook) over() bool {
	select {
	case <-h.ended:
		return true
	default:
		return false
	}
}

// stop ends the command if it still runs, and waits until it has.
func (h *hook) stop() {
	if h.over() {
		return
	}
	_ = h.cmd.Cancel()
	select {
	case <-h.ended:
	case <-time.After(grace):
		_ = group.Send(h.cmd, syscall.SIGKILL)
		<-h.ended
	}
}

// failure is the error of a command that failed.
func (h *hook) failure(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return h.hung()
	case errors.Is(h.err, exec.ErrWaitDelay):
		return engine.WithHint(fmt.Errorf("the command %q succeeded, but processes that it left running kept its "+
			"output open for %s more and were killed%s", h.cmd.Args, grace, h.said()),
			"let the command of --"+h.verb+"-hook wait for what it starts")
	}
	return engine.WithHint(fmt.Errorf("the command %q failed: %w%s", h.cmd.Args, h.err, h.said()),
		"fix the command of --"+h.verb+"-hook, which runs on this machine")
}

func (h *hook) hung() error {
	return engine.WithHint(errors.New("the command exceeded its timeout and was terminated"+h.said()),
		"make the command of --"+h.verb+"-hook end in time, or raise --hook-timeout")
}

// late is the error when the timeout expires. It ends the command, to have all of its output.
func (h *hook) late(what string) error {
	if !h.over() {
		h.stop()
		return h.hung()
	}
	if h.err != nil { // the timeout has ended it
		return h.hung()
	}
	hint := "find out why no node joined, or raise --hook-timeout; remove a node that still joins yourself"
	if h.verb == step.VerbRemove {
		hint = "remove the machine, or, if it is gone, the Node object: kubectl delete node"
	}
	return engine.WithHint(fmt.Errorf("the command succeeded, but the timeout expired while waiting for %s%s",
		what, h.said()), hint)
}

// said is the end of a failed command's output, for its error: the last lines, cut and printable. The error goes into
// the journal, so it is the only part of the output that does.
func (h *hook) said() string {
	const lines, most = 3, 500
	text := strings.TrimSpace(h.output.String())
	if text == "" {
		return ""
	}
	all := strings.Split(text, "\n")
	text = strings.Join(all[max(0, len(all)-lines):], " / ")
	if cut := len(text) - most; cut > 0 {
		text = "..." + strings.ToValidUTF8(text[cut:], "")
	}
	return "; its last output: " + printable.Line(text)
}

// tail keeps the end of what is written to it.
type tail struct {
	lock sync.Mutex
	data []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.data = append(t.data, p[max(0, len(p)-kept):]...)
	t.data = t.data[max(0, len(t.data)-kept):]
	return len(p), nil
}

// String is the kept output, as valid UTF-8.
func (t *tail) String() string {
	t.lock.Lock()
	defer t.lock.Unlock()
	return strings.ToValidUTF8(string(t.data), "?")
}

// Runnable reports whether the program of each command exists on this machine.
func Runnable(commands ...[]string) error {
	for _, command := range commands {
		if _, err := exec.LookPath(command[0]); err != nil {
			return fmt.Errorf("the command %q cannot be run here: %w", command, err)
		}
	}
	return nil
}
