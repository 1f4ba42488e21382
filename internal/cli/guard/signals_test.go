package guard

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// TestSignalled: a signal that does not hold before the change ends the guard before anything is installed.
func TestSignalled(t *testing.T) {
	var status atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
	}))
	defer server.Close()
	spec := v1alpha1.ChangeSpec{SLO: []string{server.URL + "/healthz"}}
	for _, test := range []struct {
		status int64
		lossy  bool
		code   int
		says   string
	}{
		{200, false, 0, ""},
		{503, false, exit.Unproven, "a signal fails already before the change, and nothing was installed: " +
			server.URL + "/healthz: HTTP status 503"},
		{503, true, 0, "note: a signal fails already before the change: "},
	} {
		status.Store(test.status)
		var out bytes.Buffer
		a := &app.App{Streams: app.Streams{Out: &out, Err: &out}}
		code := exit.Code(&out, (&options{}).signalled(t.Context(), a, spec, kind.Guard{LossyBefore: test.lossy}))
		if code != test.code || !strings.Contains(out.String(), test.says) || (out.Len() > 0) != (test.says != "") {
			t.Errorf("%d, lossy %t: exit %d: %s", test.status, test.lossy, code, out.String())
		}
	}
	server.Close()
	var out bytes.Buffer
	a := &app.App{Streams: app.Streams{Out: &out, Err: &out}}
	if code := exit.Code(&out, (&options{}).signalled(t.Context(), a, spec, kind.Guard{})); code != exit.Unproven ||
		!strings.Contains(out.String(), "a signal fails already before the change, and nothing was installed: "+
			server.URL+"/healthz: no answer: ") ||
		!strings.Contains(out.String(), "hint: ") {
		t.Errorf("no server: exit %d: %s", code, out.String())
	}
	if err := (&options{dry: true}).signalled(t.Context(), a,
		v1alpha1.ChangeSpec{SLO: []string{"command: /bin/touch " + t.TempDir() + "/ran", server.URL}},
		kind.Guard{}); err != nil {
		t.Errorf("a dry run asks: %v", err)
	}
	out.Reset()
	query := v1alpha1.ChangeSpec{SLO: []string{server.URL + " errors < 1"}}
	if code := exit.Code(&out,
		(&options{}).signalled(t.Context(), a, query, kind.Guard{LossyBefore: true})); code != exit.Unproven ||
		!strings.Contains(out.String(), "no answer to errors") {
		t.Errorf("a Prometheus does not answer: exit %d: %s", code, out.String())
	}
}
