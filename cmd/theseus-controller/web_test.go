package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	clusterrun "github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// signed writes tls.crt and tls.key for 127.0.0.1 to a folder, with a serial number.
func signed(t *testing.T, dir string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "page"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.key": {Type: "EC PRIVATE KEY", Bytes: private},
		"tls.crt": {Type: "CERTIFICATE", Bytes: der}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPageListens: the page is not served to other machines in plain text, and a renewed certificate is used without a
// restart.
func TestPageListens(t *testing.T) {
	for listen, says := range map[string]string{"0.0.0.0:0": "Add --tls", "192.0.2.7:0": "Add --tls"} {
		if err := servePage(t.Context(), []string{listen}, "", http.NotFoundHandler()); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", listen, err)
		}
	}
	if err := servePage(t.Context(), []string{"127.0.0.1:0"}, t.TempDir(), http.NotFoundHandler()); err == nil ||
		!strings.Contains(err.Error(), "tls.crt") {
		t.Errorf("without a certificate: %v", err)
	}
	dir, address := t.TempDir(), clustertest.Free(t)
	signed(t, dir, 1)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- servePage(ctx, []string{address}, dir, http.NotFoundHandler()) }()
	serial := func() int64 {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return 0
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	awaited(t, "the first certificate", func() bool { return serial() == 1 })
	signed(t, dir, 2)
	later := time.Now().Add(time.Second)
	if err := os.Chtimes(filepath.Join(dir, "tls.crt"), later, later); err != nil {
		t.Fatal(err)
	}
	awaited(t, "the renewed certificate", func() bool { return serial() == 2 })
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestPageConnections: who opens many connections keeps no memory but theirs, and other addresses of the page answer.
func TestPageConnections(t *testing.T) {
	address, other := clustertest.Free(t), clustertest.Free(t)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- servePage(ctx, []string{address, other}, "", http.NotFoundHandler()) }()
	healthy := func(at string, within time.Duration) bool {
		answer, err := (&http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}).Get(
			"http://" + at + "/healthz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
	awaited(t, "the page", func() bool { return healthy(address, time.Second) && healthy(other, time.Second) })
	var idle []net.Conn
	for range mostConnections {
		one, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		idle = append(idle, one)
	}
	if healthy(address, 500*time.Millisecond) {
		t.Errorf("more than %d connections", mostConnections)
	}
	if !healthy(other, 10*time.Second) {
		t.Error("the other address does not answer")
	}
	idle[0].Close()
	idle[1].Close()
	awaited(t, "it answers again", func() bool { return healthy(address, 10*time.Second) })
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func awaited(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// cluster is a real API server with a migration for the controller, and the ServiceAccounts of people.
type cluster struct {
	config *rest.Config
	admin  *kube.Client
	plan   *plan.Plan
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	program := clustertest.Program(t, "the page with a real API server")
	c := &cluster{config: clustertest.ControlPlane(t, program, clustertest.Options{})}
	var err error
	if c.admin, err = kube.New(c.config, "test"); err != nil {
		t.Fatal(err)
	}
	if err := clusterrun.Prepare(t.Context(), c.admin); err != nil {
		t.Fatal(err)
	}
	kubetest.Apply(t, c.admin, append(manifest.ApprovalPolicy(), manifest.AskedPolicy()...)...)
	c.person(t, v1alpha1.Namespace, "theseus-web", kube.Page)
	c.person(t, metav1.NamespaceDefault, "ann", kube.Look)
	c.person(t, metav1.NamespaceDefault, "bob", kube.Approve)
	c.person(t, metav1.NamespaceDefault, "op", kube.Operate)
	c.person(t, metav1.NamespaceDefault, "eve", "")
	c.plan = clitest.Plan(t, c.admin)
	if err := journal.CreateInCluster(t.Context(), c.admin.Dynamic, c.plan); err != nil {
		t.Fatal(err)
	}
	return c
}

// person makes a ServiceAccount with the rights of a duty, or none.
func (c *cluster) person(t *testing.T, namespace, name string, duty kube.Duty) {
	t.Helper()
	accounts := c.admin.Typed.CoreV1().ServiceAccounts(namespace)
	awaited(t, "namespace "+namespace, func() bool {
		_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		return err == nil
	})
	if duty == "" {
		return
	}
	roles, err := kube.Roles(duty, "", nil,
		[]kube.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}})
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Apply(t, c.admin, roles...)
}

// token is what `kubectl create token` prints.
func (c *cluster) token(t *testing.T, namespace, name string, audiences ...string) string {
	t.Helper()
	request, err := c.admin.Typed.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// serve runs the program with the permissions of its own ServiceAccount, and returns the address of the page.
func (c *cluster) serve(t *testing.T) string {
	t.Helper()
	kubeconfig, address := filepath.Join(t.TempDir(), "kubeconfig"), clustertest.Free(t)
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: %q}}],
clusters: [{name: c, cluster: {server: "https://192.0.2.1:443", insecure-skip-tls-verify: true}}]}`, c.token(t, v1alpha1.Namespace, "theseus-web")), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- start(ctx, []string{"web", "--kubeconfig=" + kubeconfig, "--api-server=" +
			strings.TrimPrefix(c.config.Host, "https://"), "--listen=" + address, "--state-dir=" + t.TempDir()})
	}()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	awaited(t, "the page", func() bool {
		answer, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return "http://" + address
}

// asks sends a request as the page does.
func asks(t *testing.T, url, path, token string, body any) (int, string, http.Header) {
	t.Helper()
	method, data := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		data, _ = json.Marshal(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url+path, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		r.Header.Set("Origin", url)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text), answer.Header
}

// TestPage: with a real API server and its own tokens, the page shows a migration to those who may look, and says to
// others what they lack. People act with their own rights, in their own name.
func TestPage(t *testing.T) {
	c := newCluster(t)
	checkEvery = 200 * time.Millisecond
	t.Cleanup(func() { checkEvery = 0 })
	url := c.serve(t)
	const of = "system:serviceaccount:default:"
	token := func(name string) string { return c.token(t, metav1.NamespaceDefault, name) }
	for _, test := range []struct {
		token, says string
		code        int
		signIn      bool
	}{
		{"", "Sign in", http.StatusUnauthorized, true},
		{"garbage", "does not accept this token", http.StatusUnauthorized, true},
		{token("ann")[1:], "does not accept this token", http.StatusUnauthorized, true},
		{c.token(t, metav1.NamespaceDefault, "ann", "vault.example"), "does not accept this token",
			http.StatusUnauthorized, true},
		{token("eve"), of + "eve may not list migrations in the namespace theseus-system.\n" +
			"An administrator grants it: theseus rights look --for serviceaccount:default/eve | kubectl apply -f -",
			http.StatusForbidden, true},
		{token("ann"), `"name":"held"`, http.StatusOK, false},
	} {
		for _, path := range []string{"/plan", "/plan?migration=held"} {
			code, text, header := asks(t, url, path, test.token, nil)
			says := strings.Replace(test.says, "list migrations", "get migrations", strings.Count(path, "?"))
			if code != test.code || !strings.Contains(text, says) ||
				(header.Get("WWW-Authenticate") != "") != test.signIn {
				t.Errorf("%s with %.12s: %d %s", path, test.token, code, text)
			}
			if code != http.StatusOK && strings.Contains(text, c.plan.Hash) {
				t.Errorf("it tells of the cluster: %s", text)
			}
		}
	}
	for name, want := range map[string][]string{"ann": nil, "bob": {"approve"}, "op": {"pause", "resume", "rollback"}} {
		_, text, _ := asks(t, url, "/plan", token(name), nil)
		var got struct {
			User            string
			Actions, Others []string
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.User != of+name ||
			!slices.Equal(got.Actions, want) || !slices.Equal(got.Others, []string{"held"}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if code, text, _ := asks(t, url, "/plan?migration=none", token("ann"), nil); code != http.StatusNotFound ||
		!strings.Contains(text, "no migration none") {
		t.Errorf("%d %s", code, text)
	}
	if code, _, _ := asks(t, url, "/", "", nil); code != http.StatusOK { // the page itself knows nothing
		t.Errorf("the page: %d", code)
	}

	do := func(name, action, word string) (int, string) {
		code, text, _ := asks(t, url, "/do?migration=held", token(name),
			map[string]string{"action": action, "word": word, "plan": c.plan.Hash})
		return code, text
	}
	for _, test := range []struct {
		name, action, word string
		code               int
		says               string
	}{
		{"ann", "approve", c.plan.To(), http.StatusForbidden, of + "ann lacks the rights"},
		{"ann", "pause", "", http.StatusForbidden, of + "ann lacks the rights"},
		{"bob", "pause", "", http.StatusForbidden, of + "bob lacks the rights"},
		{"op", "approve", c.plan.To(), http.StatusForbidden, of + "op lacks the rights"},
		{"eve", "approve", c.plan.To(), http.StatusForbidden, of + "eve may not get migrations"},
		{"bob", "approve", "yes", http.StatusBadRequest, "not confirmed"},
		{"bob", "approve", c.plan.To(), http.StatusOK, of + "bob has approved it"},
		{"op", "pause", "", http.StatusOK, "asked the controller in the cluster"},
	} {
		if code, text := do(test.name, test.action, test.word); code != test.code ||
			!strings.Contains(text, test.says) {
			t.Errorf("%s asks to %s: %d %s", test.name, test.action, code, text)
		}
	}
	approvals, err := journal.Approvals(t.Context(), c.admin.Dynamic, "held", c.plan.Hash)
	if err != nil || len(approvals) != 1 || approvals[0].Spec.User != of+"bob" {
		t.Errorf("%+v, %v", approvals, err)
	}
	if m, err := journal.Get(t.Context(), c.admin.Dynamic, "held"); err != nil ||
		m.Spec.Desire != v1alpha1.DesirePause || journal.AskedBy(m) != of+"op" {
		t.Errorf("%+v, %v", m, err)
	}
	_, text, _ := asks(t, url, "/question?migration=held&action=approve", token("bob"), nil)
	if !strings.Contains(text, c.plan.Hash) || !strings.Contains(text, "It deletes:") {
		t.Errorf("the question does not show the plan: %s", text)
	}
	if code, text := do("op", "resume", c.plan.To()); code != http.StatusConflict ||
		!strings.Contains(text, "approved") && !strings.Contains(text, "controller") {
		t.Errorf("resume: %d %s", code, text)
	}
	if approvals, err := journal.Approvals(t.Context(), c.admin.Dynamic, "held", c.plan.Hash); err != nil ||
		len(approvals) != 1 {
		t.Errorf("resume approves: %+v, %v", approvals, err)
	}
	c.signedOnly(t, url, token("bob"))
	c.asked(t)
	c.revoked(t, url, token("ann"))
}

// signedOnly: where only signed approvals count, the page offers no question, and names the command to run.
func (c *cluster) signedOnly(t *testing.T, url, token string) {
	t.Helper()
	if _, err := c.admin.Dynamic.Resource(schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: "migrations"}).Namespace(v1alpha1.Namespace).Patch(t.Context(), "held", types.MergePatchType,
		[]byte(`{"status":{"approval":{"needed":1,"counted":0,"signedOnly":true,"approvedBy":null}}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]any{"/question?migration=held&action=approve": nil,
		"/do?migration=held": map[string]string{"action": "approve", "word": c.plan.To(), "plan": c.plan.Hash}} {
		if code, text, _ := asks(t, url, path, token, body); code != http.StatusConflict ||
			!strings.Contains(text, "theseus approve held --plan plan.yaml --sign KEY") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
}

