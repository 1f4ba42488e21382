package build

import (
	"archive/zip"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/phrase"
)

// dependency serves a module in two versions, whose only function says which, to every go command of the test.
func dependency(t *testing.T) {
	proxy := t.TempDir()
	for _, version := range []string{"v1.0.0", "v1.1.0"} {
		var archive bytes.Buffer
		w := zip.NewWriter(&archive)
		f, err := w.Create("example.test/dep@" + version + "/dep.go")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("package dep\n\nfunc Word() string { return \"" + version + "\" }\n")); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		for end, content := range map[string]string{
			".info": `{"Version":"` + version + `"}`, ".mod": "module example.test/dep\n", ".zip": archive.String(),
		} {
			if err := os.MkdirAll(filepath.Join(proxy, "example.test/dep/@v"), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, proxy, "example.test/dep/@v/"+version+end, content)
		}
	}
	for name, value := range map[string]string{
		"GOPROXY": "file://" + proxy, "GONOSUMDB": "*", "GOMODCACHE": t.TempDir(), "GOFLAGS": "",
	} {
		t.Setenv(name, value)
	}
	t.Cleanup(func() { _ = exec.Command("go", "clean", "-modcache").Run() }) // its files are read-only
}

// component is a program that prints the word of its dependency, which has two go.mod.
func component(t *testing.T) string {
	dependency(t)
	requires := func(version string) string {
		return "module example.test/x\n\ngo 1.26\n\nrequire example.test/dep " + version + "\n"
	}
	dir := repository(t, map[string]string{
		"lab/components/x/go.mod":   requires("v1.0.0"),
		"lab/components/x/next.mod": requires("v1.1.0"),
		"lab/components/x/main.go": "package main\n\nimport \"example.test/dep\"\n\n" +
			"func main() { print(dep.Word()) }\n",
	})
	for _, file := range []string{"go.mod", "next.mod"} {
		cmd := exec.Command("go", "mod", "tidy", "-modfile="+file)
		cmd.Dir = filepath.Join(dir, "lab/components/x")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return dir
}

func TestOtherSource(t *testing.T) {
	dir := component(t)
	cache := New(dir, t.TempDir(), &bytes.Buffer{})
	word := func(to string) *patch {
		return &patch{module: "example.test/dep", files: map[string][]phrase.Edit{"dep.go": {{From: `"v1.`, To: to}}}}
	}
	paths := map[string]string{}
	for _, test := range []struct {
		name string
		t    target
		want string
	}{
		{"as it is", target{}, "v1.0.0"},
		{"another go.mod", target{modfile: "next.mod"}, "v1.1.0"},
		{"patched", target{patched: word(`"patched`)}, "patched0.0"},
		{"another patch", target{patched: word(`"changed`)}, "changed0.0"},
	} {
		test.t.module, test.t.pkg = components+"x", "."
		path, err := cache.component(context.Background(), "x", test.t)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if other, there := paths[path]; there {
			t.Errorf("%s and %s have one path", test.name, other)
		}
		paths[path] = test.name
		if out, err := exec.Command(path).CombinedOutput(); err != nil || string(out) != test.want {
			t.Errorf("%s: it says %q, %v; want %q", test.name, out, err, test.want)
		}
	}
	gone := target{module: components + "x", pkg: ".", patched: &patch{
		module: "example.test/dep", files: map[string][]phrase.Edit{"dep.go": {{From: "nothing"}}},
	}}
	if _, err := cache.component(context.Background(), "x", gone); err == nil ||
		!strings.Contains(err.Error(), `dep.go: expected "nothing" once`) {
		t.Errorf("a patch that does not fit: %v", err)
	}
}

func TestKubernetesVersions(t *testing.T) {
	versions := KubernetesVersions()
	for _, version := range versions {
		target, ok := targets()[Kube(version)]
		if !ok || !strings.Contains(target.stamp, "gitVersion="+version) {
			t.Fatalf("%s is not a program: %+v", version, target)
		}
		mod, sum := target.requirements(filepath.Join("../../..", target.module))
		text, err := os.ReadFile(mod)
		if err != nil || !strings.Contains(string(text), "k8s.io/kubernetes "+version+"\n") {
			t.Errorf("%s does not require Kubernetes %s: %v", mod, version, err)
		}
		if _, err := os.Stat(sum); err != nil {
			t.Error(err)
		}
	}
}
