package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// The releases of Calico to which the cluster is moved, and then upgraded.
const calicoBefore, calicoAfter = "v3.30.1", "v3.31.0"

// TestGuardChanges guards changes of one cluster that others make by hand, one after another. What the guard says of
// each agrees with what the lab's own clients counted meanwhile.
func TestGuardChanges(t *testing.T) {
	rigtest.Full(t, "guards of changes by hand, compared with clients: kube-proxy's mode, a node that reboots, "+
		"flannel replaced by Calico, and an upgrade of Calico; Calico "+calicoBefore+" has to be built")
	rig := rigtest.New(t, bin, "gc", 2, "flannel@"+calicoBefore)
	for _, change := range []struct {
		name string
		make func(t *testing.T, c *clients)
	}{
		{"proxy", changesProxy}, {"reboot", reboots}, {"swap", swaps}, {"upgrade", upgrades},
	} {
		t.Run(change.name, func(t *testing.T) {
			if change.name == "upgrade" && kubectl(t, rig, "get", "crd", "-o", "name") == "" {
				t.Skip("the cluster has no Calico: run it with swap")
			}
			c := newClients(t, rig, change.name)
			defer c.end(t)
			change.make(t, c)
		})
	}
}

// fewFailed is how many requests clients may lose in a change that the guard calls good: a datagram may be lost between
// two probes.
const fewFailed = 3

// good demands that clients lost hardly a request if the guard is good.
func good(t *testing.T, code int, got report, failed uint64) {
	t.Helper()
	t.Logf("exit %d: %d probes lost, and clients lost %d requests", code, got.Totals.Lost, failed)
	if code == 0 && failed > fewFailed {
		t.Errorf("the guard is good, and clients lost %d requests", failed)
	}
}

// changesProxy: kube-proxy gets another mode on one node after another. Either the guard is good and clients lost
// hardly a request, or both saw the same.
func changesProxy(t *testing.T, c *clients) {
	config := strings.ReplaceAll(kubectl(t, c.rig, "-n", "kube-system", "get", "configmap", "kube-proxy", "-o", "yaml"),
		`mode: iptables`, `mode: nftables`)
	if !strings.Contains(config, "mode: nftables") {
		t.Fatalf("kube-proxy's mode is not in %s", config)
	}
	file := write(t, c.rig, "kube-proxy.yaml", config)
	const edit = `sed -i 's/^mode: iptables$/mode: nftables/' /etc/kubernetes/kube-proxy-config.yaml; ` +
		`grep '^mode: nftables$' /etc/kubernetes/kube-proxy-config.yaml`
	command := "kubectl apply -f " + file
	for _, node := range c.rig.NodeNames() {
		command += fmt.Sprintf("\nnode exec %s -- sh -c \"%s\"; node kill --component kube-proxy %[1]s\n"+
			"until node exec %[1]s -- nft list table ip kube-proxy >/dev/null 2>&1; do sleep 1; done",
			node, edit)
	}
	got, code := c.guarded(t, command, 0, 7)
	good(t, code, got, c.agree(t, got))
}

// reboots: a node has no power until the cluster knows it. Its paths are lost from the same moment on as the client's
// answers, and the list of what happened has it.
func reboots(t *testing.T, c *clients) {
	nodes := c.rig.NodeNames()
	off := fmt.Sprintf("node kill %[1]s\nkubectl wait --for=condition=Ready=Unknown node/%[1]s "+
		"--timeout=150s\nsleep 3; node start %[1]s\nkubectl wait --for=condition=Ready node/%[1]s --timeout=120s",
		nodes[1])
	got, _ := c.guarded(t, off, 7)
	down := got.says(t, "node "+nodes[1]+" is not Ready")
	for _, p := range c.pairs {
		if p.from != nodes[0] || p.end == "service" { // half of a Service's connections go to the node that is there
			continue
		}
		id, _ := p.path()
		gap, count := got.longest(id), c.count(t, p)
		t.Logf("%s: the guard's gap is %.0f ms from %s (open: %t), the client's %.0f ms from %s", id, gap.Millis,
			clock(gap.From), gap.Open, count.LongestGap, clock(count.LongestGapAt))
		c.begins(t, p, gap, count)
		if down.Before(gap.From) || !gap.Open && down.After(gap.to()) {
			t.Errorf("%s: the node was not Ready from %s on, and the gap is %+v", id, clock(down), gap)
		}
		if gap.Open {
			t.Errorf("%s: the node is back, and the path is lost until the end", id)
		}
	}
}

// swaps: flannel is deleted, Calico is installed, pods are created again, and the nodes are cleaned, all by kubectl.
// Pods that are not created again lose their network when the node is cleaned: the clients, and those of the guard.
func swaps(t *testing.T, c *clients) {
	flannel, err := c.rig.ManifestFile(t.Context(), "flannel")
	if err != nil {
		t.Fatal(err)
	}
	clean, err := filepath.Abs("../../internal/scenario/clean.sh")
	if err != nil {
		t.Fatal(err)
	}
	command := "kubectl delete --wait -f " + flannel + "\nkubectl apply -f " + calico(t, c.rig, calicoBefore) +
		"\nkubectl -n kube-system rollout status daemonset/calico-node --timeout=180s" +
		"\nkubectl delete pods -A --field-selector spec.hostNetwork=false -l '!theseus.dev/probe,!apart'" +
		"\nkubectl -n kube-system wait --for=condition=Ready pods --all --timeout=120s"
	for _, node := range c.rig.NodeNames() {
		command += fmt.Sprintf("\nnode exec %s -- sh -c \"$(cat %s)\"", node, clean)
	}
	got, _ := c.guarded(t, command, 7)
	if failed := c.agree(t, got, "old", "host"); failed == 0 {
		t.Error("no client lost a request")
	}
	got.says(t, "DaemonSet kube-system/calico-node")
}

