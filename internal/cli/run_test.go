package cli

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// TestUntrustedServer: no command waits for a certificate to become a good one.
func TestUntrustedServer(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
		clusters: [{name: c, cluster: {server: "` + server.URL + `"}}]}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"snapshot", "status", "resume"} {
		var said bytes.Buffer
		code := Main(t.Context(), []string{"theseus", command, "--kubeconfig", config},
			app.Streams{In: strings.NewReader(""), Out: io.Discard, Err: &said})
		if code != exit.Failed || !strings.Contains(said.String(), "x509") ||
			!strings.Contains(said.String(), "\nhint: check certificate-authority") {
			t.Errorf("%s: exit %d, %s", command, code, said.String())
		}
	}
}
