package badinput

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// old is the configuration of a network that an image of a node may still have: a plain bridge, which sorts first.
const old = `{"cniVersion": "0.3.1", "name": "old", "plugins": [{"type": "bridge", "bridge": "old0", "isDefaultGateway": true,
	"ipam": {"type": "host-local", "ranges": [[{"subnet": "198.18.200.0/24"}]]}}]}`

const (
	putOld    = "cat >/etc/cni/net.d/05-old.conflist <<'END'\n" + old + "\nEND"
	removeOld = "rm /etc/cni/net.d/05-old.conflist; ip link delete old0 2>/dev/null; true"
)

// TestTwoNetworks puts a second network into a cluster under traffic. What is found is said, with a way out; nothing is changed on such a
// cluster; and the way out, gone by hand, leads to where a change can begin. The traffic notices nothing.
func TestTwoNetworks(t *testing.T) {
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
	s.check(t, 3, s.change, []string{"block cni/conf-present", "/etc/cni/net.d/05-old.conflist sorts before 10-flannel.conflist: new pods on this node are not on flannel",
		"block cni/half-way", "05-old.conflist on 1 nodes (" + node + "), 10-flannel.conflist on 1 nodes (" + s.NodeNames()[0] + ")",
		"move it out of /etc/cni/net.d", "two networks are installed, flannel and bridge: "}, "--from", s.look(t))
	// Who did not look at the nodes is told in the run, before anything of the target is there.
	s.run(t, 4, []string{"error: rolled-back: wait until the probe pod of " + node + " is ready: ", "has the address 198.18.200.", "which is not of 198.19.",
		"another network serves new pods of " + node, "hint: remove the cause"}, "apply", s.plan, "--yes")
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
	both := []string{"block cni/half-way", "pods are on more than one network: calico has ", "default/late", ", flannel has ",
		"removing either cuts its pods off", "block cni/leftover", "calico is installed beside flannel already: a change was begun and not finished",
		"out of /etc/cni/net.d first, on every node; then its pods, one by one"}
	s.check(t, 3, s.change, both)
	s.run(t, 3, both, s.planned()...)
	s.run(t, 3, both, "apply", s.plan, "--yes")
	s.run(t, 1, []string{"error: two networks were found: flannel and calico", "hint: theseus check"},
		s.planned("--accept", "cni/half-way=why not", "--accept", "cni/leftover=why not", "--accept", "workload/bare-pod=it is the test's")...)
	looked := s.look(t)
	s.check(t, 3, s.change, append(both, "10-calico.conflist sorts before 10-flannel.conflist: new pods on this node are not on flannel",
		"10-calico.conflist serves because it sorts first, and 10-flannel.conflist would"), "--from", looked)
	s.check(t, 0, nil, []string{"warn cni/half-way", "pods are on more than one network: calico has "}, "--from", looked, "--only", "cni/half-way")

	s.on(t, nodes[1], "mv /etc/cni/net.d/10-calico.conflist /root/") // half-way between nodes, too
	s.check(t, 3, s.change, []string{"new pods are on different networks by the node on which they start: 10-calico.conflist on 1 nodes (" + nodes[0] +
		"), 10-flannel.conflist on 1 nodes (" + nodes[1] + ")"}, "--from", s.look(t))
	serves()
	s.calm(t, "Calico installed by hand")
}

