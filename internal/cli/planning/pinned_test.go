package planning

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/theseus-cni/theseus/internal/cli/app"
)

// TestPinned: the image that a plan names is the one that its registry has now, whoever pushes another one later.
func TestPinned(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	image := strings.TrimPrefix(server.URL, "http://") + "/agent:1"
	push := func() {
		t.Helper()
		content, err := random.Image(64, 1)
		if err != nil {
			t.Fatal(err)
		}
		tag, err := name.NewTag(image)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(tag, content); err != nil {
			t.Fatal(err)
		}
	}
	said := func(image string) (string, string) {
		var notes bytes.Buffer
		a := &app.App{Streams: app.Streams{Err: &notes}}
		return Pinned(t.Context(), a, nil, image), notes.String()
	}
	if got, notes := said(image); got != image || !strings.Contains(notes, "the registry does not have "+image) {
		t.Errorf("nothing was pushed: %s, %s", got, notes)
	}
	push()
	first, notes := said(image)
	if !strings.HasPrefix(first, image+"@sha256:") || notes != "" {
		t.Errorf("pinned is %s, %s", first, notes)
	}
	push()
	if again, _ := said(first); again != first {
		t.Errorf("another image was pushed: %s became %s", first, again)
	}
	if got, notes := said("localhost:1/agent:dev"); got != "localhost:1/agent:dev" ||
		!strings.Contains(notes, "is named by tag, not by digest") {
		t.Errorf("nobody answers: %s, %s", got, notes)
	}
}
