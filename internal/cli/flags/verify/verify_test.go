package verify_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cli"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

// listing serves objects as an API server lists them, and pods' logs by the name of the pod. It returns a kubeconfig.
func listing(t *testing.T, objects []unstructured.Unstructured, logs map[string]string) string {
	t.Helper()
	lists, resources, groups := map[string][]any{}, map[string][]any{}, map[string]any{}
	for _, object := range objects {
		kind := object.GroupVersionKind()
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		root := "/apis/" + object.GetAPIVersion()
		if kind.Group == "" {
			root = "/api/v1"
		} else {
			version := map[string]any{"groupVersion": object.GetAPIVersion(), "version": kind.Version}
			groups[kind.Group] = map[string]any{"name": kind.Group, "versions": []any{version},
				"preferredVersion": version}
		}
		path := root + "/" + plural.Resource
		if len(lists[path]) == 0 {
			resources[root] = append(resources[root], map[string]any{"name": plural.Resource, "kind": kind.Kind,
				"namespaced": object.GetNamespace() != "", "verbs": []string{"list", "get"}})
		}
		lists[path] = append(lists[path], object.Object)
		if space := object.GetNamespace(); space != "" {
			lists[root+"/namespaces/"+space+"/"+
				plural.Resource] = append(lists[root+"/namespaces/"+space+"/"+plural.Resource], object.Object)
		}
	}
	var all []any
	for _, group := range groups {
		all = append(all, group)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pod, isLog := strings.CutSuffix(r.URL.Path, "/log")
		if isLog {
			_, _ = w.Write([]byte(logs[filepath.Base(pod)]))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		answer := map[string]any{"kind": "List", "apiVersion": "v1",
			"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}}
		node, byNode := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
		switch list, known := lists[r.URL.Path]; {
		case r.Method == http.MethodPost: // an access review
			answer = map[string]any{}
			_ = json.NewDecoder(r.Body).Decode(&answer)
			answer["status"] = map[string]any{"allowed": true}
		case r.URL.Path == "/version":
			answer = map[string]any{"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
		case r.URL.Path == "/api":
			answer = map[string]any{"kind": "APIVersions", "versions": []string{"v1"}}
		case r.URL.Path == "/apis":
			answer = map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": all}
		case resources[r.URL.Path] != nil:
			answer = map[string]any{"kind": "APIResourceList", "apiVersion": "v1",
				"groupVersion": strings.TrimPrefix(r.URL.Path, "/apis/"), "resources": resources[r.URL.Path]}
		case known:
			first := unstructured.Unstructured{Object: list[0].(map[string]any)}
			answer["kind"], answer["apiVersion"] = first.GetKind()+"List", first.GetAPIVersion()
			if !byNode {
				answer["items"] = list
				break
			}
			for _, one := range list {
				if on, _, _ := unstructured.NestedString(one.(map[string]any), "spec", "nodeName"); on == node {
					answer["items"] = []any{one}
				}
			}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	err := os.WriteFile(config,
		[]byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
		clusters: [{name: c, cluster: {server: "`+server.URL+`"}}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// TestVerifyFindsDrift: what the API says is held against what the agent of each node said in its log; drift, and
// silence, end with 3.
func TestVerifyFindsDrift(t *testing.T) {
	pods := func(label string) string {
		text := "\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: kube-system, uid: uid-of-cluster}\n"
		if label == "calico-node" { // that cluster has one node
			text += "---\napiVersion: v1\nkind: Node\nmetadata: {name: node-2, labels: {kubernetes.io/os: linux}}\n"
		}
		for _, node := range []string{"node-1", "node-2"} {
			text += `---
apiVersion: v1
kind: Pod
metadata: {name: agent-` + node + `, namespace: kube-system, labels: {k8s-app: ` + label + `}}
spec: {nodeName: ` + node + `, hostNetwork: true, containers: []}
`
		}
		return text
	}
	felix := `
---
apiVersion: crd.projectcalico.org/v1
kind: FelixConfiguration
metadata: {name: default}
spec: {iptablesRefreshInterval: 1m0s}
`
	loaded := func(value string) string {
		return "2026-11-21 08:16:56.595 [INFO][220] felix/daemon.go 354: Successfully loaded configuration. " +
			"config=&config.Config{A:1, IptablesRefreshInterval:" + value + ", X:1}\n"
	}
	says := func(value string) string {
		return `time="2026-11-21T08:16:56Z" level=info msg="  --enable-policy='` + value + `'" subsys=daemon` + "\n"
	}
	for _, test := range []struct {
		name, network, flag, more string
		logs                      map[string]string
		code                      int
		words                     []string
	}{
		{"Felix as it is to be", "calico", "iptablesRefreshInterval", felix,
			map[string]string{"agent-node-1": loaded("60000000000"), "agent-node-2": loaded("60000000000")}, 0,
			[]string{"said at 2026-11-21 08:16:56.595", "no drift on"}},
		{"a Felix with another value", "calico", "iptablesRefreshInterval", felix,
			map[string]string{"agent-node-1": loaded("60000000000"), "agent-node-2": loaded("90000000000")},
			exit.Blocked, []string{"drift on node-2: iptablesRefreshInterval: the agent runs with 1m30s\n"}},
		{"a Felix whose last word counts", "calico", "iptablesRefreshInterval", felix,
			map[string]string{"agent-node-1": loaded("90000000000") + loaded("60000000000"),
				"agent-node-2": loaded("60000000000") + loaded("90000000000")},
			exit.Blocked, []string{"drift on node-2: iptablesRefreshInterval: the agent runs with 1m30s\n"}},
		{"a Felix that says nothing", "calico", "iptablesRefreshInterval", felix,
			map[string]string{"agent-node-1": loaded("60000000000")}, exit.Blocked,
			[]string{"drift on node-2", "its log does not go back to its start"}},
		{"Cilium as it is to be", "cilium", "cilium/enable-policy", "",
			map[string]string{"agent-node-1": says("default"), "agent-node-2": says("default")}, 0,
			[]string{"no drift on 2 nodes\n"}},
		{"an edit that nobody restarted for", "cilium", "cilium/enable-policy", "",
			map[string]string{"agent-node-1": says("always"), "agent-node-2": says("default")}, exit.Blocked,
			[]string{"drift on node-1: enable-policy: the agent runs with always\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			label := map[string]string{"calico": "calico-node", "cilium": "cilium"}[test.network]
			documents := cnitest.Documents(t, []byte(pods(label)+test.more))
			if test.network == "cilium" {
				documents = append(cnitest.Cilium(t, "v1.16.5"), documents...)
			} else {
				documents = append(cnitest.Fixture(t, test.network+".yaml"), documents...)
			}
			config := listing(t, documents, test.logs)
			var out, complaints bytes.Buffer
			code := cli.Main(t.Context(), []string{"theseus", "flags", "verify", test.flag, "--kubeconfig", config},
				cli.Streams{In: strings.NewReader(""), Out: &out, Err: &complaints})
			if code != test.code {
				t.Errorf("exit %d, not %d", code, test.code)
			}
			for _, words := range test.words {
				if !strings.Contains(out.String(), words) {
					t.Errorf("%q is not in:\n%s%s", words, out.String(), complaints.String())
				}
			}
		})
	}
}
