package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// pods are a server and a client on either node, and a Service in front of the servers.
const pods = `
apiVersion: v1
kind: Namespace
metadata: {name: smoke}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: smoke}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

const pod = `---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-%[3]d, namespace: smoke, labels: {app: %[1]s}}
spec:
  nodeName: %[2]s-node-%[3]d
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: theseus.dev/workload:lab
      args: [serve, "--http=:8080", "--grace=0s"]
      env: [{name: POD_NAME, value: %[1]s-%[3]d}]
      readinessProbe: {httpGet: {path: /ready, port: 8081}, periodSeconds: 1}
`

// deny shuts everybody but the pods "friend" out of the servers.
const deny = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friends-only, namespace: smoke}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]
`

// cluster is a lab that is up.
type cluster struct {
	*lab
	name string
}

// up brings a lab of two nodes up.
func up(t *testing.T, name string, flags ...string) cluster {
	t.Helper()
	c := cluster{newLab(t), name}
	start := time.Now()
	c.do(append([]string{"up", "--name", name, "--nodes", "2"}, flags...)...)
	t.Logf("up %s: %.1f s, builds included", strings.Join(flags, " "), time.Since(start).Seconds())
	return c
}

func (c cluster) kubectl(args ...string) string {
	c.t.Helper()
	return c.do(append([]string{"--name", c.name, "kubectl"}, args...)...)
}

// apply applies a manifest.
func (c cluster) apply(manifest string) {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.kubectl("apply", "-f", file)
}

// fetch asks for a URL from inside a pod.
func (c cluster) fetch(from, url string) (string, error) {
	out, err := c.try("--name", c.name, "kubectl", "-n", "smoke", "exec", from, "--", "/workload", "fetch", url)
	return strings.TrimSpace(out), err
}

// tell says after a failure what the network knew.
func (c cluster) tell() {
	if !c.t.Failed() {
		return
	}
	for _, args := range [][]string{
		{"kubectl", "get", "pods", "-A", "-o", "wide"},
		{"node", "exec", "1", "--", "sh", "-c", "ip -br address; ip route; ip neigh"},
		{"node", "exec", "2", "--", "sh", "-c", "ip -br address; ip route; ip neigh"},
		{"kubectl", "-n", "kube-system", "logs", "-l", "name=weave-net", "-c", "weave", "--prefix", "--tail", "40"},
		{"kubectl", "-n", "kube-system", "logs", "-l", "name=weave-net", "-c", "weave-npc", "--prefix", "--tail", "20"},
		{"kubectl", "-n", "kube-system", "exec", "ds/weave-net", "-c", "weave", "--", "/home/weave/weave",
			"--local", "status", "connections"},
	} {
		out, err := c.try(append([]string{"--name", c.name}, args...)...)
		c.t.Logf("%s (%v)", strings.Join(args, " "), err)
		for line := range strings.Lines(out) { // a record each: make prints the records of a test that failed
			c.t.Log(strings.TrimSuffix(line, "\n"))
		}
	}
}

