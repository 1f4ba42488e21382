package image

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/distribution/reference"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func rules(t testing.TB, texts ...string) Rules {
	t.Helper()
	r, err := ParseRules(texts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestNamesByTheirParts(t *testing.T) {
	r := rules(t, "registry.example.com=registry-mirror.example.com",
		"registry.example.com/special/team=other.example.com:5000/x",
		"docker.io=hub.example.com", "localhost:5000=registry-mirror.example.com/local")
	for name, want := range map[string]string{
		"registry.example.com/team/app:1":           "registry-mirror.example.com/team/app:1",
		"registry.example.com/team/app:1" + digest:  "registry-mirror.example.com/team/app:1" + digest,
		"registry.example.com/team/app" + digest:    "registry-mirror.example.com/team/app" + digest,
		"registry.example.com/app":                  "registry-mirror.example.com/app",
		"registry.example.com.evil.io/team/app:1":   "",
		"evil.io/registry.example.com/team/app:1":   "",
		"registry.example.com:5000/team/app":        "",
		"registry.example.community/app":            "",
		"registry.example.com/special/team/app":     "other.example.com:5000/x/app",
		"registry.example.com/special/teamwork/app": "registry-mirror.example.com/special/teamwork/app",
		"nginx":                    "hub.example.com/library/nginx",
		"nginx:1.27":               "hub.example.com/library/nginx:1.27",
		"grafana/grafana":          "hub.example.com/grafana/grafana",
		"docker.io/library/nginx":  "hub.example.com/library/nginx",
		"localhost:5000/app":       "registry-mirror.example.com/local/app",
		"localhost:5001/app":       "",
		"quay.io/app":              "",
		"Registry.example.com/App": "",
		"":                         "",
		"$(IMAGE)":                 "",
		"registry.example.com/team/app:" + strings.Repeat("x", 200): "",
	} {
		got, ok := r.Name(name)
		if want == "" && (ok || got != name) || want != "" && (got != want || !ok) {
			t.Errorf("%q became %q (%v), want %q", name, got, ok, want)
		}
	}
}

func TestRulesThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"registry.example.com":                 "give OLD=NEW",
		"=x.example.com":                       "is not a registry",
		"team=x.example.com":                   "is not a registry",
		"registry.example.com=https://x.y/":    "is not a registry",
		"registry.example.com=UPPER.example/A": "is not a registry",
		"registry.example.com=a.example.com b": "is not a registry",
		"a.example.com/=b.example.com":         "",
	} {
		_, err := ParseRules([]string{text})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := ParseRules([]string{"a.example.com=b.example.com", "a.example.com/=c.example.com"}); err == nil {
		t.Error("two rules for one place")
	}
}

func TestObjects(t *testing.T) {
	r := rules(t, "old.test=new.test")
	if err := r.ParseFields([]string{"Database.example.com=spec.image", "Database.example.com=spec.sidecars[].from",
		"Database.example.com=spec.extra[]", "Database.example.com=spec.byName.*.image"}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		kind, object string
		want         []Edit
	}{
		{"CronJob.batch", `
spec: {jobTemplate: {spec: {template: {spec: {
  containers: [{name: a, image: old.test/a:1}, {name: b, image: other.test/b}],
  initContainers: [{name: c, image: old.test/c}], ephemeralContainers: [{name: d, image: old.test/d}],
  volumes: [{name: v, image: {reference: old.test/v}}, {name: w, emptyDir: {}}]}}}}}`, []Edit{
			{"spec.jobTemplate.spec.template.spec.containers[0].image", "old.test/a:1", "new.test/a:1"},
			{"spec.jobTemplate.spec.template.spec.ephemeralContainers[0].image", "old.test/d", "new.test/d"},
			{"spec.jobTemplate.spec.template.spec.initContainers[0].image", "old.test/c", "new.test/c"},
			{"spec.jobTemplate.spec.template.spec.volumes[0].image.reference", "old.test/v", "new.test/v"},
		}},
		{"Database.example.com", `
spec: {image: old.test/db:2, sidecars: [{from: old.test/s}], extra: [old.test/e, 7], byName: {x: {image: old.test/x}, y: 1}, other: old.test/no}`, []Edit{
			{"spec.image", "old.test/db:2", "new.test/db:2"},
			{"spec.sidecars[0].from", "old.test/s", "new.test/s"},
			{"spec.extra[0]", "old.test/e", "new.test/e"},
			{"spec.byName.x.image", "old.test/x", "new.test/x"},
		}},
		{"Other.example.com", `spec: {image: old.test/db:2}`, nil},
		{"ConfigMap", `data: {image: old.test/a}`, nil},
	} {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(test.object), &object); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, r.Rewrite(object, test.kind)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.kind, diff)
		}
		if again := r.Rewrite(object, test.kind); again != nil {
			t.Errorf("%s: a second time: %v", test.kind, again)
		}
	}
}

