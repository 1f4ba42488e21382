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

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// TestEvidenceThatCannotBeKept is said once, and once more when it has come back.
func TestEvidenceThatCannotBeKept(t *testing.T) {
	var out bytes.Buffer
	r := &run{view: &lines{out: &out, script: newScript(&plan.Plan{})}, dir: filepath.Join(t.TempDir(), "absent")}
	save := func() { r.save(kube.NewEvidence(kube.Collected{})) }
	warned := func() int { return strings.Count(out.String(), "warning: the evidence for the report cannot be kept") }
	save()
	save()
	if warned() != 1 {
		t.Errorf("said %q", out.String())
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	save()
	if _, err := os.Stat(filepath.Join(r.dir, evidenceFile)); err != nil || warned() != 1 {
		t.Errorf("%v, said %q", err, out.String())
	}
	if err := os.RemoveAll(r.dir); err != nil {
		t.Fatal(err)
	}
	if save(); warned() != 2 {
		t.Errorf("said %q", out.String())
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
		code := Main(t.Context(), []string{"theseus", command, "--kubeconfig", config}, Streams{In: strings.NewReader(""), Out: io.Discard, Err: &said})
		if code != exitFailed || !strings.Contains(said.String(), "x509") || !strings.Contains(said.String(), "\nhint: check certificate-authority") {
			t.Errorf("%s: exit %d, %s", command, code, said.String())
		}
	}
}