// weaveMeets waits until each of Weave Net's routers has a connection to the other: they give pods no address before
// that. A router that did not reach its peer pauses before the next try, each time longer and for up to six minutes;
// `weave connect` ends the pause.
func (c cluster) weaveMeets() {
	c.t.Helper()
	weave := func(node int, args ...string) string {
		pod := c.kubectl("-n", "kube-system", "get", "pod", "-l", "name=weave-net", "-o",
			"jsonpath={.items[*].metadata.name}",
			"--field-selector", fmt.Sprintf("spec.nodeName=%s-node-%d", c.name, node))
		command := append([]string{"--name", c.name, "kubectl", "-n", "kube-system", "exec", pod, "-c", "weave", "--",
			"/home/weave/weave", "--local"}, args...)
		out, err := c.try(command...)
		if err != nil {
			c.t.Logf("weave %s on node %d: %v: %s", strings.Join(args, " "), node, err, out)
		}
		return out
	}
	for node, peer := range map[int]int{1: 2, 2: 1} {
		address := c.kubectl("get", "node", fmt.Sprintf("%s-node-%d", c.name, peer), "-o",
			`jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
		rigtest.Until(c.t, fmt.Sprintf("the router of node %d is connected to the one of node %d",
			node, peer), func() bool {
			if strings.Contains(weave(node, "status", "connections"), " established ") {
				return true
			}
			weave(node, "connect", address)
			return false
		})
	}
}

// deploy starts the pods and waits until they are ready.
func (c cluster) deploy() {
	c.t.Helper()
	manifest := pods
	for _, app := range []string{"web", "friend", "stranger"} {
		for node := 1; node <= 2; node++ {
			manifest += fmt.Sprintf(pod, app, c.name, node)
		}
	}
	c.apply(manifest)
	c.kubectl("-n", "smoke", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=120s")
}

// reaches holds that every pod reaches every other, by address, by Service and by name.
func (c cluster) reaches() {
	c.t.Helper()
	for from := 1; from <= 2; from++ {
		client := fmt.Sprintf("stranger-%d", from)
		for to := 1; to <= 2; to++ {
			server := fmt.Sprintf("web-%d", to)
			ip := c.kubectl("-n", "smoke", "get", "pod", server, "-o", "jsonpath={.status.podIP}")
			c.answers(client, "http://"+ip+":8080/", server)
		}
		service := c.kubectl("-n", "smoke", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
		c.answers(client, "http://"+service+"/", "web-")
		c.answers(client, "http://web.smoke.svc.cluster.local/", "web-")
	}
}

// answers waits for an answer: kube-proxy may learn of the pods a moment later than kubectl.
func (c cluster) answers(from, url, want string) {
	c.t.Helper()
	rigtest.Until(c.t, from+" gets an answer of "+want+" from "+url, func() bool {
		got, err := c.fetch(from, url)
		return err == nil && strings.HasPrefix(got, want)
	})
}

// enforces holds that a policy shuts out who is to be shut out, on both nodes and across, and nobody else.
func (c cluster) enforces() {
	c.t.Helper()
	c.apply(deny)
	ip := c.kubectl("-n", "smoke", "get", "pod", "web-1", "-o", "jsonpath={.status.podIP}")
	for _, node := range []string{"1", "2"} {
		rigtest.Until(c.t, "a stranger on node "+node+" is shut out", func() bool {
			said, err := c.fetch("stranger-"+node, "http://"+ip+":8080/")
			return err != nil && strings.Contains(said, "error: Get ") // its own word, not kubectl's
		})
		c.answers("friend-"+node, "http://"+ip+":8080/", "web-1")
	}
}

// theseus builds Theseus, and returns what runs it on this cluster: its standard output, and an error that has what it
// said besides.
func (c cluster) theseus() func(args ...string) ([]byte, error) {
	c.t.Helper()
	program := filepath.Join(c.t.TempDir(), "theseus")
	// as make builds it, so that it is cached
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/theseus")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	config := strings.TrimSpace(c.do("kubeconfig", "--name", c.name))
	return func(args ...string) ([]byte, error) {
		var said strings.Builder
		cmd := exec.Command(program, args...)
		cmd.Env, cmd.Stderr = append(os.Environ(), "THESEUS_KUBECONFIG="+config), &said
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("theseus %s: %w\n%s%s", strings.Join(args, " "), err, out, said.String())
		}
		return out, err
	}
}

// understands holds that Theseus finds the network, and no other, in order and of the version that runs: in order
// within the time that an agent takes which a busy machine made start again.
func (c cluster) understands(network string) {
	c.t.Helper()
	theseus, version := c.theseus(), ""
	rigtest.Until(c.t, "Theseus finds "+network+" alone, in order", func() bool {
		var err error
		if version, err = rigtest.FoundAlone(theseus, c.t.TempDir(), network); err != nil {
			c.t.Log(err)
		}
		return err == nil
	})
	images := c.kubectl("get", "daemonsets", "-A", "-o",
		"jsonpath={.items[*].spec.template.spec.containers[*].image}") + " "
	if network != "bridge" && (version == "" || !strings.Contains(images, ":"+version+" ")) {
		c.t.Errorf("of %s runs %s, and Theseus says %q", network, images, version)
	}
}

// TestNetworks: pods on two nodes reach one another on every network that a lab can start on, and
// NetworkPolicy holds where something enforces it. Theseus finds that network, and no other, in order.
func TestNetworks(t *testing.T) {
	for network, policy := range map[string]bool{"flannel": true, "calico": true, "weave": true, "bridge": false,
		"kindnet": false, "kube-router": true, "canal": true} {
		t.Run(network, func(t *testing.T) {
			if network != "flannel" && network != "calico" { // no other default test runs on them
				rigtest.Full(t, "a lab on "+network)
			}
			c := up(t, "t5", "--network", network)
			t.Cleanup(c.tell)
			if network == "weave" {
				c.weaveMeets()
			}
			c.deploy()
			c.reaches()
			if policy {
				c.enforces()
			}
			c.understands(network)
		})
	}
}

// TestOlderKubernetes: the same on Kubernetes v1.34.4, and Theseus reads that cluster. Building it takes
// some ten minutes, so it is for those who ask.
func TestOlderKubernetes(t *testing.T) {
	rigtest.Full(t, "Kubernetes v1.34.4, whose build takes ten minutes")
	const version = "v1.34.4"
	c := up(t, "t6", "--network", "flannel", "--kubernetes", version)
	if out := c.kubectl("get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"); out != version+
		" "+version {
		t.Errorf("the kubelets are %q", out)
	}
	theseus := c.theseus()
	snapshot := filepath.Join(t.TempDir(), "snapshot.yaml")
	for _, args := range [][]string{{"snapshot", "-o", snapshot}, {"check", "--from", snapshot}, {"check"}} {
		if _, err := theseus(args...); err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(snapshot); err != nil || !strings.Contains(string(text), "kubernetes: "+version+"\n") {
		t.Errorf("the snapshot does not say %s (%v)", version, err)
	}

	c.deploy()
	c.reaches()
	c.enforces()
}