func TestDoubts(t *testing.T) {
	var object map[string]any
	if err := yaml.Unmarshal([]byte(
		`{metadata: {annotations: {image: old.test/a}}, spec: {image: old.test/b, image2: {repository: old.test/c}, note: old.test/d, images: [old.test/e]}}`),
		&object); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, doubt := range rules(t, "old.test=new.test").Doubts(object) {
		paths = append(paths, doubt.Path)
	}
	if diff := cmp.Diff([]string{"spec.image", "spec.image2.repository", "spec.images[]"}, paths); diff != "" {
		t.Error(diff)
	}
}

func TestPullSecrets(t *testing.T) {
	secret := func(config string) map[string]any {
		return map[string]any{"type": "kubernetes.io/dockerconfigjson",
			"data": map[string]any{".dockerconfigjson": base64.StdEncoding.EncodeToString([]byte(config))}}
	}
	r := rules(t, "old.test=new.test:5000", "docker.io=hub.test")
	one := secret(
		`{"auths":{"https://old.test/v1/":{"auth":"eA=="},"https://index.docker.io/v1/":{"auth":"eQ=="}},"credHelpers":{}}`)
	if diff := cmp.Diff([]string{"hub.test", "new.test:5000"}, r.RewriteSecret(one)); diff != "" {
		t.Error(diff)
	}
	if again := r.RewriteSecret(one); again != nil {
		t.Errorf("a second time: %v", again)
	}
	raw, _ := base64.StdEncoding.DecodeString(one["data"].(map[string]any)[".dockerconfigjson"].(string))
	for _, want := range []string{`"new.test:5000":{"auth":"eA=="}`, `"hub.test":{"auth":"eQ=="}`, `"credHelpers":{}`} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%s is not in %s", want, raw)
		}
	}
	for _, config := range []string{`{"auths":{"old.test.evil.io":{}}}`, `{"auths":{"new.test:5000":{},"old.test":{}}}`,
		`{`, `{"auths":7}`} {
		if got := r.RewriteSecret(secret(config)); got != nil {
			t.Errorf("%s: %v", config, got)
		}
	}
}

// FuzzName: a name that was rewritten is a name, has the same tag and digest and is at a new place; a name that
// does not start at an old place stays.
func FuzzName(f *testing.F) {
	for _, name := range []string{"registry.example.com/a/b:1", "registry.example.com.evil.io/a", "nginx",
		"a@sha256:00", "registry.example.com:80/a" + digest} {
		f.Add(name)
	}
	r := rules(f, "registry.example.com=new.example.com/x")
	f.Fuzz(func(t *testing.T, name string) {
		got, ok := r.Name(name)
		if !ok {
			if got != name {
				t.Fatalf("%q became %q", name, got)
			}
			return
		}
		old, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			t.Fatalf("%q is no name and became %q", name, got)
		}
		rewritten, err := reference.ParseNormalizedNamed(got)
		if err != nil {
			t.Fatalf("%q became %q: %v", name, got, err)
		}
		if reference.Domain(old) != "registry.example.com" || reference.Domain(rewritten) != "new.example.com" ||
			reference.Path(rewritten) != "x/"+reference.Path(old) {
			t.Fatalf("%q became %q", name, got)
		}
	})
}
