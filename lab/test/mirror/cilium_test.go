package mirror

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

//go:embed cilium.yaml
var ciliumObjects string

// TestCilium rolls a flag out on what of Cilium there is without nodes: a real API server with Cilium's own definition,
// real controllers, and agents that are Cilium's own reading and telling of settings. Kubelets, and what probes
// measure, are played.
//
// It lies next to the tests of mirrors since it needs what they need: a control plane on loopback.
func TestCilium(t *testing.T) {
	rigtest.Full(t,
		"a flag rolled out on Cilium's own reading of its settings, for which Cilium's module has to be built")
	c := start(t, "cilium", true)
	nodes := newNodes(t, c, "node-1", "node-2")
	rig := &scenario.Rig{Name: "cilium", Theseus: filepath.Join(absolute(t, bin), "theseus"),
		Dir: t.TempDir(), Out: os.Stdout}
	config, err := os.ReadFile(c.kubeconfig)
	if err == nil {
		err = os.WriteFile(filepath.Join(rig.Dir, "kubeconfig"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, ciliumDefinition(t), "apply", "--server-side", "-f", "-")
	c.kubectl(t, ciliumObjects, "apply", "--server-side", "--field-manager=helm", "-f", "-")
	rigtest.Until(t, "Cilium's agents run", func() bool {
		return c.kubectl(t, "", "-n", "kube-system", "get", "daemonset", "cilium", "-o",
			"jsonpath={.status.numberReady}") == "2"
	})
	first := nodes.agents()
	file := filepath.Join(rig.Dir, "plan.yaml")
	plan := func() {
		t.Helper()
		rigtest.Run(t, rig, "here", 0, nil, "flags", "rollout", "bpf-lb-acceleration=native", "--waves", "1,0",
			"--bake", "1s", "--agent-image", "none", "-o", file)
	}

	// The second node's agent never says that it runs with the value, somebody stops the run there, and all is taken
	// back.
	plan()
	nodes.keep("node-2", true)
	run := rigtest.Start(t, rig, "here", "apply", file, "--yes")
	run.Until("waiting: the agent of node-2 says bpf-lb-acceleration='disabled', not 'native'")
	nodes.say("node-1 'native', node-2 'disabled'")
	configs(t, c, "theseus-node-1 kubernetes.io/hostname=node-1 native, theseus-node-2 "+
		"kubernetes.io/hostname=node-2 native")
	owners(t, c, "ciliumnodeconfig/theseus-node-1", `"f:bpf-lb-acceleration":`, "theseus")
	run.Signal(syscall.SIGINT, syscall.SIGTERM)
	run.Ends(130, "error: stopped at once")
	c.kubectl(t,
		`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cilium-config"}, "data": {"debug": "true"}}`,
		"-n", "kube-system", "apply", "--server-side", "--field-manager=somebody", "-f", "-") // meanwhile, and it stays
	nodes.keep("node-2", false)
	rigtest.Start(t, rig, "there", "rollback").Ends(5, "undone: Switch node-1 to bpf-lb-acceleration=native")
	configs(t, c, "")
	setting(t, c, "bpf-lb-acceleration", "disabled")
	setting(t, c, "debug", "true")
	owners(t, c, "configmap/cilium-config", `"f:bpf-lb-acceleration":`, "helm")
	nodes.say("node-1 'disabled', node-2 'disabled'")
	back := nodes.agents()
	if back["node-1"] == first["node-1"] || back["node-2"] == first["node-2"] {
		t.Errorf("an agent is still that of before: %v, %v", first, back)
	}

	// To the end: every agent is made again once, and the cluster's value is nobody's but Theseus' from then on.
	plan()
	rigtest.Start(t, rig, "here", "apply", file, "--yes").Ends(0, "finished: done", "residue   not inventoried")
	configs(t, c, "")
	setting(t, c, "bpf-lb-acceleration", "native")
	setting(t, c, "debug", "true")
	setting(t, c, "tunnel-protocol", "vxlan")
	owners(t, c, "configmap/cilium-config", `"f:bpf-lb-acceleration":`, "theseus")
	nodes.say("node-1 'native', node-2 'native'")
	after := nodes.agents()
	if nodes.made["node-1"] != 4 || nodes.made["node-2"] != 4 {
		t.Errorf("agents were made anew %v times, and not with each switch alone: %v, %v, %v",
			nodes.made, first, back, after)
	}
	if out, err := c.try(c.kubeconfig, ciliumObjects, "apply", "--server-side", "--field-manager=helm",
		"-f", "-"); err == nil ||
		!strings.Contains(out, `conflict with "theseus": .data.bpf-lb-acceleration`) {
		t.Errorf("who applies the chart's old value is not told: %v\n%s", err, out)
	}

	// What agents run with and what is written are compared, by node.
	rigtest.Run(t, rig, "here", 0, []string{"node-1", "node-2", "native"}, "flags", "verify", "bpf-lb-acceleration")
	somebody :=
		`{"apiVersion": "cilium.io/v2", "kind": "CiliumNodeConfig", "metadata": {"name": "edge", "namespace": "kube-system"},
		"spec": {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "node-2"}}, "defaults": {"bpf-lb-acceleration": "disabled"}}}`
	c.kubectl(t, somebody, "apply", "-f", "-")
	rigtest.Start(t, rig, "here", "flags", "verify", "bpf-lb-acceleration").Ends(3, "node-2", "disabled")
	rigtest.Run(t, rig, "here", 1, []string{"CiliumNodeConfig/kube-system/edge has a value of its own"},
		"flags", "rollout", "bpf-lb-acceleration=best-effort", "--agent-image", "none")
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	whole, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// ciliumDefinition is Cilium's own of CiliumNodeConfig, of the release that its program is built of.
func ciliumDefinition(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", "github.com/cilium/cilium")
	cmd.Dir, cmd.Env = "../../components/cilium", append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "pkg/k8s/apis/cilium.io/client/crds/v2/ciliumnodeconfigs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// configs demands that there are these CiliumNodeConfigs, each with its selector and its value, and no others.
func configs(t *testing.T, c *cluster, want string) {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct {
				Defaults     map[string]string
				NodeSelector struct{ MatchLabels map[string]string }
			}
		}
	}
	if err := json.Unmarshal([]byte(c.kubectl(t, "", "get", "ciliumnodeconfigs", "-A", "-o", "json")),
		&list); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, one := range list.Items {
		for key, value := range one.Spec.NodeSelector.MatchLabels {
			all = append(all, one.Metadata.Name+" "+key+"="+value+" "+one.Spec.Defaults["bpf-lb-acceleration"])
		}
	}
	if got := strings.Join(all, ", "); got != want {
		t.Errorf("there are the configurations %q, and not %q", got, want)
	}
}

// setting demands a value in cilium-config.
func setting(t *testing.T, c *cluster, key, want string) {
	t.Helper()
	if got := c.kubectl(t, "", "-n", "kube-system", "get", "configmap", "cilium-config", "-o",
		"jsonpath={.data."+key+"}"); got != want {
		t.Errorf("cilium-config has %s=%q, and not %q", key, got, want)
	}
}

// owners demands that a field has one manager.
func owners(t *testing.T, c *cluster, object, field, want string) {
	t.Helper()
	var seen struct {
		Metadata struct {
			ManagedFields []struct {
				Manager  string
				FieldsV1 json.RawMessage
			}
		}
	}
	text := c.kubectl(t, "", "-n", "kube-system", "get", object, "--show-managed-fields", "-o", "json")
	if err := json.Unmarshal([]byte(text), &seen); err != nil {
		t.Fatal(err)
	}
	var managers []string
	for _, one := range seen.Metadata.ManagedFields {
		if strings.Contains(strings.ReplaceAll(string(one.FieldsV1), " ", ""), field) {
			managers = append(managers, one.Manager)
		}
	}
	if !slices.Equal(managers, []string{want}) {
		t.Errorf("%s of %s belongs to %v, and not to %s alone", field, object, managers, want)
	}
}

// nodes are stand-ins for machines: they run what will run on them by saying so, and serve agents' logs. They also say
// that nothing was lost, on every path that is to be measured: nothing is.
type nodes struct {
	t      *testing.T
	c      *cluster
	client *http.Client
	says   string // the program
	names  []string
	began  time.Time

	lock sync.Mutex
	logs map[string]string // of agents, by namespace and name
	on   map[string]string // the UID of each node's last agent
	made map[string]int    // how many agents each node has had
	mute map[string]bool   // nodes whose agents keep what they said first
	told map[string]string // what they say
}

func newNodes(t *testing.T, c *cluster, names ...string) *nodes {
	t.Helper()
	says, err := rigtest.Program("cilium-says")
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(c.file("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(c.admin.Cert, c.admin.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	n := &nodes{t: t, c: c, says: says, names: names, began: time.Now().UTC(), logs: map[string]string{},
		on: map[string]string{}, made: map[string]int{}, mute: map[string]bool{}, told: map[string]string{},
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool,
			Certificates: []tls.Certificate{pair}}}}}
	kubelet := httptest.NewTLSServer(http.HandlerFunc(n.log))
	t.Cleanup(kubelet.Close)
	port, err := strconv.Atoi(kubelet.URL[strings.LastIndex(kubelet.URL, ":")+1:])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		n.must("POST", "/api/v1/nodes", "application/json", object{"apiVersion": "v1", "kind": "Node",
			"metadata": object{"name": name,
				"labels": object{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}}}, nil)
	}
	beat := func() {
		for _, name := range names {
			n.must("PATCH", "/api/v1/nodes/"+name+"/status", "application/merge-patch+json", object{"status": object{
				"addresses":       []any{object{"type": "InternalIP", "address": "127.0.0.1"}},
				"daemonEndpoints": object{"kubeletEndpoint": object{"Port": port}},
				"conditions": []any{object{"type": "Ready", "status": "True", "reason": "KubeletReady",
					"lastHeartbeatTime": now()}},
			}}, nil)
		}
	}
	beat()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			if i%50 == 0 {
				beat()
			}
			n.run()
			n.report()
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return n
}