// upgrades: the manifest of the next release is applied.
func upgrades(t *testing.T, c *clients) {
	got, code := c.guarded(t, "kubectl apply -f "+calico(t, c.rig, calicoAfter)+
		"\nkubectl -n kube-system rollout status daemonset/calico-node --timeout=180s"+
		"\nkubectl -n kube-system rollout status deployment/calico-kube-controllers --timeout=180s", 0, 7)
	good(t, code, got, c.agree(t, got))
	got.says(t, "DaemonSet kube-system/calico-node")
	if image := kubectl(t, c.rig, "-n", "kube-system", "get", "pods", "-l", "k8s-app=calico-node", "-o",
		"jsonpath={.items[*].spec.containers[0].image}"); strings.Count(image, ":"+calicoAfter) != 2 {
		t.Errorf("the agents are %s", image)
	}
}

// calico is a file with the manifest of a release.
func calico(t *testing.T, rig *scenario.Rig, version string) string {
	t.Helper()
	text, err := rig.Manifest(t.Context(), "calico", "--calico", version)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, rig, "calico-"+version+".yaml", text)
}

// acme is a network that nobody knows: an agent that does nothing, and on the nodes the plugin of the plain bridge
// under another name.
const acme = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: acme-net, namespace: kube-system}, spec: {selector: {matchLabels: {app: acme-net}}, template: {
	metadata: {labels: {app: acme-net}}, spec: {hostNetwork: true, terminationGracePeriodSeconds: 1, volumes: [{name: conf, hostPath: {path: /etc/cni/net.d}}],
	containers: [{name: main, image: "theseus.dev/workload:lab", args: [serve, "--health=:18084"], volumeMounts: [{name: conf, mountPath: /host/conf}]}]}}}}`

// installAcme replaces the plain bridge of a lab by a network that nobody knows.
const installAcme = `cd /etc/cni/net.d && cp /opt/cni/bin/bridge /opt/cni/bin/acme-net &&
	cp -r /var/lib/cni/networks/bridge /var/lib/cni/networks/acme &&
	sed 's/"type": "bridge"/"type": "acme-net"/; s/"name": "bridge"/"name": "acme"/' 10-bridge.conflist >05-acme.conflist &&
	rm 10-bridge.conflist`

// lose takes away a node's routes to the pods of other nodes for three seconds.
const lose = `ip route show | grep via | grep -v default >/run/routes && test -s /run/routes
while read -r route; do ip route del $route; done </run/routes; sleep 3
while read -r route; do ip route add $route; done </run/routes`

// TestGuardUnknown guards changes of a network that Theseus does not know: its agent restarts, which costs nothing, and
// a node loses its routes for three seconds.
func TestGuardUnknown(t *testing.T) {
	rigtest.Full(t, "guards of changes of a network that nobody knows, compared with clients")
	rig := rigtest.New(t, bin, "gu", 2, "bridge")
	for _, node := range rig.NodeNames() {
		if out, err := rig.OnNode(t.Context(), node, "sh", "-c", "mkdir -p /var/lib/cni/networks/bridge; "+
			installAcme); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if _, err := rig.Kubectl(t.Context(), strings.NewReader(acme), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	kubectl(t, rig, "-n", "kube-system", "rollout", "status", "daemonset/acme-net", "--timeout=60s")
	c := newClients(t, rig, "restart")
	got, _ := c.guarded(t, "kubectl -n kube-system rollout restart daemonset/acme-net\n"+
		"kubectl -n kube-system rollout status daemonset/acme-net --timeout=60s", 0)
	if failed := c.agree(t, got); failed > 0 {
		t.Errorf("the guard is good, and clients lost %d requests", failed)
	}
	got.says(t, "DaemonSet kube-system/acme-net")
	c.end(t)

	c = newClients(t, rig, "routes")
	got, _ = c.guarded(t, fmt.Sprintf("node exec %s -- sh -c '%s'", rig.NodeNames()[1], lose), 7)
	c.agree(t, got, "old", "host")
	for _, p := range c.pairs {
		id, _ := p.path()
		gap := got.longest(id)
		if p.end == "old" && (gap.Open || (gap.to().Sub(gap.From)-3*time.Second).Abs() > time.Second) {
			t.Errorf("%s: the routes were gone for 3 s, and the gap is %+v", id, gap)
		}
	}
	c.end(t)
}

// write makes a file in the rig's folder, and returns its path.
func write(t *testing.T, rig *scenario.Rig, name, text string) string {
	t.Helper()
	file := filepath.Join(rig.Dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
