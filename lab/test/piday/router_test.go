package piday

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// router is a BIRD outside of the cluster, on the fabric that all nodes are plugged into: every node tells it its routes.
type router struct {
	t   *testing.T
	rig *scenario.Rig
}

const (
	routerAddress = "198.18.0.1" // of the fabric
	routerAS      = 64999
	unpackedBIRD  = "/usr/local/lib/theseus-lab/bird/usr/sbin/"
)

// outsideRouter starts one, which ends with the lab, and lets the cluster know of it.
func outsideRouter(t *testing.T, rig *scenario.Rig) router {
	t.Helper()
	var config strings.Builder
	fmt.Fprintf(&config, "router id %s;\nprotocol device {}\n", routerAddress)
	for i, address := range strings.Fields(kubectl(t, rig, "get", "nodes", "-o", `jsonpath={.items[*].status.addresses[?(@.type=="InternalIP")].address}`)) {
		fmt.Fprintf(&config, "protocol bgp node%d { local as %d; neighbor %s as 64512; import all; export none; }\n", i+1, routerAS, address)
	}
	file := filepath.Join(rig.Dir, "router.conf")
	if err := os.WriteFile(file, []byte(config.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	r := router{t, rig}
	r.run("bird", "-c", file, "-s", r.socket())
	peer := fmt.Sprintf(`{"apiVersion": "crd.projectcalico.org/v1", "kind": "BGPPeer", "metadata": {"name": "outside"}, "spec": {"peerIP": %q, "asNumber": %d}}`, routerAddress, routerAS)
	if out, err := rig.Kubectl(t.Context(), strings.NewReader(peer), "apply", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r
}

func (r router) socket() string { return filepath.Join(r.rig.Dir, "router.ctl") }

// run runs a program of BIRD on the fabric.
func (r router) run(program string, args ...string) string {
	r.t.Helper()
	args = append([]string{"exec", "--name", r.rig.Name, "--", unpackedBIRD + program}, args...)
	out, err := exec.CommandContext(r.t.Context(), r.rig.Lab, args...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// never looks, until the function that it returns is called, whether the router has all routes that it has now. That function
// fails the test for those that it lacked once, and returns how often was looked.
func (r router) never(t *testing.T) func() int {
	t.Helper()
	blocks := r.blocks()
	ctx, cancel := context.WithCancel(t.Context())
	done, looks, lacked := make(chan struct{}), 0, map[string]int{}
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			out, err := exec.CommandContext(ctx, r.rig.Lab, "exec", "--name", r.rig.Name, "--", unpackedBIRD+"birdc", "-s", r.socket(), "show", "route").Output()
			if err != nil {
				continue
			}
			looks++
			for _, block := range blocks {
				if !strings.Contains(string(out), block) {
					lacked[block]++
				}
			}
		}
	}()
	return func() int {
		t.Helper()
		cancel()
		<-done
		if len(lacked) > 0 || looks < 10 {
			t.Errorf("of %d looks at the router outside, blocks lacked a route in: %v", looks, lacked)
		}
		return looks
	}
}

// blocks are those of addresses that nodes have.
func (r router) blocks() []string {
	return strings.Fields(kubectl(r.t, r.rig, "get", "blockaffinities.crd.projectcalico.org", "-o", "jsonpath={.items[*].spec.cidr}"))
}

// learns waits until the router has a route to every block of addresses that a node has, by that node.
func (r router) learns(when string) {
	r.t.Helper()
	var missing []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
		routes := r.run("birdc", "-s", r.socket(), "show", "route")
		missing = missing[:0]
		blocks := r.blocks()
		for _, block := range blocks {
			if !strings.Contains(routes, block) {
				missing = append(missing, block)
			}
		}
		if len(missing) == 0 && len(blocks) >= len(r.rig.NodeNames()) {
			r.t.Logf("%s: the router outside has routes to %d blocks; its sessions:\n%s", when, len(blocks), r.run("birdc", "-s", r.socket(), "show", "protocols"))
			return
		}
	}
	r.t.Errorf("%s: the router outside has no route to %v:\n%s", when, missing, r.run("birdc", "-s", r.socket(), "show", "protocols", "all"))
}
