package registry

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// aLayout is a layout with an index of two images, under a name and tag.
func aLayout(t *testing.T, named string) (folder, digest string) {
	t.Helper()
	folder = t.TempDir()
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	index, err := random.Index(1024, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: named})); err != nil {
		t.Fatal(err)
	}
	return folder, sum.String()
}

// debianRegistry starts the registry of Debian's package docker-registry, and returns its address.
func debianRegistry(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	config := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s/data}}\n"+
		"http: {addr: %s}\n", dir, address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.Command("docker-registry", "serve", config)
	if err := server.Start(); err != nil {
		t.Fatalf("start Debian's docker-registry, which lab/install.sh installs: %v", err)
	}
	t.Cleanup(func() {
		server.Process.Kill() //nolint:errcheck // it may have ended
		server.Wait()         //nolint:errcheck // it was killed
	})
	for ready := time.After(time.Minute); ; {
		answer, err := http.Get("http://" + address + "/v2/")
		if err == nil {
			answer.Body.Close()
			return address
		}
		select {
		case <-ready:
			t.Fatalf("the registry does not answer: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestPush pushes to a real registry, and pulls by the digest.
func TestPush(t *testing.T) {
	folder, digest := aLayout(t, "theseus-agent:v0.2.0")
	into := debianRegistry(t) + "/infra"
	pushed, err := Push(t.Context(), folder, into+"/")
	if err != nil || len(pushed) != 1 || pushed[0] != (Pushed{into + "/theseus-agent:v0.2.0", digest}) {
		t.Fatalf("%v, %v", pushed, err)
	}
	ref, err := name.NewDigest(into + "/theseus-agent@" + digest)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("the registry has %v, %v", manifest, err)
	}
	for _, one := range manifest.Manifests {
		image, err := index.Image(one.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if layers, err := image.Layers(); err != nil || len(layers) != 2 {
			t.Errorf("%d layers, %v", len(layers), err)
		}
	}
	if got, err := Digest(t.Context(), pushed[0].Image); err != nil || got != pushed[0].Reference() {
		t.Errorf("the registry names it %s, %v", got, err)
	}
}

// TestPushRefused: what is no layout, and registries that take nothing, are explained.
func TestPushRefused(t *testing.T) {
	folder, _ := aLayout(t, "theseus-agent:v0.2.0")
	nameless, _ := aLayout(t, "")
	locked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer locked.Close()
	for what, c := range map[string]struct{ folder, into, want string }{
		"no layout":    {t.TempDir(), "127.0.0.1:1", "is not an OCI layout"},
		"no names":     {nameless, "127.0.0.1:1", "has no name"},
		"no registry":  {folder, "127.0.0.1:1", "cannot be pushed"},
		"a scheme":     {folder, "https://registry.example.com", "is not the name of a registry"},
		"locked":       {folder, strings.TrimPrefix(locked.URL, "http://"), "may not be pushed"},
		"empty layout": {emptyLayout(t), "127.0.0.1:1", "it has no images"},
	} {
		_, err := Push(t.Context(), c.folder, c.into)
		var absent *Absent
		if !errors.As(err, &absent) || !strings.Contains(err.Error(), c.want) || absent.Hint() == "" {
			t.Errorf("%s: %v, want %q and a hint", what, err, c.want)
		}
	}
}

func emptyLayout(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if _, err := layout.Write(folder, empty.Index); err != nil {
		t.Fatal(err)
	}
	return folder
}
