package piday

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// echoes answer probes on every node.
const echoes = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: echo, namespace: default}
spec:
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: echo
          image: theseus.dev/workload:lab
          imagePullPolicy: IfNotPresent
          args: [serve, "--udp=:8082", "--grace=0s"]
          resources: {requests: {cpu: 50m, memory: 16Mi}}
          readinessProbe: {httpGet: {path: /ready, port: 8081}, periodSeconds: 1}
`

// TestReflectorEnds is the control of TestReflectorsUpgraded. Of three nodes one reflects the routes of all. When its
// BIRD says goodbye (SIGTERM), the other two lose each other; when it is killed, which graceful restart is for, and
// when Theseus upgrades all three nodes, nothing is lost.
func TestReflectorEnds(t *testing.T) {
	rigtest.Full(t, "what the end of a reflector's BIRD costs, by SIGTERM, by SIGKILL and by Theseus; an "+
		"older Calico has to be built")
	rig := rigtest.New(t, "../../../bin", "ends", 3, network.CalicoBGP+"@v3.28.5")
	nodes := rig.NodeNames()
	reflector, others := nodes[0], nodes[1:]
	kubectl(t, rig, append(append([]string{"annotate", "node"}, others...),
		"projectcalico.org/RouteReflectorClusterID-")...)
	kubectl(t, rig, append(append([]string{"label", "node"}, others...), network.MasterLabel+"-")...)
	outside := outsideRouter(t, rig)
	if out, err := rig.Kubectl(t.Context(), strings.NewReader(echoes), "apply", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kubectl(t, rig, "rollout", "status", "daemonset/echo", "--timeout=120s")
	routed(t, rig)
	outside.learns("before")
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}

	// ends has the reflector's BIRD end by a signal, and returns what was lost of probes, of clients' requests, and of
	// the router's routes.
	ends := func(signal string) (probes map[string]lost, failed uint64, lacked map[string]int) {
		t.Helper()
		since, err := rig.Count(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lack := outside.lost()
		probes = probed(t, rig, 40*time.Second, func() {
			if out, err := rig.OnNode(t.Context(), reflector, "pkill", "-"+signal, "-x", "bird"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
		routed(t, rig)
		outside.learns(signal)
		now, err := rig.Steady(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		failed = now.Failed() - since.Failed()
		lacked, _ = lack()
		t.Logf("SIG%s to %s's BIRD: clients lost %d of %d requests; the router outside lacked routes to %v",
			signal, reflector, failed, now.Sent()-since.Sent(), lacked)
		for _, path := range slices.Sorted(maps.Keys(probes)) {
			t.Logf("  probes, %s: %s", path, probes[path])
		}
		return probes, failed, lacked
	}
	probes, failed, lacked := ends("TERM")
	for _, path := range []string{others[0] + " to " + others[1], others[1] + " to " + others[0]} {
		if probes[path].failed == 0 {
			t.Errorf("SIGTERM to a reflector's BIRD, probes from %s: %s", path, probes[path])
		}
	}
	if failed == 0 || len(lacked) == 0 {
		t.Errorf("SIGTERM to a reflector's BIRD cost clients %d requests, and the router outside routes to %v",
			failed, lacked)
	}
	probes, failed, lacked = ends("KILL")
	for path, l := range probes {
		if l.failed > 0 {
			t.Errorf("SIGKILL to a reflector's BIRD, probes from %s: %s", path, l)
		}
	}
	if failed > 0 || len(lacked) > 0 {
		t.Errorf("SIGKILL to a reflector's BIRD cost clients %d requests, and the router outside routes to %v",
			failed, lacked)
	}

	since, err := rig.Count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	never := outside.never(t)
	toNewest(t, rig).Ends(0, "finished: done")
	now, err := rig.Steady(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if failed := now.Failed() - since.Failed(); failed > 0 {
		t.Errorf("the upgrade cost clients %d requests", failed)
	}
	t.Logf("upgraded: clients lost %d of %d requests; the router outside changed %d routes",
		now.Failed()-since.Failed(), now.Sent()-since.Sent(), never())
}

// routed waits until every node has a route of BIRD's to every other one.
func routed(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	var routes string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
		whole := 0
		for _, node := range rig.NodeNames() {
			var err error
			if routes, err = rig.OnNode(t.Context(), node, "ip", "route", "show", "proto", "bird"); err != nil {
				t.Fatal(err)
			}
			if strings.Count(routes, " via ") >= rig.Nodes-1 {
				whole++
			}
		}
		if whole == rig.Nodes {
			return
		}
	}
	t.Fatalf("not every node has a route to every other one; the last one has:\n%s", routes)
}

// lost is what became of the probes of a path.
type lost struct {
	sent, failed int64
	longest      time.Duration // gap
}

func (l lost) String() string {
	return fmt.Sprintf("%d of %d lost, for %.1f s at most", l.failed, l.sent, l.longest.Seconds())
}

// probed measures, by theseus on the nodes' own network, every path from a node to the echo on another one for a time,
// in which something is done, and returns what was lost, by paths such as "a-node-1 to a-node-2".
func probed(t *testing.T, rig *scenario.Rig, long time.Duration, do func()) map[string]lost {
	t.Helper()
	echo := map[string]string{} // node, by target
	for _, field := range strings.Fields(kubectl(t, rig, "get", "pods", "-l", "app=echo", "-o",
		`jsonpath={range .items[*]}{.status.podIP}={.spec.nodeName} {end}`)) {
		address, node, _ := strings.Cut(field, "=")
		echo["udp://"+address+":8082"] = node
	}
	var group sync.WaitGroup
	var lock sync.Mutex
	paths := map[string]lost{}
	for _, node := range rig.NodeNames() {
		args := []string{"node", "exec", "--name", rig.Name, "--network", node, "--", rig.Theseus, "probe", "run", "-o",
			"json", "--for", long.String(), "--interval", "20ms"}
		for target, there := range echo {
			if there != node {
				args = append(args, "--target", target)
			}
		}
		group.Go(func() {
			text, err := exec.CommandContext(t.Context(), rig.Lab, args...).Output()
			var report struct {
				Status struct {
					Paths []struct {
						ID             string
						Sent, Answered int64
						Gaps           []struct{ Millis float64 }
						Open           *struct{ Millis float64 }
					}
				}
			}
			if err == nil {
				err = json.Unmarshal(text, &report)
			}
			if err != nil {
				t.Errorf("probes from %s: %v\n%s", node, err, text)
				return
			}
			lock.Lock()
			defer lock.Unlock()
			for _, path := range report.Status.Paths {
				l := lost{sent: path.Sent, failed: path.Sent - path.Answered}
				if path.Open != nil {
					path.Gaps = append(path.Gaps, *path.Open)
				}
				for _, gap := range path.Gaps {
					l.longest = max(l.longest, time.Duration(gap.Millis*float64(time.Millisecond)))
				}
				paths[fmt.Sprintf("%s to %s", node, echo[path.ID])] = l
			}
		})
	}
	for _, node := range rig.NodeNames() { // all have begun
		begun := 0
		for deadline := time.Now().Add(long); begun < rig.Nodes-1; time.Sleep(100 * time.Millisecond) {
			out, err := rig.OnNode(t.Context(), node, "ss", "-Hun", "dport = :8082")
			if err != nil || time.Now().After(deadline) {
				t.Errorf("%d paths of %s are measured: %v %s", begun, node, err, out)
				break
			}
			begun = strings.Count(out, "\n")
		}
	}
	do()
	group.Wait()
	if len(paths) != rig.Nodes*(rig.Nodes-1) {
		t.Fatalf("only %v were measured", paths)
	}
	return paths
}