// wayOut does what the findings say: Calico's file goes, then its pods, then itself.
func (s *stage) wayOut(t *testing.T) {
	node := s.NodeNames()[0]
	s.on(t, node, "mv /etc/cni/net.d/10-calico.conflist /root/")
	s.kubectl(t, "", "delete", "pod", "late")
	s.server(t, "late", node)()
	s.kubectl(t, "", "delete", "pod", "late")
	s.kubectl(t, "", "delete", "-f", s.calico(), "--ignore-not-found", "--timeout=120s")
	s.check(t, 0, s.change, nil)
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

// calico is the file of Calico's manifest.
func (s *stage) calico() string { return filepath.Join(s.Dir, "calico.yaml") }

// calm demands that the traffic lost nothing.
func (s *stage) calm(t *testing.T, when string) {
	t.Helper()
	cost := rigtest.NothingLost(t, s.Rig, 2*time.Minute, when)
	t.Logf("%s: nothing lost of %d requests", when, cost.Sent())
}

// TestNodesInTheMiddle: nodes that reboot, are served by another network, join, and are upgraded while a change runs.
func TestNodesInTheMiddle(t *testing.T) {
	rigtest.Full(t, "nodes that reboot, join and are upgraded while a change runs")
	rig := rigtest.New(t, bin, "mid", 2, "flannel", "--max-lost", "50", "--bake", "1s")
	change, err := rig.ChangeFlags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{Rig: rig, change: change, plan: filepath.Join(rig.Dir, "plan.yaml")}
	for _, act := range []struct {
		name string
		play func(*testing.T)
	}{
		{"a reboot in the node's own step", s.reboot},
		{"traffic, and an older kubelet", s.begin},
		{"a file that nobody looked at", s.strangeFile},
		{"a node joins, and Kubernetes is upgraded", s.joinedAndUpgraded},
	} {
		if !t.Run(act.name, act.play) {
			return
		}
	}
}

// reboot: the node restarts as it is switched. All is taken back without a person.
func (s *stage) reboot(t *testing.T) {
	s.run(t, 0, nil, s.planned("-o", s.plan)...)
	p := rigtest.Start(t, s.Rig, "here", "apply", s.plan, "--yes")
	p.Until("make 10-calico.conflist the CNI configuration of " + s.NodeNames()[1])
	s.lab(t, "kill")
	s.lab(t, "start")
	p.Ends(4, "error: rolled-back: ", "hint: remove the cause, make a new plan")
	s.kubectl(t, "", "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
	s.run(t, 0, []string{"rolled-back"}, "status")
	s.check(t, 0, s.change, nil, "--from", s.look(t))
}

const before, after = "v1.34.4", "v1.36.3"

// begin gives the second node the kubelet of an older Kubernetes, which is told, and lets the clients begin.
func (s *stage) begin(t *testing.T) {
	s.older(t)
	s.check(t, 0, s.change, []string{"warn node/versions", "the kubelets of 1 nodes are " + before + " (" + s.NodeNames()[1] + ")"})
	if err := s.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// joinedAndUpgraded: while the first node's pods move, another node joins, and the second node's kubelet is upgraded. The run names both, and goes on when told.
func (s *stage) joinedAndUpgraded(t *testing.T) {
	s.run(t, 0, nil, s.planned("-o", s.plan)...)
	p := rigtest.Start(t, s.Rig, "here", "apply", s.plan, "--yes")
	p.Until("Move the pods of ")
	node := s.join(t)
	waits := "node " + node + " joined since the plan was made"
	p.Until(waits)
	s.kubelet(t, "kube", after)
	upgraded := "Kubernetes is being upgraded: the kubelet of " + s.NodeNames()[1] + " was " + before + " when this run began, and is " + after + " now"
	p.Ends(5, "error: paused: "+upgraded, "hint: `theseus resume` goes on, `theseus rollback` takes everything back")
	s.run(t, 0, []string{"paused", "because: " + upgraded, "nobody runs it"}, "status")
	p = rigtest.Start(t, s.Rig, "there", "resume")
	p.Until(waits)
	if _, err := s.InLab(t.Context(), "node", "remove", node); err != nil {
		t.Fatal(err)
	}
	p.Ends(0, "finished: done")
	s.calm(t, "a node that joined, and one that was upgraded")
}

// TestOldNetworkComesBack: to a cluster whose change is over, a node comes that has a file of the old network, which sorts first.
func TestOldNetworkComesBack(t *testing.T) {
	s := &stage{Rig: rigtest.New(t, bin, "late", 2, "calico")}
	early := s.server(t, "early", s.NodeNames()[0])
	node := s.join(t)
	s.on(t, node, putOld)
	s.server(t, "stray", node)()
	lost := "1 pods on 1 nodes have addresses of no network that was found (default/stray)"
	s.check(t, 0, nil, []string{"warn cni/half-way", lost, "theseus snapshot --nodes shows it"})
	s.check(t, 3, nil, []string{lost, "new pods are on different networks by the node on which they start: 05-old.conflist on 1 nodes (" + node + "), 10-calico.conflist on 2 nodes"},
		"--from", s.look(t))
	s.on(t, node, removeOld)
	s.kubectl(t, "", "delete", "pod", "stray")
	s.server(t, "stray", node)()
	p := rigtest.Start(t, s.Rig, "here", "check", "--from", s.look(t))
	if p.Ends(0); strings.Contains(p.Said(), "cni/half-way") {
		t.Errorf("still half-way:\n%s", p.Said())
	}
	early()
}

// join adds a node to which no pod goes by itself.
func (s *stage) join(t *testing.T) string {
	t.Helper()
	added, err := s.InLab(t.Context(), "node", "add", "--taint", "test/joins=true:NoSchedule")
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
	copied := s.command(t, "node", "exec", "--name", s.Name, s.NodeNames()[1], "--", "sh", "-c", "cat >/usr/local/bin/kube-before && chmod +x /usr/local/bin/kube-before")
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
	if out, err := s.command(t, "node", "kill", "--name", s.Name, "--component", "kubelet", node).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.kubectl(t, "", "wait", "--for=jsonpath={.status.nodeInfo.kubeletVersion}="+version, "node/"+node, "--timeout=60s")
}
