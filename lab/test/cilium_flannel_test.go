package test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/workload/knock"
)

// TestCiliumNextToFlannel holds what docs/explanation/cilium-next-to-flannel.md says, without Theseus, which does not
// plan that change: with policy enforced throughout, pods of both networks reach each other exactly if policy allows
// it, by TCP and UDP, on one node and across. Without the endpoints of flannel's pods, TCP between nodes fails. In the
// end no program of Cilium is left in the kernel, while the nodes run on.
func TestCiliumNextToFlannel(t *testing.T) {
	rigtest.Full(t, "Cilium next to flannel, by hand: two minutes, and Cilium's build")
	loaded := rigtest.InKernel(t)
	c := up(t, "t9", "--network", "flannel")
	t.Cleanup(c.tellCilium)
	c.loadCilium()
	flannelRange, ciliumRange := c.ranges()

	c.kubectl("create", "namespace", "smoke")
	c.doors("f")
	manifest := c.do("manifest", "cilium", "--name", c.name, "--set", "tunnelPort=8473", "--set",
		"cni.exclusive=false", "--set", "MTU=1500", "--set", "operator.unmanagedPodWatcher.restart=false",
		"--set", "operator.setNodeTaints=false")
	c.apply(regexp.MustCompile(`( +)write-cni-conf-when-ready: .*`).ReplaceAllString(manifest,
		"${1}write-cni-conf-when-ready: /host/etc/cni/net.d/05-cilium.conflist.staged\n"+
			"${1}prepend-iptables-chains: \"false\"\n${1}enable-stale-cilium-endpoint-cleanup: \"false\""))
	c.onNodes(fmt.Sprintf("iptables -w -t nat -I POSTROUTING -s %[1]s -d %[2]s -j ACCEPT; "+
		"iptables -w -t nat -I POSTROUTING -s %[2]s -d %[1]s -j ACCEPT", flannelRange, ciliumRange))
	c.kubectl("-n", "kube-system", "rollout", "status", "daemonset/cilium", "--timeout=150s")
	c.onNodes("cp /etc/cni/net.d/05-cilium.conflist.staged /etc/cni/net.d/05-cilium.conflist")
	c.applyAll(identity(oddIdentity, map[string]string{"app": "stranger", "network": "c"}))
	c.doors("c")
	ids := c.kubectl("-n", "smoke", "get", "ciliumendpoints", "c-stranger-1", "c-stranger-2",
		"-o", "jsonpath={.items[*].status.identity.id}")
	if ids != fmt.Sprintf("%[1]d %[1]d", oddIdentity) {
		t.Errorf("Cilium's strangers have the identities %s", ids)
	}

	c.opens("without endpoints", func(from, to door, protocol string) bool {
		return protocol == "UDP" || from.network == to.network || from.node == to.node
	})
	c.introduce()
	c.apply(deny)
	c.onNodes("iptables -w -t mangle -I FORWARD -m mark --mark 0xf00/0xf00 -j MARK --set-xmark 0x0/0x30000; " +
		"iptables -w -t mangle -A OUTPUT -m mark ! --mark 0xd00/0xf00 -m mark ! --mark 0xe00/0xf00 -m " +
		"mark ! --mark 0x400/0xf00 -m mark ! --mark 0xa00/0xe00 -m mark ! --mark 0x800/0xe00 -j " +
		"MARK --set-xmark 0xc00/0xf00")
	friends := func(from, _ door, _ string) bool { return from.app == "friend" }
	c.opens("with endpoints and a policy", friends)
	c.kubectl("-n", "kube-system", "rollout", "restart", "daemonset/cilium")
	c.kubectl("-n", "kube-system", "rollout", "status", "daemonset/cilium", "--timeout=150s")
	c.opens("after all agents have restarted", friends)

	if len(rigtest.NewInKernel(t, loaded)) == 0 {
		t.Error("a running Cilium shows no new program or map: the comparison is blind")
	}
	c.kubectl("-n", "smoke", "delete", "pods", "-l", "network=c")
	c.kubectl("-n", "kube-system", "delete", "daemonset/cilium", "deployment/cilium-operator")
	c.kubectl("-n", "kube-system", "wait", "--for=delete", "pod", "-l", "k8s-app=cilium", "--timeout=60s")
	c.onNodes("ip link del cilium_vxlan; ip link del cilium_host; rm -rf /sys/fs/bpf/cilium " +
		"/sys/fs/bpf/tc/globals/cilium_*; umount /run/cilium/cgroupv2; rm -rf /run/cilium; rm " +
		"/etc/cni/net.d/05-cilium.* /opt/cni/bin/cilium-cni")
	rigtest.Until(t, "no program, map or link of Cilium is in the kernel", func() bool {
		return len(rigtest.NewInKernel(t, loaded)) == 0
	})
	c.opens("without Cilium", friends)
}

