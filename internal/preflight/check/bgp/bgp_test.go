package bgp

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestPeerSelectorEmpty(t *testing.T) { checktest.Run(t, PeerSelectorEmpty()) }
func TestPartition(t *testing.T)         { checktest.Run(t, Partition()) }
func TestSingleReflector(t *testing.T)   { checktest.Run(t, SingleReflector()) }
func TestClusterID(t *testing.T)         { checktest.Run(t, ClusterID()) }
func TestNotStarted(t *testing.T)        { checktest.Run(t, NotStarted()) }
func TestSessionsReset(t *testing.T)     { checktest.Run(t, SessionsReset()) }
func TestSessionsDown(t *testing.T)      { checktest.Run(t, SessionsDown()) }

// TestTooManyPeerings holds that a graph which is too large to be made is not taken for one without faults.
func TestTooManyPeerings(t *testing.T) {
	s := clustertest.Reflectors(2100)
	for i := range s.Other {
		if s.Other[i].GetName() == "nodes" {
			s.Other[i].Object["spec"] = map[string]any{"nodeSelector": "all()", "peerSelector": "all()"}
		}
	}
	change := v1alpha1.ChangeSpec{KubernetesTo: "v1.24.0"}
	after, err := whatif.Apply(s, change)
	if err != nil {
		t.Fatal(err)
	}
	pass := &check.Pass{Snapshot: s, Change: change, WhatIf: after}
	for _, c := range []check.Check{Partition(), SingleReflector(), ClusterID(), SessionsDown()} {
		if why := c.Missing(pass); !strings.Contains(why, "too many to be modelled") {
			t.Errorf("%s: not checked because %q", c.ID, why)
		}
	}
	found := PeerSelectorEmpty().Run(pass)
	if len(found) != 1 || found[0].Severity != finding.Block ||
		!strings.Contains(found[0].Message, "is unknown: the BGPPeers make more than") {
		t.Errorf("a selector that the upgrade empties: %+v", found)
	}
}