type object = map[string]any

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// call asks the API server, and returns the status.
func (n *nodes) call(method, path, kind string, body, answer any) (int, string) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err.Error()
	}
	request, err := http.NewRequest(method, fmt.Sprintf("https://127.0.0.1:%d%s", n.c.port, path),
		bytes.NewReader(text))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Content-Type", kind)
	response, err := n.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err == nil && answer != nil && response.StatusCode == http.StatusOK {
		err = json.Unmarshal(said, answer)
	}
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(said)
}

// must is call of what cannot fail; what may is that a thing is gone, or was changed meanwhile.
func (n *nodes) must(method, path, kind string, body, answer any) bool {
	status, said := n.call(method, path, kind, body, answer)
	if status/100 != 2 && status != http.StatusNotFound && status != http.StatusConflict {
		n.t.Errorf("%s %s: %d %s", method, path, status, said)
	}
	return status/100 == 2
}

type pod struct {
	Metadata struct {
		Name, Namespace, UID string
		DeletionTimestamp    string
		Labels               map[string]string
	}
	Spec struct {
		NodeName   string
		Containers []struct{ Name string }
		Affinity   struct {
			NodeAffinity struct {
				RequiredDuringSchedulingIgnoredDuringExecution struct {
					NodeSelectorTerms []struct{ MatchFields []struct{ Values []string } }
				}
			}
		}
	}
	Status struct{ Phase string }
}