// loadCilium gives the nodes Cilium's images, which nodes of flannel do not have.
func (c cluster) loadCilium() {
	c.t.Helper()
	for _, file := range rigtest.ImagesOf(c.t, "../..", "cilium") {
		c.do("image", "load", "--name", c.name, file)
	}
}

// ranges are those of flannel's pods and of Cilium's.
func (c cluster) ranges() (flannel, cilium string) {
	c.t.Helper()
	var net struct{ Network string }
	conf := c.kubectl("-n", "kube-flannel", "get", "configmap", "kube-flannel-cfg", "-o",
		`jsonpath={.data.net-conf\.json}`)
	if err := json.Unmarshal([]byte(conf), &net); err != nil {
		c.t.Fatal(err)
	}
	found := regexp.MustCompile(`cluster-pool-ipv4-cidr: "(.*)"`).FindStringSubmatch(c.do("manifest",
		"cilium", "--name", c.name))
	if net.Network == "" || found == nil {
		c.t.Fatalf("the ranges are %q and %q", net.Network, found)
	}
	return net.Network, found[1]
}

// onNodes runs a shell's line on both nodes.
func (c cluster) onNodes(line string) {
	c.t.Helper()
	for _, node := range []string{"1", "2"} {
		c.do("node", "exec", "--name", c.name, node, "--", "sh", "-ec", line)
	}
}

// doors starts the pods of a network, which answer on a port by TCP and UDP, on both nodes.
func (c cluster) doors(network string) {
	c.t.Helper()
	manifest := ""
	for node := 1; node <= 2; node++ {
		for _, app := range []string{"web", "friend", "stranger"} {
			manifest += fmt.Sprintf("---\napiVersion: v1\nkind: Pod\n"+
				"metadata: {name: %[1]s-%[2]s-%[3]d, namespace: smoke, labels: {app: %[2]s, network: %[1]s}}\n"+
				"spec:\n  nodeName: %[4]s-node-%[3]d\n  terminationGracePeriodSeconds: 0\n"+
				"  containers:\n    - name: main\n"+
				"      image: theseus.dev/workload:lab\n      args: [open, --tcp=9001, --udp=9001]\n"+
				"      readinessProbe: {tcpSocket: {port: 9001}, periodSeconds: 1}\n", network, app, node, c.name)
		}
	}
	c.apply(manifest)
	c.kubectl("-n", "smoke", "wait", "--for=condition=Ready", "pod", "-l", "network="+network, "--timeout=120s")
}

// door is a pod of doors.
type door struct {
	name, app, network, node, address string
}

// podList is what is read of pods.
type podList struct {
	Items []struct {
		Metadata struct {
			Name, Namespace, UID string
			Labels               map[string]string
		}
		Spec   struct{ NodeName string }
		Status struct{ PodIP, HostIP string }
	}
}

func (c cluster) pods(args ...string) podList {
	c.t.Helper()
	var list podList
	if err := json.Unmarshal([]byte(
		c.kubectl(append([]string{"-n", "smoke", "get", "pods", "-o", "json"}, args...)...)), &list); err != nil {
		c.t.Fatal(err)
	}
	return list
}

