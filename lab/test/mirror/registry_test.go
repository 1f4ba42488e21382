package mirror

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// htpasswd lets the user puller in with the password hunter2.
const htpasswd = "puller:$2y$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8.\n"

// registry starts Debian's docker-registry with a password, and returns its address.
func registry(t testing.TB) string {
	t.Helper()
	dir, address := t.TempDir(), fmt.Sprint("127.0.0.1:", port(t))
	config := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %q}}\n"+
		"http: {addr: %q}\nauth: {htpasswd: {realm: lab, path: %q}}\n",
		filepath.Join(dir, "data"), address, filepath.Join(dir, "htpasswd"))
	for name, text := range map[string]string{"config.yml": config, "htpasswd": htpasswd} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("docker-registry", "serve", filepath.Join(dir, "config.yml"))
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: lab/install.sh installs it", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may be gone
		cmd.Wait()         //nolint:errcheck // killed
	})
	rigtest.Until(t, "the registry answers", func() bool {
		response, err := http.Get("http://" + address + "/v2/")
		if err == nil {
			response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusUnauthorized
	})
	return address
}

// push puts an image without layers into the registry.
func push(t testing.TB, address, repository, tag string) {
	t.Helper()
	send := func(method, url, kind string, body []byte) *http.Response {
		request, err := http.NewRequest(method, url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth("puller", "hunter2")
		request.Header.Set("Content-Type", kind)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if said, _ := io.ReadAll(response.Body); response.StatusCode >= 300 {
			t.Fatalf("%s %s: %s: %s", method, url, response.Status, said)
		}
		return response
	}
	base := "http://" + address + "/v2/" + repository
	config := []byte(`{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}`)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(config))
	upload := send(http.MethodPost, base+"/blobs/uploads/", "", nil).Header.Get("Location")
	send(http.MethodPut, upload+"&digest="+url.QueryEscape(digest), "application/octet-stream", config)
	const kind = "application/vnd.docker.distribution.manifest.v2+json"
	send(http.MethodPut, base+"/manifests/"+tag, kind, fmt.Appendf(nil,
		`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.docker.container.image.v1+json","size":%d,"digest":%q},"layers":[]}`,
		kind, len(config), digest))
}

// TestRegistry: names go over to the mirror's registry only when each was found there with the logins of its pods.
func TestRegistry(t *testing.T) {
	address := registry(t)
	p := newPair(t, false)
	p.blue.kubectl(t, shop, "apply", "-f", "-")
	rigtest.Until(t, "the kind Database is served", func() bool {
		_, err := p.blue.try(p.blue.kubeconfig, database, "apply", "-f", "-")
		return err == nil
	})
	rule := "registry.example.com=" + address
	copying := []string{"copy", "-n", "shop", "--registry", rule}

	p.theseus(2, []string{"is not a rule"}, "registry", "-n", "shop", "--registry", "registry.example.com")
	p.theseus(0, []string{"/etc/containerd/certs.d/registry.example.com/hosts.toml",
		`[host."https://` + address + `"]`}, "registry", "-n", "shop", "--registry", rule, "--containerd")
	p.theseus(3, []string{"requires a login, and no pull secret has one for it", "2 of 2 images",
		"Database.example.com shop/main: spec.image may name an image, registry.example.com/db:2, and stays"},
		"registry", "-n", "shop", "--registry", rule)

	login := func(password string) {
		t.Helper()
		config := fmt.Sprintf(`{"auths":{"https://registry.example.com/v1/":{"username":"puller","password":%q}}}`,
			password)
		p.blue.kubectl(t, fmt.Sprintf(
			`{apiVersion: v1, kind: Secret, metadata: {name: pull, namespace: shop}, type: kubernetes.io/dockerconfigjson, data: {.dockerconfigjson: %s}}`,
			base64.StdEncoding.EncodeToString([]byte(config))), "apply", "-f", "-")
	}
	login("wrong")
	for _, account := range []string{"default", "web"} {
		p.blue.kubectl(t, fmt.Sprintf(
			`{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: shop}, imagePullSecrets: [{name: pull}]}`,
			account), "apply", "-f", "-")
	}
	p.theseus(3, []string{"refuses the 1 logins of the pull secrets"}, copying...)
	p.nothing(t)
	login("hunter2")
	push(t, address, "team/web", "1")
	p.theseus(3, []string{address + "/x does not exist", "cannot be pulled on the mirror"}, copying...)
	p.nothing(t)
	push(t, address, "x", "latest")
	push(t, address, "db", "2")
	with := append(copying, "--image-field", "Database.example.com=spec.image")
	p.theseus(0, []string{address + "/team/web:1", "is there"}, append([]string{"registry"}, with[1:]...)...)
	p.theseus(0, nil, with...)
	for object, want := range map[string]string{
		"deployment/web {.spec.template.spec.containers[0].image}":                   "/team/web:1",
		"cronjob/nightly {.spec.jobTemplate.spec.template.spec.containers[0].image}": "/x",
		"database/main {.spec.image}":                                                "/db:2",
	} {
		name, path, _ := strings.Cut(object, " ")
		if got := p.green.get(t, name, path); got != address+want {
			t.Errorf("%s: %q, want %q", object, got, address+want)
		}
	}
	secret, err := base64.StdEncoding.DecodeString(p.green.get(t, "secret/pull", `{.data.\.dockerconfigjson}`))
	if err != nil || !strings.Contains(string(secret), `"`+address+`":{`) {
		t.Errorf("the pull secret of the mirror: %s (%v)", secret, err)
	}
	p.theseus(0, []string{"in step"}, with...)

	// A registry whose certificate nobody trusts.
	foreign := httptest.NewUnstartedServer(http.NotFoundHandler())
	foreign.Config.ErrorLog = log.New(io.Discard, "", 0)
	foreign.Listener.Close()
	foreign.Listener = listen(t, "127.0.0.2:0") // loopback of the sort that is asked with TLS
	foreign.StartTLS()
	defer foreign.Close()
	p.theseus(3, []string{"is not trusted"}, "registry", "-n", "shop", "--registry",
		"registry.example.com="+foreign.Listener.Addr().String())
}
