// Package flags runs Theseus' flags against a real API server: the acceptance suite of providers on a FeatureFlag, and
// the command line on one.
package flags

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// object is a FeatureFlag whose flag is on or off.
func object(variant string) string {
	return `apiVersion: core.openfeature.dev/v1beta1
kind: FeatureFlag
metadata: {name: line, namespace: net}
spec:
  flagSpec:
    flags:
      bpf: {state: ENABLED, variants: {"on": true, "off": false}, defaultVariant: "` + variant + `"}
`
}

func TestFlags(t *testing.T) {
	rig := rigtest.New(t, "../../../bin", "flags", 1, "none")
	kubeconfig := filepath.Join(rig.Dir, "kubeconfig")
	apply := func(text string) {
		t.Helper()
		out, err := rig.Kubectl(t.Context(), strings.NewReader(text), "apply", "-f", "-")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	apply(rigtest.FeatureFlags + "---\n" + `apiVersion: v1
kind: Namespace
metadata: {name: net}
`)

	t.Run("the provider", func(t *testing.T) {
		tests := exec.CommandContext(t.Context(), "go", "test", "-tags=cluster", "-count=1", "-timeout=3m",
			"-run=^TestObjectInCluster$", "-v", "./internal/flags/provider")
		tests.Dir = "../../.."
		tests.Env = append(os.Environ(), "THESEUS_FLAGS_CLUSTER="+kubeconfig)
		out, err := tests.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS: TestObjectInCluster")) {
			t.Errorf("%v\n%s", err, out)
		}
	})

	t.Run("the command line", func(t *testing.T) {
		apply(object("off"))
		server := rigtest.Start(t, rig, "flags", "flags", "serve", "--source", "k8s:net/line",
			"--listen", "127.0.0.1:0")
		address := ""
		eventually(t, "it serves", func() bool {
			address = regexp.MustCompile(`http://[0-9.:]+`).FindString(server.Said())
			return address != ""
		})
		ask := func() string {
			// what it says is looked at
			out, _ := exec.CommandContext(t.Context(), rig.Theseus, "flags", "eval", "bpf",
				"--source", address).Output()
			return string(out)
		}
		eventually(t, "the flag is off", func() bool { return strings.HasPrefix(ask(), "bpf = false\n") })
		apply(object("on"))
		eventually(t, "the change arrives", func() bool { return strings.HasPrefix(ask(), "bpf = true\n") })
		// A typo is refused whole, and the last good set stays.
		apply(object("onn"))
		eventually(t, "the server says that its source is not well", func() bool {
			return strings.Contains(server.Said(), "STALE")
		})
		if said := ask(); !strings.HasPrefix(said, "bpf = true\n") {
			t.Errorf("with a broken source: %s", said)
		}
	})
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 600 {
		if holds() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}
