package agentimage

import "testing"

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestOfBuild(t *testing.T) {
	for name, c := range map[string]struct{ linked, version, want string }{
		"a release": {"ghcr.io/theseus-cni/theseus-agent:v0.2.0" + digest, "v0.2.0",
			"ghcr.io/theseus-cni/theseus-agent:v0.2.0" + digest},
		"go install":        {"", "v0.2.0", "ghcr.io/theseus-cni/theseus-agent:v0.2.0"},
		"a commit":          {"", "v0.2.1-0.20260102030405-0123456789ab", ""},
		"a development one": {"", "dev", ""},
	} {
		if got := ofBuild(c.linked, c.version); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestIn(t *testing.T) {
	const image = "ghcr.io:443/theseus-cni/theseus-agent:v0.2.0" + digest
	for registry, want := range map[string]string{
		"":                               image,
		"registry.example.com":           "registry.example.com/theseus-agent:v0.2.0" + digest,
		"registry.example.com:5000/a/b/": "registry.example.com:5000/a/b/theseus-agent:v0.2.0" + digest,
	} {
		if got := In(registry, image); got != want {
			t.Errorf("%q: %s, want %s", registry, got, want)
		}
	}
	if got := In("registry.example.com", ""); got != "" {
		t.Errorf("no image becomes %q", got)
	}
}

// TestFlags: what is named wins; a build without an image says how to name one.
func TestFlags(t *testing.T) {
	named := Flags{image: "localhost:1/agent:dev", registry: "registry.example.com"}
	if got, err := named.Must("theseus snapshot"); got != "localhost:1/agent:dev" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := (&Flags{}).Must("theseus snapshot"); got != "" || err == nil {
		t.Errorf("%q, %v, and this test is no release", got, err)
	}
}
