package rigtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// User makes a ServiceAccount default/NAME, adds objects for it (roles and bindings; may be empty), and returns a
// kubeconfig with its token. Another call for the same name adds further objects.
func User(t *testing.T, rig *scenario.Rig, name, objects string) string {
	t.Helper()
	kubectl := func(input string, args ...string) string {
		t.Helper()
		out, err := rig.Kubectl(t.Context(), strings.NewReader(input), args...)
		if err != nil {
			t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(out)
	}
	kubectl(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: "`+name+`", namespace: default}}`,
		"apply", "-f", "-")
	if objects != "" {
		kubectl(objects, "apply", "-f", "-")
	}
	token := kubectl("", "-n", "default", "create", "token", name, "--duration=3h")
	whole, err := os.ReadFile(filepath.Join(rig.Dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name+".kubeconfig")
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl("", "--kubeconfig", file, "config", "set-credentials", name, "--token="+token)
	kubectl("", "--kubeconfig", file, "config", "set-context", "--current", "--user="+name)
	return file
}

// Rights prints the roles of a duty, bound to the ServiceAccount default/NAME.
func Rights(t *testing.T, rig *scenario.Rig, name, duty string, more ...string) string {
	t.Helper()
	out, err := rig.Run(t.Context(),
		append([]string{"rights", duty, "--for", "serviceaccount:default/" + name}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
