package mirror

import (
	"fmt"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestWhole plays the story of `make demo-mirror`: two real clusters, a dozen services behind kube-proxy's load
// balancer addresses, BIND, unbound, and clients that never pause. The idle cluster goes from flannel to Calico by
// steps of the plan, by each of the strategies that there are, and nobody notices.
func TestWhole(t *testing.T) {
	for strategy, nodes := range map[string]string{"recreate": "blue-node-1", "adopt": "blue-node-1",
		"surge": "blue-node-2"} {
		t.Run(strategy, func(t *testing.T) {
			rigtest.Full(t, "two clusters, their names moved there and back, the original changed by "+strategy)
			rig := rigtest.Unstarted(t, bin, "blue", 1)
			rig.Strategy = strategy
			if err := scenario.Mirror(t.Context(), rig); err != nil {
				t.Fatal(err)
			}
			for args, want := range map[string]string{"get nodes -o jsonpath={.items[*].metadata.name}": nodes,
				"-n kube-system get daemonset -o jsonpath={.items[*].metadata.name}": "calico-node"} {
				if got, err := rig.Kubectl(t.Context(), nil, strings.Fields(args)...); err != nil || got != want {
					t.Errorf("kubectl %s: %q (%v), want %q", args, got, err, want)
				}
			}
		})
	}
}

// TestDisturbed has a service that does not answer on the mirror, so that what had moved goes back; and then the whole
// way, with theseus killed at each step and another one that goes on. Nobody notices either.
func TestDisturbed(t *testing.T) {
	rigtest.Full(t, "two clusters, a service broken on the mirror, and theseus killed at each step")
	m, err := scenario.NewTwins(t.Context(), rigtest.Unstarted(t, bin, "blue", 1))
	defer m.Down()
	if err != nil {
		t.Fatal(err)
	}
	seen, err := m.Under(t.Context(), func() error {
		if err := m.Rehearse(t.Context()); err != nil {
			return err
		}
		if err := m.Lose(t.Context(), 7, true); err != nil {
			return err
		}
		plan, err := m.Plan(t.Context())
		if err != nil {
			return err
		}
		must(t, m, 4, "s7.shop.example.org", "apply", plan, "--yes")
		must(t, m, 0, "12 names at the original, 0 at the mirror; deploys are not stopped", "mirror", "status")
		if err := m.Lose(t.Context(), 7, false); err != nil {
			return err
		}
		if plan, err = m.Plan(t.Context()); err != nil {
			return err
		}
		killed, reached := 0, map[string]bool{}
		for args := []string{"apply", plan, "--yes"}; ; args = []string{"resume"} {
			code, said := killedAt(t, m.Command(t.Context(), args...), reached)
			fmt.Printf("exit code %d:\n%s\n", code, said)
			if code < 0 {
				killed++
			} else if code == 0 {
				break
			} else {
				return fmt.Errorf("exit code %d", code)
			}
		}
		t.Logf("killed %d times", killed)
		if killed < 20 {
			t.Errorf("killed only %d times", killed)
		}
		must(t, m, 0, "12 names at the original, 0 at the mirror; deploys are not stopped", "mirror", "status")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := scenario.Unnoticed(seen); err != nil {
		t.Error(err)
	}
}

// must runs theseus next to clusters, and demands an exit code and a text.
func must(t *testing.T, m *scenario.Twins, code int, says string, args ...string) {
	t.Helper()
	cmd := m.Command(t.Context(), args...)
	out, _ := cmd.CombinedOutput() // the exit code tells
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), says) {
		t.Fatalf("theseus %s: exit code %d, want %d and %q:\n%s", strings.Join(args, " "), got, code, says, out)
	}
}
