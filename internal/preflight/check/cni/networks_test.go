package cni

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// TestEveryNetwork: what checks look for on nodes names every network with a driver that leaves such things there.
func TestEveryNetwork(t *testing.T) {
	for _, driver := range drivers.All() {
		name, left := driver.Name(), driver.Residue(&cni.Installation{})
		if name == "canal" {
			name = "flannel" // whose agent is a part of it, and leaves that
		}
		if known := marks[name]; len(left.Chains)+len(left.NFTables) > 0 && len(known.chains)+len(known.tables) == 0 {
			t.Errorf("marks in traces.go lacks %s, which leaves %v", name, append(left.Chains, left.NFTables...))
		}
		if len(left.Links) > 0 && len(linksOf[name]) == 0 {
			t.Errorf("linksOf in conf.go lacks %s, which leaves %v", name, left.Links)
		}
	}
}

// TestNeverAtAll: a network without a line in seen was never run, whatever its version.
func TestNeverAtAll(t *testing.T) {
	pass := &check.Pass{Snapshot: &cluster.Snapshot{}, Change: v1alpha1.ChangeSpec{To: "calico"},
		Source: &cni.Installation{CNI: "lattice", Version: "v1.2.3"}}
	found := never(pass)
	if len(found) != 1 || !strings.Contains(found[0].Message, "never run with lattice") {
		t.Errorf("found %v", found)
	}
}
