package badinput

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

// old is the configuration of a network that an image of a node may still have: a plain bridge, which sorts first.
const old = `{"cniVersion": "0.3.1", "name": "old", "plugins": [{"type": "bridge", "bridge": "old0", "isDefaultGateway": true,
	"ipam": {"type": "host-local", "ranges": [[{"subnet": "198.18.200.0/24"}]]}}]}`

const (
	putOld    = "cat >/etc/cni/net.d/05-old.conflist <<'END'\n" + old + "\nEND"
	removeOld = "rm /etc/cni/net.d/05-old.conflist; ip link delete old0 2>/dev/null; true"
)

// TestTwoNetworks puts a second network into a cluster under traffic. What is found is said, with a way out; nothing is
// changed on such a cluster; and the way out, gone by hand, leads to where a change can begin. The traffic notices
// nothing.
func TestTwoNetworks(t *testing.T) {
	rigtest.Full(t, "a second network that somebody began to install by hand")
	rig := rigtest.New(t, bin, "two", 2, "flannel", "--max-lost", "50", "--bake", "1s")
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	change, err := rig.ChangeFlags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{Rig: rig, change: change, plan: filepath.Join(rig.Dir, "plan.yaml")}
	for _, act := range []struct {
		name string
		play func(*testing.T)
	}{
		{"somebody began by hand", s.byHand},
		{"gone back by hand", s.wayOut},
	} {
		if !t.Run(act.name, act.play) {
			return
		}
	}
}

// strangeFile: the file of another network sorts first on one node, and no pod is on it yet.
func (s *stage) strangeFile(t *testing.T) {
	node := s.NodeNames()[1]
	s.run(t, 0, nil, s.planned("-o", s.plan)...)
	s.on(t, node, putOld)
	s.check(t, 3, s.change, []string{"block cni/conf-present",
		"/etc/cni/net.d/05-old.conflist sorts before 10-flannel.conflist: new pods on this node are not on flannel",
		"block cni/half-way", "05-old.conflist on 1 node (" + node + "), 10-flannel.conflist on 1 node (" +
			s.NodeNames()[0] + ")",
		"move it out of /etc/cni/net.d", "two networks are installed, flannel and bridge: "}, "--from", s.look(t))
	// Who did not look at the nodes is told in the run, before anything of the target is there.
	s.run(t, 4, []string{"error: rolled-back: wait until the probe pod of " + node + " is ready: ",
		"has the address 198.18.200.", "which is not of 198.19.", "another network serves new pods of " + node,
		"hint: fix the cause"}, "apply", s.plan, "--yes")
	s.on(t, node, removeOld)
	s.calm(t, "a file of another network")
}

// byHand applies Calico's manifest as it is, and so every node has two networks of which Calico serves.
func (s *stage) byHand(t *testing.T) {
	s.run(t, 0, nil, s.planned("-o", s.plan)...)
	s.kubectl(t, "", "apply", "--server-side", "-f", s.calico())
	s.kubectl(t, "", "-n", "kube-system", "rollout", "status", "daemonset/calico-node", "--timeout=120s")
	nodes := s.NodeNames()
	serves := s.server(t, "late", nodes[0])
	both := []string{"block cni/half-way", "pods are on more than one network: calico has ",
		"default/late-0", ", flannel has ", "removing a network cuts off its pods",
		"block cni/leftover", "calico is already installed next to flannel: a change was begun and not finished",
		"out of /etc/cni/net.d first, on every node; then recreate its pods, one by one"}
	s.check(t, 3, s.change, both)
	s.run(t, 3, both, s.planned()...)
	s.run(t, 3, both, "apply", s.plan, "--yes")
	s.run(t, 1, []string{"error: two networks were found: flannel and calico", "hint: theseus check"},
		s.planned("--accept", "cni/half-way=why not", "--accept", "cni/leftover=why not")...)

	s.on(t, nodes[1], "mv /etc/cni/net.d/10-calico.conflist /etc/cni/") // half-way between nodes, too
	looked := s.look(t)
	s.check(t, 3, s.change,
		append(both, "10-calico.conflist sorts before 10-flannel.conflist: new pods on this node are not on flannel",
			"10-calico.conflist serves because it sorts first, and 10-flannel.conflist would",
			"which network new pods are on depends on their node: 10-calico.conflist on 1 node ("+nodes[0]+
				"), 10-flannel.conflist on 1 node ("+nodes[1]+")"),
		"--from", looked)
	s.check(t, 0, nil, []string{"warn cni/half-way", "pods are on more than one network: calico has "}, "--from",
		looked, "--only", "cni/half-way")
	serves()
	s.calm(t, "Calico installed by hand")
}

