package piday

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// router is GoBGP outside of the cluster, on the fabric that all nodes are plugged into: every node tells it its
// routes. It shares no line with BIRD, and helps a neighbour that restarts gracefully.
type router struct {
	t     *testing.T
	rig   *scenario.Rig
	gobgp string // program that asks it
	marks int    // routes of its own
}

const (
	routerAddress = "198.18.0.1" // of the fabric
	routerAS      = 64999
)

// outsideRouter starts one, which ends with the lab, and lets the cluster know of it.
func outsideRouter(t *testing.T, rig *scenario.Rig) *router {
	t.Helper()
	var config strings.Builder
	fmt.Fprintf(&config, "[global.config]\nas = %d\nrouter-id = %q\n", routerAS, routerAddress)
	config.WriteString("[global.apply-policy.config]\ndefault-export-policy = \"reject-route\"\n")
	for _, address := range nodeAddresses(t, rig) {
		fmt.Fprintf(&config, "[[neighbors]]\n[neighbors.config]\nneighbor-address = %q\npeer-as = 64512\n"+
			"[neighbors.graceful-restart.config]\nenabled = true\n", address)
	}
	r := &router{t: t, rig: rig}
	if err := os.WriteFile(r.file("conf"), []byte(config.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	gobgpd, err := rigtest.Program("gobgpd")
	if err == nil {
		r.gobgp, err = rigtest.Program("gobgp")
	}
	if err != nil {
		t.Fatal(err)
	}
	r.run("sh", "-c", `"$0" "$@" >`+r.file("log")+` 2>&1 &`, gobgpd, "-f", r.file("conf"), "--api-hosts",
		"unix://"+r.file("ctl"), "--pprof-disable")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err := os.Stat(r.file("ctl")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(r.file("log"))
			t.Fatalf("the router outside does not start:\n%s", log)
		}
	}
	r.run("sh", "-c", `"$0" "$@" >`+r.file("changes")+` 2>&1 &`, r.gobgp, r.target(), "monitor",
		"--current", "global", "rib")
	peer := fmt.Sprintf(
		`{"apiVersion": "crd.projectcalico.org/v1", "kind": "BGPPeer", "metadata": {"name": "outside"}, "spec": {"peerIP": %q, "asNumber": %d}}`,
		routerAddress, routerAS)
	if out, err := rig.Kubectl(t.Context(), strings.NewReader(peer), "apply", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r
}

// nodeAddresses are those that nodes have on the fabric, by their names.
func nodeAddresses(t *testing.T, rig *scenario.Rig) map[string]string {
	t.Helper()
	addresses := map[string]string{}
	for _, field := range strings.Fields(kubectl(t, rig, "get", "nodes", "-o",
		`jsonpath={range .items[*]}{.metadata.name}={.status.addresses[?(@.type=="InternalIP")].address} {end}`)) {
		name, address, _ := strings.Cut(field, "=")
		addresses[name] = address
	}
	return addresses
}

func (r *router) file(end string) string { return filepath.Join(r.rig.Dir, "router."+end) }

func (r *router) target() string { return "--target=unix://" + r.file("ctl") }

// run runs a program on the fabric.
func (r *router) run(program string, args ...string) string {
	r.t.Helper()
	args = append([]string{"exec", "--name", r.rig.Name, "--", program}, args...)
	out, err := exec.CommandContext(r.t.Context(), r.rig.Lab, args...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// ask asks the router.
func (r *router) ask(args ...string) string {
	r.t.Helper()
	return r.run(r.gobgp, append([]string{r.target()}, args...)...)
}

// changes are all lines by now of what the router tells when its best route to somewhere becomes another one, or goes.
// That it still tells is shown by a route that it is given for that.
func (r *router) changes() []string {
	r.t.Helper()
	r.marks++
	mark := fmt.Sprintf("192.0.2.%d/32", r.marks)
	r.ask("global", "rib", "add", mark)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		text, err := os.ReadFile(r.file("changes"))
		if err != nil {
			r.t.Fatal(err)
		}
		if strings.Contains(string(text), "[ROUTE] "+mark+" ") {
			return strings.Split(strings.TrimSpace(string(text)), "\n")
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the router outside does not tell of its routes any more:\n%s", text)
		}
	}
}

// lost watches, until the function that it returns is called, the blocks that the router has routes to now. That
// function returns which of them had no route for a moment, each as often as that was, and how often the router's best
// route to one changed.
func (r *router) lost() func() (lacked map[string]int, changed int) {
	r.t.Helper()
	blocks, before := r.blocks(), len(r.changes())
	return func() (map[string]int, int) {
		r.t.Helper()
		lacked, changed := map[string]int{}, 0
		for _, line := range r.changes()[before:] {
			fields := strings.Fields(line) // TIME [ROUTE] PREFIX via ADDRESS ...
			if len(fields) < 5 || blocks[fields[2]] == "" {
				continue
			}
			changed++
			if fields[1] == "[DELROUTE]" {
				lacked[fields[2]]++
			}
		}
		return lacked, changed
	}
}

// never fails the test, when the function that it returns is called, if the router lacked a route for a moment since.
// That function returns how often a best route changed.
func (r *router) never(t *testing.T) func() int {
	t.Helper()
	lost := r.lost()
	return func() int {
		t.Helper()
		lacked, changed := lost()
		if len(lacked) > 0 {
			t.Errorf("the router outside had no route to blocks, so many times: %v", lacked)
		}
		return changed
	}
}

// blocks are those of addresses that nodes have, with the address of the node.
func (r *router) blocks() map[string]string {
	r.t.Helper()
	nodes, blocks := nodeAddresses(r.t, r.rig), map[string]string{}
	for _, field := range strings.Fields(kubectl(r.t, r.rig, "get", "blockaffinities.crd.projectcalico.org",
		"-o", `jsonpath={range .items[*]}{.spec.cidr}={.spec.node} {end}`)) {
		block, node, _ := strings.Cut(field, "=")
		blocks[block] = nodes[node]
	}
	return blocks
}

// learns waits until the router has a route to every block of addresses that a node has, by that node.
func (r *router) learns(when string) {
	r.t.Helper()
	var missing map[string]string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
		blocks := r.blocks()
		missing = maps.Clone(blocks)
		for line := range strings.Lines(r.ask("global", "rib")) {
			fields := strings.Fields(line) // *> PREFIX ADDRESS ...
			if len(fields) > 2 && missing[fields[1]] == fields[2] {
				delete(missing, fields[1])
			}
		}
		if len(missing) == 0 && len(blocks) >= len(r.rig.NodeNames()) {
			r.t.Logf("%s: the router outside has routes to %d blocks, each by its node; its sessions:\n%s",
				when, len(blocks), r.ask("neighbor"))
			return
		}
	}
	r.t.Errorf("%s: the router outside has no route to %v:\n%s\n%s",
		when, missing, r.ask("global", "rib"), r.ask("neighbor"))
}
