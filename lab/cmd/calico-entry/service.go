package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// pidDir has the pid files of running services, for sv.
	pidDir = "/run/calico-entry"

	// restartRequest is the exit code of a daemon that wants to be restarted with a new configuration.
	restartRequest = 129
	// pause is the delay before a failed daemon is restarted, as under runit.
	pause = time.Second
)

// service is a daemon that is kept running, by its name in sv.
type service struct {
	name string
	argv []string
}

// node is the service that is one mode of calico-node.
func node(name, flag string) service { return service{name: name, argv: []string{"calico-node", flag}} }

// keep restarts a service whenever it ends, as runit does: at once if the service asked for it.
func keep(ctx context.Context, pids string, s service) {
	for ctx.Err() == nil {
		err := s.run(ctx, pids)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == restartRequest {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s ended: %v\n", strings.Join(s.argv, " "), err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// run runs the service once, and keeps its pid file meanwhile.
func (s service) run(ctx context.Context, pids string) error {
	cmd := start(ctx, s.argv...)
	if err := cmd.Start(); err != nil {
		return err
	}
	file := filepath.Join(pids, s.name)
	if err := os.WriteFile(file, []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err) // sv will not find it, but the service runs
	}
	defer os.Remove(file)
	return cmd.Wait()
}

// start prepares a program, which is killed when ctx ends.
func start(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

// sv does what Calico uses of runit's sv: confd sends SIGHUP to BIRD after it wrote BIRD's configuration,
// and the liveness probe checks that confd and BIRD run. Services are named by a path or by its last part.
func sv(args []string, pids string, out io.Writer) error {
	if len(args) != 2 || args[0] != "hup" && args[0] != "status" {
		return errors.New("usage: sv hup|status SERVICE")
	}
	name := filepath.Base(args[1])
	text, err := os.ReadFile(filepath.Join(pids, name))
	if err != nil {
		return fmt.Errorf("%s is not running: %w", name, err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return fmt.Errorf("the process of %s: %w", name, err)
	}
	if args[0] == "hup" {
		return syscall.Kill(pid, syscall.SIGHUP)
	}
	_, err = fmt.Fprintf(out, "run: %s: (pid %d)\n", args[1], pid)
	return err
}