// revoked: a stream ends once the person may not look any more.
func (c *cluster) revoked(t *testing.T, url, token string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/feed?migration=held", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, answer.Body)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("it ended, and ann may look: %v", err)
	case <-time.After(time.Second):
	}
	bindings := c.admin.Typed.RbacV1().ClusterRoleBindings()
	all, err := bindings.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all.Items {
		if slices.ContainsFunc(one.Subjects, func(s rbacv1.Subject) bool { return s.Name == "ann" }) {
			if err := bindings.Delete(t.Context(), one.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on, and ann may not look")
	}
	if code, text, _ := asks(t, url, "/feed?migration=held", token, nil); code != http.StatusForbidden ||
		!strings.Contains(text, "ann may not") {
		t.Errorf("%d %s", code, text)
	}
}

// asked: the name of who asked holds for one change of the spec alone, and no user can give another's, by hand either.
// A name that is set already keeps no one from asking.
func (c *cluster) asked(t *testing.T) {
	t.Helper()
	held := func() *v1alpha1.Migration {
		t.Helper()
		m, err := journal.Get(t.Context(), c.admin.Dynamic, "held")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	patch := func(spec, by string) error {
		var parts []string
		if spec != "" {
			parts = append(parts, `"spec":{`+spec+`}`)
		}
		if by != "" {
			parts = append(parts, `"metadata":{"annotations":{"theseus.dev/asked-by":`+by+`}}`)
		}
		_, err := c.admin.Dynamic.Resource(schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
			Resource: "migrations"}).Namespace(v1alpha1.Namespace).
			Patch(t.Context(), "held", types.MergePatchType, []byte("{"+strings.Join(parts, ",")+"}"),
				metav1.PatchOptions{})
		return err
	}
	by := func(later int64, user string) string {
		return strconv.Quote(manifest.Asked(held().Generation+later, user))
	}
	awaited(t, "the policy is in force", func() bool { return patch("", by(0, "ann")) != nil })
	for _, test := range []struct {
		what, spec, by string
		refused        bool
		want           string // who asked, as the journal would have it
	}{
		{"another's name", `"desire":"Rollback"`, by(1, "ann"), true, ""},
		{"a name for a spec to come", "", by(1, "admin"), true, ""},
		{"a name for a spec to come, with a change", `"desire":"Rollback"`, by(2, "admin"), true, ""},
		{"one's own name", `"desire":"Rollback"`, by(1, "admin"), false, "admin"},
		{"another attempt, without a name", `"attempt":8`, "", false, ""}, // who asked before has not asked for this
		{"a pause, without a name", `"desire":"Pause"`, "", false, ""},
		{"back, without a name", `"desire":null`, "", false, ""},
		{"the same again", `"desire":"Pause"`, "", false, ""},
		{"no name at all", "", "null", false, ""},
	} {
		err := patch(test.spec, test.by)
		if (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(),
			"names who asked for this spec") {
			t.Errorf("%s: %v", test.what, err)
		}
		if got := journal.AskedBy(held()); !test.refused && got != test.want {
			t.Errorf("%s: asked by %q", test.what, got)
		}
	}
	control := journal.NewControl(c.admin.Dynamic, "held")
	for _, ask := range []struct {
		what string
		of   func() error
		want v1alpha1.Desire
	}{
		{"pause", func() error { return journal.SetDesire(t.Context(), c.admin.Dynamic, "held", v1alpha1.DesirePause) },
			v1alpha1.DesirePause},
		{"pause again", func() error {
			return journal.SetDesire(t.Context(), c.admin.Dynamic, "held", v1alpha1.DesirePause)
		}, v1alpha1.DesirePause},
		{"continue", func() error { return journal.HandOver(t.Context(), c.admin.Dynamic, "held", v1alpha1.DesireRun) },
			v1alpha1.DesireRun},
		{"not pause", func() error {
			return journal.SetDesire(t.Context(), c.admin.Dynamic, "held", v1alpha1.DesireRun)
		}, v1alpha1.DesireRun},
		{"go back", func() error {
			return journal.HandOver(t.Context(), c.admin.Dynamic, "held", v1alpha1.DesireRollback)
		}, v1alpha1.DesireRollback},
	} {
		if err := ask.of(); err != nil {
			t.Errorf("%s: %v", ask.what, err)
		}
		control.Fresh()
		if desire, err := control.Desire(t.Context()); err != nil || desire != ask.want ||
			control.AskedBy() != "admin" {
			t.Errorf("%s: %q, asked by %q, %v", ask.what, desire, control.AskedBy(), err)
		}
	}
}
