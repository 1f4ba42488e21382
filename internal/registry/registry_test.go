package registry

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		"Not/An Image":                      "is no name of an image",
		listener.Addr().String() + "/app:1": "is not trusted",
		"127.0.0.1:1/app:1":                 "cannot be asked for",
		"127.0.0.1:1/app@sha256":            "is no name of an image",
	} {
		err := Has(t.Context(), image, nil)
		var absent *Absent
		if !errors.As(err, &absent) || !strings.Contains(err.Error(), want) || absent.Hint() == "" {
			t.Errorf("%s: %v, want %q and a hint", image, err, want)
		}
	}
}