// opens waits until the doors that open to each client are exactly those that should, and all pods are ready.
func (c cluster) opens(when string, should func(from, to door, protocol string) bool) {
	c.t.Helper()
	var servers, clients []door
	for _, p := range c.pods().Items {
		d := door{p.Metadata.Name, p.Metadata.Labels["app"], p.Metadata.Labels["network"],
			p.Spec.NodeName, p.Status.PodIP}
		if d.app == "web" {
			servers = append(servers, d)
		} else {
			clients = append(clients, d)
		}
	}
	var wrong []string
	defer func() {
		if c.t.Failed() {
			c.t.Logf("%s, other than it should be:\n%s", when, strings.Join(wrong, "\n"))
		}
	}()
	rigtest.Until(c.t, when+", the doors that should open do, and no others", func() bool {
		wrong = nil
		var mu sync.Mutex
		var group sync.WaitGroup
		for _, from := range clients {
			group.Go(func() {
				found := c.differs(from, servers, should)
				mu.Lock()
				defer mu.Unlock()
				wrong = append(wrong, found...)
			})
		}
		group.Wait()
		slices.Sort(wrong)
		return len(wrong) == 0
	})
	c.kubectl("-n", "smoke", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=30s")
	c.t.Logf("%s: %d clients, %d servers, TCP and UDP: all as it should be", when, len(clients), len(servers))
}

// differs lists what a client finds open or shut against what should be.
func (c cluster) differs(from door, servers []door, should func(from, to door, protocol string) bool) []string {
	var targets []knock.Target
	for _, to := range servers {
		for _, protocol := range []string{"TCP", "UDP"} {
			targets = append(targets, knock.Target{Protocol: protocol, Address: to.address + ":9001"})
		}
	}
	input, err := json.Marshal(targets)
	if err != nil {
		return []string{err.Error()}
	}
	cmd := exec.Command(c.program, "--state", c.state, "--name", c.name,
		"kubectl", "-n", "smoke", "exec", "-i", from.name, "--", "/workload", "knock")
	cmd.Stdin = strings.NewReader(string(input))
	out, err := cmd.Output()
	var opened []bool
	if err == nil {
		err = json.Unmarshal(out, &opened)
	}
	if err != nil || len(opened) != len(targets) {
		return []string{fmt.Sprintf("%s: %v: %s", from.name, err, out)}
	}
	var wrong []string
	for i, to := range servers {
		for j, protocol := range []string{"TCP", "UDP"} {
			if open := opened[2*i+j]; open != should(from, to, protocol) {
				wrong = append(wrong, fmt.Sprintf("%s -> %s %s: open %v", from.name, to.name, protocol, open))
			}
		}
	}
	return wrong
}

// oddIdentity is the one of Cilium's strangers. Cilium marks their packets with it, and kube-router takes an odd one
// for its own word that policy allows them.
const oddIdentity = 30101

// labelsOf are the labels by which Cilium identifies pods of the tests.
func labelsOf(own map[string]string) map[string]string {
	labels := map[string]string{
		"k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name": "smoke",
		"k8s:io.cilium.k8s.policy.cluster":                               "default",
		"k8s:io.cilium.k8s.policy.serviceaccount":                        "default",
		"k8s:io.kubernetes.pod.namespace":                                "smoke",
	}
	for key, value := range own {
		labels["k8s:"+key] = value
	}
	return labels
}

// identity is the CiliumIdentity of pods with these labels.
func identity(id int, own map[string]string) map[string]any {
	return map[string]any{"apiVersion": "cilium.io/v2", "kind": "CiliumIdentity", "security-labels": labelsOf(own),
		"metadata": map[string]any{"name": fmt.Sprint(id),
			"labels": map[string]string{"io.kubernetes.pod.namespace": "smoke"}}}
}

// introduce makes flannel's pods known to Cilium: an identity for each set of labels, and an endpoint for each pod.
func (c cluster) introduce() {
	c.t.Helper()
	identities := map[string]int{}
	var objects []any
	for _, p := range c.pods("-l", "network=f").Items {
		app := p.Metadata.Labels["app"]
		if identities[app] == 0 {
			identities[app] = 30001 + len(identities)
			objects = append(objects, identity(identities[app], p.Metadata.Labels))
		}
		var names []string
		for key, value := range labelsOf(p.Metadata.Labels) {
			names = append(names, key+"="+value)
		}
		slices.Sort(names)
		objects = append(objects, map[string]any{"apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint",
			"metadata": map[string]any{"name": p.Metadata.Name, "namespace": p.Metadata.Namespace,
				"ownerReferences": []any{map[string]any{
					"apiVersion": "v1", "kind": "Pod", "name": p.Metadata.Name, "uid": p.Metadata.UID}}},
			"status": map[string]any{"id": 0, "state": "ready",
				"identity": map[string]any{"id": identities[app], "labels": names},
				"networking": map[string]any{"addressing": []any{map[string]any{"ipv4": p.Status.PodIP}},
					"node": p.Status.HostIP}}})
	}
	c.applyAll(objects...)
}

// applyAll applies objects.
func (c cluster) applyAll(objects ...any) {
	c.t.Helper()
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		c.t.Fatal(err)
	}
	c.apply(string(list))
}
