package registry

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func TestLogins(t *testing.T) {
	document := []byte(`{"auths": {
		"https://registry.example.com/v1/": {"auth": "YTpi"},
		"registry.example.com/team": {"username": "team", "password": "x"},
		"*.example.com": {"username": "star"},
		"https://index.docker.io/v1/": {"username": "hub"},
		"registry.example.com.evil.io": {"username": "evil"},
		"registry.example.com:5000": {"username": "port"}}}`)
	for image, want := range map[string][]string{
		"registry.example.com/app:1":      {"a", "star"},
		"registry.example.com/team/app:1": {"team", "a", "star"},
		"registry.example.com/teamwork":   {"a", "star"},
		"a.b.example.com/app":             nil,
		"nginx":                           {"hub"},
		"registry.example.com:5000/app":   {"port"},
		"quay.io/app":                     nil,
		"NOT AN IMAGE":                    nil,
	} {
		var got []string
		for _, login := range Logins(image, [][]byte{document, []byte("{"), nil}) {
			got = append(got, login.Username)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", image, diff)
		}
	}
}

// TestWhatIsNoRegistry: servers that cannot be trusted or are none. What real registries answer is tested in the lab.
func TestWhatIsNoRegistry(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.2:0") // 127.0.0.1 would be asked without TLS
	if err != nil {
		t.Fatal(err)
	}
	foreign := httptest.NewUnstartedServer(nil) // its authority is nobody's
	foreign.Listener.Close()
	foreign.Listener = listener
	foreign.Config.ErrorLog = log.New(io.Discard, "", 0)
	foreign.StartTLS()
	defer foreign.Close()
	for image, want := range map[string]string{
		"Not/An Image":                      "is not the name of an image",
		listener.Addr().String() + "/app:1": "is not trusted",
		"127.0.0.1:1/app:1":                 "cannot be asked for",
		"127.0.0.1:1/app@sha256":            "is not the name of an image",
	} {
		err := Has(t.Context(), image, nil)
		var absent *Absent
		if !errors.As(err, &absent) || !strings.Contains(err.Error(), want) || absent.Hint() == "" {
			t.Errorf("%s: %v, want %q and a hint", image, err, want)
		}
	}
}

// TestDigest: a tag is answered with what the registry has under it now; a name with a digest is its own answer.
func TestDigest(t *testing.T) {
	server := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	image, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(host + "/agent:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	locked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer locked.Close()
	pinned := host + "/agent:1@" + digest.String()
	for image, want := range map[string]string{host + "/agent:1": pinned, pinned: pinned,
		"127.0.0.1:1/agent@" + digest.String(): "127.0.0.1:1/agent@" + digest.String()} {
		if got, err := Digest(t.Context(), image); got != want || err != nil {
			t.Errorf("%s: %s, want %s (%v)", image, got, want, err)
		}
	}
	for image, want := range map[string]string{
		host + "/agent:2":   "does not exist",
		"127.0.0.1:1/agent": "cannot be asked for",
		"Not/An Image":      "is not the name of an image",
		strings.TrimPrefix(locked.URL, "http://") + "/agent": "requires a login",
	} {
		_, err := Digest(t.Context(), image)
		var absent *Absent
		if !errors.As(err, &absent) || !strings.Contains(absent.Error(), want) || absent.Hint() == "" ||
			absent.Missing() != (want == "does not exist") {
			t.Errorf("%s: %v, want %q", image, err, want)
		}
	}
}
