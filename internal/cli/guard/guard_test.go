package guard

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// TestFrozen: on a frozen cluster, nothing is read but the freeze, and nothing is written.
func TestFrozen(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces/"+v1alpha1.Namespace {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"annotations":{%q:"incident 12"}}}`, v1alpha1.Namespace, v1alpha1.AnnotationFreeze)
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"users":[{"name":"u","user":{}}],"clusters":[{"name":"c","cluster":{"server":%q}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig = &kubeconfig
	var out bytes.Buffer
	a := &app.App{Kubeconfig: flags, Streams: app.Streams{Out: &out, Err: &out}}
	code := exit.Code(&out, (&options{}).guard(t.Context(), a, v1alpha1.ChangeSpec{}, kind.Guard{Command: []string{"true"}}))
	if code != exit.Failed || !strings.Contains(out.String(), "frozen: incident 12") {
		t.Errorf("exit %d: %s", code, out.String())
	}
}