// wayOut does what the findings say: Calico's file goes, then its pods, then itself, and what it left on the nodes.
func (s *stage) wayOut(t *testing.T) {
	node := s.NodeNames()[0]
	s.on(t, node, "mv /etc/cni/net.d/10-calico.conflist /etc/cni/")
	s.kubectl(t, "", "delete", "pod", "late-0")
	s.server(t, "late", node)()
	s.check(t, 3, s.change, []string{"block cni/leftover"})
	s.kubectl(t, "", "delete", "-f", s.calico(), "--ignore-not-found", "--timeout=120s")
	s.check(t, 0, s.change, []string{"info cni/leftover", "its links and rules may still exist there too"})
	s.check(t, 3, s.change, []string{"block cni/traces", "packets to 198.19.", "are dropped on 1 node",
		"ip route delete blackhole", "warn cni/conf-present", "ip route show dev "},
		"--from", s.look(t))
	for _, node := range s.NodeNames() {
		s.on(t, node, "ip link delete vxlan.calico; ip route show type blackhole | while read _ to _; do ip "+
			"route delete blackhole $to; done")
	}
	s.run(t, 0, nil, s.planned("--from", s.look(t))...)
	s.calm(t, "Calico removed by hand")
}

// check demands an exit code of `theseus check` for a change, or none, and texts in what it prints, with what to do.
func (s *stage) check(t *testing.T, code int, change, texts []string, flags ...string) {
	t.Helper()
	if len(texts) > 0 {
		texts = append(texts, "    fix: ")
	}
	rigtest.Start(t, s.Rig, "here", slices.Concat([]string{"check"}, change, flags)...).Ends(code, texts...)
}