// run does what is to be done with pods: those of a DaemonSet come to their node, they start, and they end.
func (n *nodes) run() {
	var list struct{ Items []pod }
	n.must("GET", "/api/v1/pods", "application/json", nil, &list)
	for _, p := range list.Items {
		path := "/api/v1/namespaces/" + p.Metadata.Namespace + "/pods/" + p.Metadata.Name
		switch {
		case p.Metadata.DeletionTimestamp != "":
			n.must("DELETE", path, "application/json",
				object{"gracePeriodSeconds": 0, "preconditions": object{"uid": p.Metadata.UID}}, nil)
		case p.Spec.NodeName == "":
			required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			for _, term := range required.NodeSelectorTerms {
				n.must("POST", path+"/binding", "application/json",
					object{"apiVersion": "v1", "kind": "Binding", "metadata": object{"name": p.Metadata.Name},
						"target": object{"apiVersion": "v1", "kind": "Node", "name": term.MatchFields[0].Values[0]}},
					nil)
			}
		case p.Status.Phase != "Running" && (p.Metadata.Labels["k8s-app"] != "cilium" || n.begin(p)):
			n.must("PATCH", path+"/status", "application/merge-patch+json", object{"status": running(p)}, nil)
		}
	}
}

// running is the status of a pod that runs.
func running(p pod) object {
	var containers []any
	for _, one := range p.Spec.Containers {
		containers = append(containers, object{"name": one.Name, "image": "none", "imageID": "none", "ready": true,
			"started": true, "restartCount": 0, "state": object{"running": object{"startedAt": now()}}})
	}
	sum := 0
	for _, r := range p.Metadata.UID {
		sum = (sum*31 + int(r)) % 65000
	}
	address := fmt.Sprintf("10.0.%d.%d", sum/255, sum%255+1)
	return object{"phase": "Running", "startTime": now(), "hostIP": "127.0.0.1", "podIP": address,
		"podIPs":            []any{object{"ip": address}},
		"conditions":        []any{object{"type": "Ready", "status": "True", "lastTransitionTime": now()}},
		"containerStatuses": containers}
}

