package cli

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// TestClientLog: the log of client-go, errors included, does not reach the terminal.
func TestClientLog(t *testing.T) {
	Main(t.Context(), []string{"theseus", "--version"}, app.Streams{In: strings.NewReader(""), Out: io.Discard,
		Err: io.Discard})
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	terminal := os.Stderr
	os.Stderr = file
	klog.FromContext(t.Context()).Error(errors.New("context canceled"), "reading a body")
	klog.Error("reading a body")
	klog.Flush()
	os.Stderr = terminal
	if said, err := os.ReadFile(file.Name()); err != nil || len(said) > 0 {
		t.Errorf("the terminal got %q, %v", said, err)
	}
}

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
