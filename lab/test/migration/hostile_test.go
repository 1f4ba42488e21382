package migration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// system is the namespace of Theseus.
const system = "theseus-system"

// hostile is a node that somebody else is root of, in the middle of a run: the one with the token of its agent and the
// folders of its probers, against the others.
type hostile struct {
	t          *testing.T
	rig        *scenario.Rig
	node, prey string
	config     string // with the token of node's agent, and nothing else
	server     string // https://…
	token      string
	client     *http.Client
}

// newHostile takes the token of a node's agent, as the kubelet puts it into the agent's pod.
func newHostile(t *testing.T, rig *scenario.Rig, node, prey string) *hostile {
	t.Helper()
	h := &hostile{t: t, rig: rig, node: node, prey: prey, config: filepath.Join(t.TempDir(), "hostile.kubeconfig")}
	pod := h.admin("-n", system, "get", "pods", "-l", "app.kubernetes.io/name=theseus-agent",
		"--field-selector", "spec.nodeName="+node, "-o", "jsonpath={.items[0].metadata.name}")
	token := h.admin("-n", system, "create", "token", "theseus-agent", "--bound-object-kind",
		"Pod", "--bound-object-name", pod)
	about := h.admin("config", "view", "--raw", "--minify", "-o",
		`jsonpath={.clusters[0].cluster.server} {.clusters[0].cluster.certificate-authority-data}`)
	server, authority, _ := strings.Cut(about, " ")
	pem, err := base64.StdEncoding.DecodeString(authority)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatalf("no authority in %q: %v", about, err)
	}
	h.server, h.token = server, token
	h.client = &http.Client{Timeout: 30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	config := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "it",
		"clusters": []any{map[string]any{"name": "it",
			"cluster": map[string]any{"server": server, "certificate-authority-data": authority}}},
		"users": []any{map[string]any{"name": "it", "user": map[string]any{"token": token}}},
		"contexts": []any{map[string]any{"name": "it",
			"context": map[string]any{"cluster": "it", "user": "it", "namespace": system}}},
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if who := h.mustAs("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); who != "system:serviceaccount:"+
		system+":theseus-agent" {
		t.Fatalf("the token is of %q", who)
	}
	return h
}

// admin runs kubectl with all rights.
func (h *hostile) admin(args ...string) string {
	h.t.Helper()
	out, err := h.rig.Kubectl(h.t.Context(), nil, args...)
	if err != nil {
		h.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// as runs kubectl with the agent's token.
func (h *hostile) as(input string, args ...string) (string, error) {
	return h.rig.Kubectl(h.t.Context(), bytes.NewReader([]byte(input)),
		append([]string{"--kubeconfig", h.config}, args...)...)
}

func (h *hostile) mustAs(args ...string) string {
	h.t.Helper()
	out, err := h.as("", args...)
	if err != nil {
		h.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// refused demands that the API server refuses what the agent's token asks for, with words that say why.
func (h *hostile) refused(why, input string, args ...string) {
	h.t.Helper()
	out, err := h.as(input, args...)
	if err == nil {
		h.t.Errorf("allowed: kubectl %s: %s", strings.Join(args, " "), out)
		return
	}
	if said := out + err.Error(); !strings.Contains(said, why) {
		h.t.Errorf("kubectl %s: refused for another reason than %q: %s", strings.Join(args, " "), why, said)
	}
}

// patch merges a change into the status of an object with the agent's token. kubectl would read it first, which is
// refused.
func (h *hostile) patch(resource, name, change string) (status int, said string) {
	h.t.Helper()
	url := h.server + "/apis/theseus.dev/v1alpha1/namespaces/" + system + "/" + resource + "/" + name + "/status"
	request, err := http.NewRequestWithContext(h.t.Context(), http.MethodPatch, url, strings.NewReader(change))
	if err != nil {
		h.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+h.token)
	request.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := h.client.Do(request)
	if err != nil {
		h.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// unpatched demands that the API server refuses to change the status of an object of another node.
func (h *hostile) unpatched(resource, name, change string) {
	h.t.Helper()
	if status, said := h.patch(resource, name, change); status < 400 || !strings.Contains(said, h.prey) ||
		!strings.Contains(said, "may not write for node") {
		h.t.Errorf("the status of %s %s, patched for %s: %d: %s", resource, name, h.node, status, said)
	}
}

// task is a task for a node, in the lock's epoch.
func (h *hostile) task(name, node string, residue map[string]any) string {
	h.t.Helper()
	var epoch json.Number
	if err := json.Unmarshal([]byte(h.admin("-n", system, "get", "leases", "-o",
		"jsonpath={.items[0].spec.leaseTransitions}")), &epoch); err != nil {
		h.t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "theseus.dev/v1alpha1", "kind": "NodeTask",
		"metadata": map[string]any{"name": name, "namespace": system,
			"labels": map[string]any{"theseus.dev/node": node}},
		"spec": map[string]any{"node": node, "verb": "clean", "args": residue, "epoch": epoch},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// taskOf is a task of a node that is there.
func (h *hostile) taskOf(node string) string {
	h.t.Helper()
	return h.admin("-n", system, "get", "nodetasks", "-l", "theseus.dev/node="+node, "-o",
		"jsonpath={.items[0].metadata.name}")
}

// verbs tries to have another node do something: by a new task, by one of its own that is rewritten, by an answer in
// its name.
func (h *hostile) verbs() {
	h.t.Helper()
	own, others := h.taskOf(h.node), h.taskOf(h.prey)
	evil := map[string]any{"paths": []string{"/etc/precious"}}
	h.refused("forbidden", h.task("evil", h.prey, evil), "create", "-f", "-")
	h.refused("forbidden", "", "patch", "nodetask", own, "--type=merge", "-p",
		`{"spec":{"node":"`+h.prey+`","verb":"clean"}}`)
	h.refused("forbidden", "", "delete", "nodetask", others)
	h.unpatched("nodetasks", others, `{"status":{"phase":"Failed","message":"it is mine"}}`)
	before := h.admin("-n", system, "get", "nodetask", own, "-o", "jsonpath={.spec}")
	status, said := h.patch("nodetasks", own, `{"spec":{"node":"`+h.prey+`"}}`)
	if after := h.admin("-n", system, "get", "nodetask", own, "-o", "jsonpath={.spec}"); after != before {
		h.t.Errorf("a write of the status changed the spec: %d: %s: %s", status, said, after)
	}
	if out, err := h.rig.Kubectl(h.t.Context(), nil, "-n", system, "patch", "nodetask", own, "--type=merge", "-p",
		`{"spec":{"node":"`+h.prey+`"}}`); err == nil ||
		!strings.Contains(out+err.Error(), "the spec of a task never changes") {
		h.t.Errorf("a spec was changed with all rights: %v: %s", err, out)
	}
	for _, of := range []string{"nodes", "nodes/status"} {
		resource, sub, _ := strings.Cut(of, "/")
		h.refused("forbidden", "", "patch", resource, h.prey, "--subresource="+sub, "--type=merge", "-p",
			`{"metadata":{"labels":{"mine":"yes"}}}`)
		h.refused("forbidden", "", "patch", resource, h.node, "--subresource="+sub, "--type=merge", "-p",
			`{"metadata":{"labels":{"mine":"yes"}}}`)
	}
	for _, kind := range []string{"secrets", "journalpages.theseus.dev", "planpages.theseus.dev",
		"migrations.theseus.dev", "pods"} {
		h.refused("forbidden", "", "get", kind)
	}
}

// stolen writes tasks as one who may: agents hold to what networks leave, the caller.
func (h *hostile) stolen() {
	h.t.Helper()
	if out, err := h.rig.OnNode(h.t.Context(), h.prey, "sh", "-c",
		"mkdir -p /etc/precious && echo x > /etc/precious/file"); err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	const patience = "--timeout=240s" // an agent does one task at a time, each for up to three minutes
	for name, residue := range map[string]map[string]any{
		"evil-path": {"paths": []string{"/etc/precious"}}, "evil-link": {"links": []string{"lo"}},
		"evil-chains": {"chains": []string{"KUBE-*"}},
	} {
		if out, err := h.rig.Kubectl(h.t.Context(), strings.NewReader(h.task(name, h.prey, residue)),
			"create", "-f", "-"); err != nil {
			h.t.Fatalf("%v: %s", err, out)
		}
		phase := "{.status.phase}"
		h.admin("-n", system, "wait", "--for=jsonpath="+phase+"=Failed", "nodetask/"+name, patience)
		if said := h.admin("-n", system, "get", "nodetask", name, "-o",
			"jsonpath={.status.message}"); !strings.Contains(said, "no known network leaves") &&
			!strings.Contains(said, "is not a folder that contains only addresses of pods") {
			h.t.Errorf("%s failed for another reason: %s", name, said)
		}
		h.admin("-n", system, "delete", "nodetask", name)
	}
	if out, err := h.rig.OnNode(h.t.Context(), h.prey, "cat", "/etc/precious/file"); err != nil ||
		strings.TrimSpace(out) != "x" {
		h.t.Errorf("a file of the node is gone: %v: %s", err, out)
	}
}

// evidence tries to write another node's report, and puts results for another node's paths into its own, until run says
// so.
func (h *hostile) evidence(run *rigtest.Process) {
	h.t.Helper()
	h.refused(`may not write for node "`+h.prey+`"`, "", "patch", "probereport", h.prey, "--type=merge",
		"-p", `{"status":{"paths":[]}}`)
	forged := h.prey + "/host>" + h.node + "/host"
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute)
	defer cancel()
	for told := "the report of " + h.node +
		" holds a result of a path that starts elsewhere"; !strings.Contains(run.Said(), told); {
		var report struct {
			Status map[string]any `json:"status"`
		}
		if err := json.Unmarshal([]byte(h.mustAs("get", "probereport", h.node, "-o", "json")), &report); err != nil {
			h.t.Fatal(err)
		}
		paths, _ := report.Status["paths"].([]any)
		paths = append(paths, map[string]any{"id": forged, "sent": 1000000, "lost": 0})
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"paths": paths}})
		if err != nil {
			h.t.Fatal(err)
		}
		h.mustAs("patch", "probereport", h.node, "--type=merge", "-p", string(patch))
		if ctx.Err() != nil {
			h.t.Fatalf("the run never said that %s forges results", h.node)
		}
	}
}

// files puts into a prober's folder, as its user, what the agent must not read: a link to a file of root, one of 4 GiB,
// a pipe. The agent lives on.
func (h *hostile) files() {
	h.t.Helper()
	agent := func() string {
		return h.admin("-n", system, "get", "pods", "-l", "app.kubernetes.io/name=theseus-agent",
			"--field-selector", "spec.nodeName="+h.node, "-o",
			"jsonpath={.items[0].metadata.uid} {.items[0].status.containerStatuses[0].restartCount}")
	}
	before := agent()
	for _, make := range []string{"ln -s /etc/shadow x", "truncate -s 4G x", "mkfifo x"} {
		line := "cd /run/theseus/probe/host/out && for i in 1 2 3 4 5 6 7 8; do " + make +
			" && mv -T x results.json && sleep 0.2; done"
		if out, err := h.rig.OnNode(h.t.Context(), h.node, "setpriv", "--reuid=65532", "--regid=65532",
			"--clear-groups", "sh", "-c", line); err != nil {
			h.t.Fatalf("%s: %v: %s", make, err, out)
		}
	}
	if after := agent(); after != before {
		h.t.Errorf("the agent of %s ended over a file: %s, then %s", h.node, before, after)
	}
	for _, file := range []string{"/run/theseus/x", "/run/theseus/probe/host/x"} {
		if out, err := h.rig.OnNode(h.t.Context(), h.node, "setpriv", "--reuid=65532", "--regid=65532",
			"--clear-groups", "touch", file); err == nil {
			h.t.Errorf("a prober's user wrote %s: %s", file, out)
		}
	}
}

// silent opens 5,000 connections to the prober of the other node, says nothing on them, and keeps them for a minute.
func (h *hostile) silent() {
	h.t.Helper()
	address := h.admin("get", "node", h.prey, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	line := fmt.Sprintf("ulimit -n 6000; for i in $(seq 5000); do exec {fd}<>/dev/tcp/%s/7102 || exit 1; done; sleep "+
		"60 >/dev/null 2>&1 & echo held", address)
	if out, err := h.rig.OnNode(h.t.Context(), h.node, "timeout", "120", "bash", "-c", line); err != nil ||
		!strings.Contains(out, "held") {
		h.t.Fatalf("%v: %s", err, out)
	}
}

// attack returns a function that tries everything from a node against another, while run goes on.
func attack(node, prey string, run *rigtest.Process) func(*testing.T, *scenario.Rig) {
	return func(t *testing.T, rig *scenario.Rig) {
		t.Helper()
		h := newHostile(t, rig, node, prey)
		h.silent()
		h.verbs()
		h.stolen()
		h.files()
		h.evidence(run)
		fmt.Fprintf(rig.Out, "-- %s tried to act for %s, to forge its results, and to hinder its probes\n", node, prey)
	}
}