// begin starts an agent: Cilium's code reads what is written for its node, and says so.
func (n *nodes) begin(p pod) bool {
	cmd := exec.Command(n.says, "--kubeconfig", n.c.kubeconfig, "--node", p.Spec.NodeName)
	said, err := cmd.CombinedOutput()
	if err != nil {
		n.t.Logf("the agent of %s: %v\n%s", p.Spec.NodeName, err, said)
		return false
	}
	n.lock.Lock()
	defer n.lock.Unlock()
	if n.mute[p.Spec.NodeName] {
		said = []byte(n.told[p.Spec.NodeName])
	}
	if n.on[p.Spec.NodeName] == p.Metadata.UID {
		return true // it has begun, and that did not get into its status
	}
	n.logs[p.Metadata.Namespace+"/"+p.Metadata.Name], n.told[p.Spec.NodeName] = string(said), string(said)
	n.on[p.Spec.NodeName] = p.Metadata.UID
	n.made[p.Spec.NodeName]++
	return true
}

// log serves what an agent said, as a kubelet does.
func (n *nodes) log(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/containerLogs/"), "/") // namespace, pod, container
	n.lock.Lock()
	defer n.lock.Unlock()
	said, ok := n.logs[strings.Join(parts[:min(2, len(parts))], "/")]
	if !ok || len(parts) != 3 || parts[2] != "cilium-agent" {
		http.NotFound(w, r)
		return
	}
	io.WriteString(w, said) //nolint:errcheck // the reader may be gone
}

// report says of every path that is to be measured that all is well.
func (n *nodes) report() {
	var plans struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct {
				Generation int64
				Paths      []struct {
					ID     string
					Denied bool
				}
			}
		}
	}
	const folder = "/apis/theseus.dev/v1alpha1/namespaces/theseus-system/"
	if status, _ := n.call("GET", folder+"probeplans", "application/json", nil, &plans); status != http.StatusOK {
		return // nothing is defined yet
	}
	at := time.Now().UTC()
	for _, plan := range plans.Items {
		paths := []any{}
		sent := at.Sub(n.began).Milliseconds()
		for _, one := range plan.Spec.Paths {
			answered := sent
			if one.Denied {
				answered = 0
			}
			paths = append(paths, object{"id": one.ID, "sent": sent, "answered": answered, "since": n.began, "last": at,
				"rttMicros": []int{100, 200, 300}})
		}
		n.call("PATCH", folder+"probereports/"+plan.Metadata.Name+"?fieldManager=nodes&force=true",
			"application/apply-patch+yaml", object{
				"apiVersion": "theseus.dev/v1alpha1", "kind": "ProbeReport",
				"metadata": object{"name": plan.Metadata.Name},
				"status":   object{"generation": plan.Spec.Generation, "seq": sent, "at": at, "paths": paths}}, nil)
	}
}

// keep lets agents of a node say, from now on, what the last one said; or the truth again.
func (n *nodes) keep(node string, mute bool) {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.mute[node] = mute
}

// agents are the UIDs of the agents on the nodes.
func (n *nodes) agents() map[string]string {
	n.lock.Lock()
	defer n.lock.Unlock()
	all := map[string]string{}
	for node, uid := range n.on {
		all[node] = uid
	}
	return all
}

// say demands what the agents say that they run with.
func (n *nodes) say(want string) {
	n.t.Helper()
	n.lock.Lock()
	defer n.lock.Unlock()
	var all []string
	for _, node := range n.names {
		_, value, _ := strings.Cut(n.told[node], "--bpf-lb-acceleration=")
		value, _, _ = strings.Cut(value, `"`)
		all = append(all, node+" "+strings.TrimSpace(value))
	}
	if got := strings.Join(all, ", "); got != want {
		n.t.Errorf("agents say %q, and not %q", got, want)
	}
}