// on runs a script on a node.
func (s *stage) on(t *testing.T, node, script string) {
	t.Helper()
	if out, err := s.OnNode(t.Context(), node, "sh", "-c", script); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

const server = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: %[1]s}, spec: {serviceName: %[1]s, selector: {matchLabels: {app: %[1]s}}, template: {
	metadata: {labels: {app: %[1]s}}, spec: {nodeName: %[2]s, terminationGracePeriodSeconds: 0, containers: [{name: main, image: "theseus.dev/workload:lab",
	args: [serve, "--http=:8080", "--grace=0s"], readinessProbe: {httpGet: {path: /ready, port: 8081}, periodSeconds: 1}}]}}}}`

// server starts a server on a node, or waits for it to be there again, and returns what demands that it answers its
// node, and others. Its pod is NAME-0.
func (s *stage) server(t *testing.T, name, node string) func(others ...string) {
	t.Helper()
	s.kubectl(t, fmt.Sprintf(server, name, node), "apply", "-f", "-")
	for _, condition := range []string{"create", "condition=Ready"} {
		s.kubectl(t, "", "wait", "--for="+condition, "pod/"+name+"-0", "--timeout=60s")
	}
	address := s.kubectl(t, "", "get", "pod", name+"-0", "-o", "jsonpath={.status.podIP}")
	return func(others ...string) {
		t.Helper()
		// to others the way may come a moment later than the pod
		for _, from := range append([]string{node}, others...) {
			s.on(t, from, "curl -sS -m 5 --retry 5 --retry-all-errors http://"+address+":8080/")
		}
	}
}

// look takes a snapshot of the cluster and its nodes, and returns its file.
func (s *stage) look(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snapshot.json")
	s.run(t, 0, nil, "snapshot", "--nodes", "--agent-image", scenario.AgentImage, "-o", file)
	return file
}

// calico is the file of Calico's manifest.
func (s *stage) calico() string { return filepath.Join(s.Dir, "calico.yaml") }

// calm demands that the traffic lost nothing.
func (s *stage) calm(t *testing.T, when string) {
	t.Helper()
	cost := rigtest.NothingLost(t, s.Rig, 2*time.Minute, when)
	t.Logf("%s: nothing lost of %d requests", when, cost.Sent())
}

// TestNodesInTheMiddle: under traffic, nodes reboot, are served by another network, join, and are upgraded while a
// change runs. The counts of the clients begin with the first act and never start again.
func TestNodesInTheMiddle(t *testing.T) {
	rigtest.Full(t, "nodes that reboot, join and are upgraded while a change runs")
	s := middle(t, "mid", "")
	for _, act := range []struct {
		name string
		play func(*testing.T)
	}{
		{"a reboot in the node's own step", s.reboot},
		{"clients on both nodes, and an older kubelet", s.begin},
		{"a file that nobody looked at", s.strangeFile},
		{"a node joins, and Kubernetes is upgraded", s.joinedAndUpgraded},
	} {
		if !t.Run(act.name, act.play) {
			return
		}
	}
}

// TestRebootAdopted: the same reboot while running pods are adopted. Those of the other node are moved there and back,
// and go on to run.
func TestRebootAdopted(t *testing.T) {
	rigtest.Full(t, "a node that reboots while running pods are adopted")
	middle(t, "boot", "adopt").reboot(t)
}

// middle is a cluster on flannel with what asks for a change to Calico by a strategy.
func middle(t *testing.T, name, strategy string) *stage {
	t.Helper()
	rig := rigtest.New(t, bin, name, 2, "flannel", "--max-lost", "50", "--bake", "1s")
	rig.Strategy = strategy
	change, err := rig.ChangeFlags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &stage{Rig: rig, change: change, plan: filepath.Join(rig.Dir, "plan.yaml")}
}

// reboot: the node restarts as it is switched, after the other one's pods were moved. All is taken back without a
// person. The application keeps off that node: the caller a server on a node without power, from wherever, gets no
// answer, which is the reboot's doing. What runs on the other node, and is moved there and back meanwhile, must lose
// nothing; and a server on the node that reboots answers again at the end.
func (s *stage) reboot(t *testing.T) {
	t.Helper()
	nodes := s.NodeNames()
	s.kubectl(t, "", "taint", "node", nodes[1], keptOff+"=true:NoSchedule")
	s.kubectl(t, "", "-n", "kube-system", "delete", "pod", "-l", "k8s-app=kube-dns", "--field-selector",
		"spec.nodeName="+nodes[1])
	s.server(t, "guest", nodes[1])(nodes[0])
	s.clients(t)
	// or there is no room for what moves on one node
	s.kubectl(t, "", "-n", workload.Namespace, "scale", "deployment/web", "--replicas=2")
	pods, moved := "", "Move the pods of "
	if s.Strategy == "adopt" {
		pods, moved = s.others(t), "Adopt the pods of "
	}
	s.run(t, 0, nil, s.planned("-o", s.plan)...)
	p := rigtest.Start(t, s.Rig, "here", "apply", s.plan, "--yes")
	p.Until("activate 10-calico.conflist as the CNI configuration of " + nodes[1])
	s.lab(t, "kill")
	s.lab(t, "start")
	p.Ends(4, moved+nodes[0], "error: rolled-back: ", "hint: fix the cause, make a new plan")
	s.kubectl(t, "", "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
	s.run(t, 0, []string{"rolled-back"}, "status")
	s.check(t, 0, s.change, nil, "--from", s.look(t))
	s.calm(t, "a node that rebooted, on the other one")
	rigtest.NothingOn(t, s.Rig, "Calico", rigtest.CalicoTraces)
	s.server(t, "guest", nodes[1])(nodes[0])
	if now := s.others(t); pods != "" && now != pods {
		t.Errorf("the pods on %s were\n%s\nand are\n%s", nodes[0], pods, now)
	}
}

// others are the application's pods, but for those that were just scaled: identity, address, restarts.
func (s *stage) others(t *testing.T) string {
	t.Helper()
	return s.kubectl(t, "", "-n", workload.Namespace, "get", "pods", "-l", "app!=web", "-o",
		`jsonpath={range .items[*]}{.metadata.uid} {.status.podIP} {.status.containerStatuses[*].restartCount}{"\n"}{end}`)
}

// keptOff is the taint of a node that the application keeps off.
const keptOff = "test/reboots"

// clients lets them begin, or begin again on all nodes.
func (s *stage) clients(t *testing.T) {
	t.Helper()
	if err := s.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
}

const before, after = "v1.34.4", "v1.36.3"

// begin gives the second node the kubelet of an older Kubernetes, which is told, and the application both nodes: its
// clients end before its servers do.
func (s *stage) begin(t *testing.T) {
	s.kubectl(t, "", "taint", "node", s.NodeNames()[1], keptOff+"-")
	s.kubectl(t, "", "-n", workload.Namespace, "delete", "deployment", "drive", "intruder", "--cascade=foreground")
	s.kubectl(t, "", "-n", workload.Namespace, "delete", "deployment,statefulset", "--all", "--cascade=foreground")
	s.older(t)
	s.check(t, 0, s.change,
		[]string{"warn node/versions", "the kubelets of 1 node are " + before + " (" + s.NodeNames()[1] + ")"})
	s.clients(t)
}

// joinedAndUpgraded: while the first node's pods move, another node joins, and the second node's kubelet is upgraded.
// The run names both, and goes on when told.
func (s *stage) joinedAndUpgraded(t *testing.T) {
	s.run(t, 0, nil, s.planned("-o", s.plan)...)
	p := rigtest.Start(t, s.Rig, "here", "apply", s.plan, "--yes")
	p.Until("Move the pods of ")
	node := s.join(t)
	waits := "node " + node + " joined since the plan was made"
	p.Until(waits)
	s.kubelet(t, "kube", after)
	upgraded := "Kubernetes is being upgraded: the kubelet of " + s.NodeNames()[1] + " was " + before +
		" when this run began, and is " + after + " now"
	p.Ends(5, "error: paused: "+upgraded, "hint: `theseus resume` continues, `theseus rollback` undoes every step")
	s.run(t, 0, []string{"paused", "cause: " + upgraded, "no process runs it"}, "status")
	p = rigtest.Start(t, s.Rig, "there", "resume")
	p.Until(waits)
	if _, err := s.InLab(t.Context(), "node", "remove", node); err != nil {
		t.Fatal(err)
	}
	p.Ends(0, "finished: done")
	s.calm(t, "a node that joined, and one that was upgraded")
	rigtest.NothingOn(t, s.Rig, "flannel", rigtest.FlannelTraces)
	s.server(t, "guest", s.NodeNames()[1])(s.NodeNames()[0])
}

// TestOldNetworkComesBack: to a cluster that has left flannel for Calico under traffic a node comes that still has
// flannel: its agent, and so its file. Calico's agent comes there later, kept away by a quota, and its file sorts
// first. So what started before is on flannel, which no other node knows, and what starts then is on Calico. That is
// found, and the way out that is said leads to a node like all others; nobody else notices.
func TestOldNetworkComesBack(t *testing.T) {
	rigtest.Full(t, "a node that comes with the old network after a change")
	s := &stage{Rig: rigtest.New(t, bin, "late", 2, "flannel", "--bake", "1s")}
	s.clients(t)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	rigtest.NothingOn(t, s.Rig, "flannel", rigtest.FlannelTraces)

	old, flannel := s.NodeNames(), s.flannelElsewhere(t)
	s.kubectl(t, flannel, "apply", "-f", "-")
	s.kubectl(t, "", "-n", "kube-system", "create", "quota", "late", "--hard=pods=0")
	node := s.join(t)
	s.server(t, "stray", node)()
	s.kubectl(t, "", "-n", "kube-system", "delete", "quota", "late")
	// its controller tries at once, then
	s.kubectl(t, "", "-n", "kube-system", "annotate", "daemonset", "calico-node", "test/again=now")
	s.kubectl(t, "", "-n", "kube-system", "rollout", "status", "daemonset/calico-node", "--timeout=120s")
	found := []string{"block cni/leftover",
		"two networks are installed, flannel and calico: which one serves a pod depends on the node",
		"Move its file out of /etc/cni/net.d first, on every node; then recreate its pods, one by one (theseus check " +
			"--only cni/half-way names them); remove its agent last",
		"warn cni/half-way", "pods are on more than one network: calico has ",
		"flannel has 1 pod on 1 node (default/stray-0)"}
	s.check(t, 3, nil, found)
	s.check(t, 3, nil, append(found, "on 1 node ("+node+") there is more than one CNI configuration: "+
		"10-calico.conflist serves because it sorts first, and 10-flannel.conflist would"),
		"--from", s.look(t))
	s.calm(t, "a node that came with flannel")

	s.on(t, node, "mv /etc/cni/net.d/10-flannel.conflist /etc/cni/")
	s.kubectl(t, "", "delete", "pod", "stray-0")
	s.server(t, "stray", node)(old...)
	s.kubectl(t, flannel, "delete", "-f", "-", "--timeout=120s")
	s.check(t, 0, nil, []string{"flannel does not run, but its annotations (flannel.alpha.coreos.com/*) are on 1 " +
		"node: its links and rules may still exist there too", "theseus snapshot --nodes shows what is left there"})
	for _, verb := range []string{"kill", "start"} {
		if out, err := s.InLab(t.Context(), "node", verb, node); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	s.kubectl(t, "", "delete", "pod", "stray-0") // what is said of the one from before the restart may be old
	s.server(t, "stray", node)(old...)
	// its agent there may be Ready later than the pod
	s.kubectl(t, "", "-n", "kube-system", "rollout", "status", "daemonset/calico-node", "--timeout=120s")
	s.Members = append(old, node)
	rigtest.NothingOn(t, s.Rig, "flannel", rigtest.FlannelTraces)
	p := rigtest.Start(t, s.Rig, "here", "check", "--from", s.look(t))
	p.Ends(0)
	for _, found := range []string{"cni/half-way", "its rules are in the kernels"} {
		if strings.Contains(p.Said(), found) {
			t.Errorf("there still is %s:\n%s", found, p.Said())
		}
	}

	s.kubectl(t, "", "taint", "node", node, joins+"-")
	s.kubectl(t, "", "-n", workload.Namespace, "scale", "deployment/web", "--replicas=9")
	s.kubectl(t, "", "-n", workload.Namespace, "rollout", "status", "deployment/web", "--timeout=60s")
	if s.kubectl(t, "", "-n", workload.Namespace, "get", "pod", "-l", "app=web", "--field-selector",
		"spec.nodeName="+node, "-o", "name") == "" {
		t.Errorf("no server of the clients is on %s", node)
	}
	s.calm(t, "a node that came with flannel, and is on Calico")
}

// flannelElsewhere is flannel's manifest for nodes that are not in the lab yet.
func (s *stage) flannelElsewhere(t *testing.T) string {
	t.Helper()
	if _, err := s.FlannelFlags(t.Context()); err != nil { // writes the manifest
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(s.Dir, "flannel-alone.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const everywhere = "- key: kubernetes.io/os\n                operator: In\n                values:\n" +
		"                - linux"
	if !strings.Contains(string(text), everywhere) {
		t.Fatalf("flannel's manifest chooses its nodes otherwise:\n%s", text)
	}
	return strings.Replace(string(text), everywhere, "- {key: kubernetes.io/hostname, operator: NotIn, values: ["+
		strings.Join(s.NodeNames(), ", ")+"]}", 1)
}

// joins is the taint of a node that comes.
const joins = "test/joins"

// join adds a node to which no pod goes by itself.
func (s *stage) join(t *testing.T) string {
	t.Helper()
	added, err := s.InLab(t.Context(), "node", "add", "--taint", joins+"=true:NoSchedule")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(added)
}

// older gives the second node the kubelet of an older Kubernetes.
func (s *stage) older(t *testing.T) {
	t.Helper()
	path, err := rigtest.Program(build.Kube(before))
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	copied := s.command(t, "node", "exec", "--name", s.Name, s.NodeNames()[1], "--", "sh", "-c",
		"cat >/usr/local/bin/kube-before && chmod +x /usr/local/bin/kube-before")
	copied.Stdin = program
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.kubelet(t, "kube-before", before)
}

// kubelet lets another program be the second node's kubelet, and waits until the cluster knows.
func (s *stage) kubelet(t *testing.T, program, version string) {
	t.Helper()
	node := s.NodeNames()[1]
	s.on(t, node, "ln -sfn "+program+" /usr/local/bin/kubelet")
	if out, err := s.command(t, "node", "kill", "--name", s.Name, "--component", "kubelet",
		node).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.kubectl(t, "", "wait", "--for=jsonpath={.status.nodeInfo.kubeletVersion}="+version, "node/"+node, "--timeout=60s")
}

const acme = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: acme-net, namespace: kube-system}, spec: {selector: {matchLabels: {app: acme-net}}, template: {
	metadata: {labels: {app: acme-net}}, spec: {hostNetwork: true, volumes: [{name: conf, hostPath: {path: /etc/cni/net.d}}],
	containers: [{name: main, image: "theseus.dev/workload:lab", args: [serve]}]}}}}`

