package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cli"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

// TestMain lets scripts run this binary as theseus: in a folder, an environment and a process of its own,
// with pipes for standard streams.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"theseus": func() {
			os.Exit(cli.Main(context.Background(), os.Args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
		},
		generateCommand: func() {
			if err := generateCluster(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		},
	})
}

// TestScripts runs every script in testdata. `exits CODE theseus ...` demands an exit code and, for every
// code but 0 and 3, that standard error is one error: line and one hint: line.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"flannel.yaml", "weave.yaml", "calico.yaml", "calico-manifest.yaml",
				"charts/cilium-v1.16.5.yaml",
				"flannel-manifest.yaml", "tigera-operator-v1.38.1.yaml", "tigera-operator-v1.40.0.yaml",
				"golden/bridge.json", "golden/calico.json", "golden/mixed.json"} {
				if err := os.WriteFile(filepath.Join(env.WorkDir, filepath.Base(name)),
					cnitest.Text(t, name), 0o600); err != nil {
					return err
				}
			}
			var cilium []byte
			for _, object := range cnitest.Cilium(t, "v1.16.5") {
				text, err := yaml.Marshal(object.Object)
				if err != nil {
					return err
				}
				cilium = append(append(cilium, "---\n"...), text...)
			}
			if err := os.WriteFile(filepath.Join(env.WorkDir, "cilium.yaml"), cilium, 0o600); err != nil {
				return err
			}
			example, err := os.ReadFile(filepath.Join("..", "..", "docs", "examples", "pi-day.yaml"))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(env.WorkDir, "pi-day.yaml"), example, 0o600); err != nil {
				return err
			}
			env.Setenv("THESEUS_STATE_DIR", filepath.Join(env.WorkDir, "state"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

var complaint = regexp.MustCompile(`^((note|waiting for the API server): .*\n)*error: .+\nhint: .+\n$`)

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE command ...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if want != 0 && want != 3 {
		if said := ts.ReadFile("stderr"); !complaint.MatchString(said) {
			ts.Fatalf("standard error is not one error: line and one hint: line, but %q", said)
		}
	}
}
