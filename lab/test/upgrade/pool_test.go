package upgrade

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestPool gives the pods of a cluster addresses of another IPPool, under traffic: taken back from the middle, and to
// the end. Where BIRD carries the routes the old pool goes; over VXLAN it stays for the nodes' tunnels.
func TestPool(t *testing.T) {
	rigtest.Full(t, "pods of Calico moved to another IPPool, with BIRD and over VXLAN: nine minutes each")
	for _, kind := range []string{network.CalicoBGP, "calico"} {
		t.Run(kind, func(t *testing.T) {
			rig := rigtest.New(t, bin, "pool", 2, kind) // of three, the probes of a plan alone use up two cores
			rig.WorldRate = 25
			if err := rig.Traffic(t.Context()); err != nil {
				t.Fatal(err)
			}
			change, err := rig.ChangeFlags(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			free := change[slices.Index(change, "--pod-cidr")+1]
			old, before := poolRange(t, rig, 0), pools(t, rig)
			file := filepath.Join(rig.Dir, "plan.yaml")
			write := func() {
				if _, err := rig.Run(t.Context(), "plan", "--pool", free, "--agent-image", scenario.AgentImage,
					"--waves", "1,0", "--bake", "3s", "--probe-interval", "50ms", "--max-lost",
					"3", "-o", file); err != nil {
					t.Fatal(err)
				}
			}
			write()
			run := rigtest.Start(t, rig, "here", "apply", file, "--yes")
			run.Until("evict the pods of pool-node-2")
			rigtest.Run(t, rig, "there", 0, nil, "rollback")
			run.Ends(5, "undone: Assign new pods addresses from IPPool")
			nothingLost(t, rig, "there and back from the middle")
			within(t, rig, old)
			if now := pools(t, rig); now != before {
				t.Errorf("the pools are not as they were:\n%s\nand were\n%s", now, before)
			}

			write()
			rigtest.Start(t, rig, "here", "apply", file, "--yes").Ends(0, "finished: done")
			nothingLost(t, rig, old.String()+" to "+free)
			within(t, rig, netip.MustParsePrefix(free))
			if now := pools(t, rig); strings.Contains(now, old.String()) != (kind == "calico") ||
				kind == "calico" && !strings.Contains(now, `["Tunnel"]`) {
				t.Errorf("at the end the pools are:\n%s", now)
			}
		})
	}
}

// pools are all IPPools with what they hand out to whom.
func pools(t *testing.T, rig *scenario.Rig) string {
	t.Helper()
	return kubectl(t, rig, "get", "ippools.crd.projectcalico.org", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.spec.cidr} {.spec.nodeSelector} {.spec.disabled} {.spec.allowedUses}{"\n"}{end}`)
}

func poolRange(t *testing.T, rig *scenario.Rig, i int) netip.Prefix {
	t.Helper()
	return netip.MustParsePrefix(kubectl(t, rig, "get", "ippools.crd.projectcalico.org", "-o",
		fmt.Sprintf("jsonpath={.items[%d].spec.cidr}", i)))
}

// within demands that every pod on the pod network has an address of a range.
func within(t *testing.T, rig *scenario.Rig, want netip.Prefix) {
	t.Helper()
	lines := kubectl(t, rig, "get", "pods", "-A", "--field-selector", "status.phase=Running", "-o",
		`jsonpath={range .items[*]}{.metadata.name}={.spec.hostNetwork}={.status.podIP}{"\n"}{end}`)
	for line := range strings.Lines(lines) {
		if fields := strings.Split(strings.TrimSpace(line), "="); fields[1] != "true" {
			if address, err := netip.ParseAddr(fields[2]); err != nil || !want.Contains(address) {
				t.Errorf("pod %s has %s, not an address of %s (%v)", fields[0], fields[2], want, err)
			}
		}
	}
}