// TestUnknownNetwork lets a network serve that nobody knows: its own agent, its own file, and a plugin of its own name,
// which is the plain bridge's. Pods on it, and their clients, notice neither the looks at it nor the refusals.
func TestUnknownNetwork(t *testing.T) {
	rigtest.Full(t, "a network that nobody knows")
	rig := rigtest.New(t, bin, "odd", 1, "bridge")
	change, err := rig.ChangeFlags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{Rig: rig, change: change}
	s.on(t, s.NodeNames()[0],
		`cd /etc/cni/net.d && cp /opt/cni/bin/bridge /opt/cni/bin/acme-net && cp -r /var/lib/cni/networks/bridge /var/lib/cni/networks/acme &&
		sed 's/"type": "bridge"/"type": "acme-net"/; s/"name": "bridge"/"name": "acme"/' 10-bridge.conflist >05-acme.conflist && rm 10-bridge.conflist`)
	s.kubectl(t, acme, "apply", "-f", "-")
	s.clients(t)
	agent := "no network that Theseus changes is in this cluster, but DaemonSet kube-system/acme-net writes to the " +
		"folder of CNI configurations"
	s.check(t, 0, nil, []string{"warn cni/unknown", agent, "look at the nodes too"})
	refused := strings.Replace(agent, "no network that Theseus changes is in this cluster, but",
		"Theseus cannot change the network of this cluster, and found only", 1)
	s.run(t, 1, []string{"error: " + refused, "Theseus changes only networks that it knows"}, s.planned()...)
	looked := s.look(t)
	file := `05-acme.conflist (network "acme", plugin acme-net) serves new pods on 1 of 1 nodes`
	s.run(t, 1, []string{"error: " + refused + "; " + file, "Theseus changes only networks that it knows",
		"docs/strategies/mirror.md"}, s.planned("--from", looked)...)
	s.run(t, 1, []string{"error: " + refused + "; " + file},
		s.planned("--from", looked, "--accept", "cni/unknown=it will do")...)
	s.calm(t, "a network that nobody knows")
	s.untouched(t)
}
