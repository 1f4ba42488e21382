package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// Commands runs programs, at most a few at a time and each with a limit of time.
type Commands struct {
	slots   chan struct{}
	timeout time.Duration
}

// NewCommands runs at most limit programs at a time, each for at most timeout.
func NewCommands(limit int, timeout time.Duration) *Commands {
	return &Commands{slots: make(chan struct{}, limit), timeout: timeout}
}

// pipeWait is how long a grandchild that keeps a program's pipes open keeps us. On a busy node, a process may not run
// for a second, and the output of a program that succeeded must not be dropped for that.
const pipeWait = 10 * time.Second

// errAbsent says that a program is not in the image.
var errAbsent = errors.New("not in the agent's image")

// run gives input to a program and returns what it printed. The error ends in what it said on stderr.
func (c *Commands) run(ctx context.Context, input, name string, args ...string) (string, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for {
		out, err := once(ctx, input, name, args)
		if !errors.Is(err, syscall.EAGAIN) || ctx.Err() != nil {
			return out, err
		}
		_ = outage.Sleep(ctx, startAgain)
	}
}

// startAgain is how long a program waits that the node had no process left for.
const startAgain = 200 * time.Millisecond

func once(ctx context.Context, input, name string, args []string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	cmd.WaitDelay = pipeWait
	err := cmd.Run()
	said := oneLine(errs.String())
	switch {
	case err == nil:
		return out.String(), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%s: %w", name, errAbsent)
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s %s did not end in time: %w", name, strings.Join(args, " "), ctx.Err())
	case said == "":
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said)
}

// oneLine makes what a program said fit in a message.
func oneLine(text string) string {
	const limit = 500
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		text = text[:limit] + "..."
	}
	return text
}
