// Package migration tests Theseus on real clusters: what it promises when it is killed, stopped, taken back,
// cut off from the API server, or given something that it must refuse.
package migration

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// bin holds the built programs: `make build` makes them, and these tests are of no other.
const bin = "../../../bin"

// newRig starts a lab on flannel for one test, whose end takes it down. These tests are about rollback and resume;
// the demo counts losses. A busy machine loses a probe now and then, which must not roll a test's migration back.
func newRig(t *testing.T, name string, nodes int) *scenario.Rig {
	t.Helper()
	return newRigOn(t, name, nodes, "flannel")
}

// newRigOn is newRig on another network.
func newRigOn(t *testing.T, name string, nodes int, network string) *scenario.Rig {
	t.Helper()
	return rigtest.New(t, bin, name, nodes, network, "--max-lost", "50", "--max-gap", "10s", "--bake", "1s")
}

// command prepares theseus against the rig's cluster, with a state folder of the given name: another name
// is another operator's machine.
func command(ctx context.Context, rig *scenario.Rig, machine string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, rig.Theseus, rigtest.Arguments(rig, filepath.Join(rig.Dir, machine), args)...)
	c.Env = append(os.Environ(),
		"THESEUS_KUBECONFIG="+filepath.Join(rig.Dir, "kubeconfig"),
		"THESEUS_STATE_DIR="+filepath.Join(rig.Dir, machine))
	return c
}

// theseus runs to the end and returns the exit code with all that was printed.
func theseus(t *testing.T, rig *scenario.Rig, machine string, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	var output bytes.Buffer
	c := command(ctx, rig, machine, args...)
	c.Stdout, c.Stderr = &output, &output
	err := c.Run()
	if c.ProcessState == nil {
		t.Fatalf("theseus %s: %v", strings.Join(args, " "), err)
	}
	return c.ProcessState.ExitCode(), output.String()
}

// killAt runs theseus and kills it as soon as it prints text. watch, if not nil, sees every line before.
func killAt(t *testing.T, rig *scenario.Rig, machine, text string, watch func(line string), args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := command(ctx, rig, machine, args...)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = c.Stdout
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	reached := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(rig.Out, lines.Text())
		fmt.Fprintln(&seen, lines.Text())
		if watch != nil {
			watch(lines.Text())
		}
		if !reached && strings.Contains(lines.Text(), text) {
			reached = true
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Wait() //nolint:errcheck // it was killed
	if !reached {
		t.Fatalf("theseus ended before it said %q:\n%s", text, seen.String())
	}
	fmt.Fprintf(rig.Out, "-- killed at %q\n", text)
}

// mustLoseNothing waits for the clients to be steady and demands that nothing failed and nothing got through.
func mustLoseNothing(t *testing.T, rig *scenario.Rig, when string) {
	t.Helper()
	cost := rigtest.NothingLost(t, rig, 3*time.Minute, when)
	t.Logf("%s: nothing lost of %d requests", when, cost.Sent())
}

func mustContain(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}
