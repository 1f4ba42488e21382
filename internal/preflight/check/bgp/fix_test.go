package bgp

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

// TestFixes does what the findings say, command by command, and looks again: the routes must be there before
// the change and after.
func TestFixes(t *testing.T) {
	for _, name := range []string{"invalid-upgrade", "invalid-upgrade-v3", "invalid-label-removed",
		"invalid-vxlan-keeps-routes"} {
		t.Run(name, func(t *testing.T) {
			pass, _ := checktest.Load(t, filepath.Join("testdata", "peer-selector-empty", name+".yaml"))
			found := peerSelectorEmpty(pass)
			if len(found) == 0 {
				t.Fatal("nothing to fix")
			}
			for _, f := range found {
				for command := range strings.SplitSeq(f.Fix, " && ") {
					do(t, pass.Snapshot, command)
				}
			}
			after, err := whatif.Apply(pass.Snapshot, pass.Change)
			if err != nil {
				t.Fatal(err)
			}
			fixed := &check.Pass{Snapshot: pass.Snapshot, Change: pass.Change, WhatIf: after}
			for _, f := range append(peerSelectorEmpty(fixed), partition(fixed)...) {
				t.Errorf("after the fix: %s", checktest.Line(f))
			}
			if now := partition(&check.Pass{Snapshot: pass.Snapshot}); len(now) > 0 {
				t.Errorf("the fix breaks what is: %s", checktest.Line(now[0]))
			}
		})
	}
}

var (
	patchCommand = regexp.MustCompile(`^kubectl patch bgppeers\.\S+ (\S+) --type merge -p '(.*)'$`)
	labelCommand = regexp.MustCompile(`^kubectl label node (.+) (\S+)=(\S*)$`)
)

// do carries out a command that a fix is made of.
func do(t *testing.T, s *cluster.Snapshot, command string) {
	t.Helper()
	if m := patchCommand.FindStringSubmatch(command); m != nil {
		var patch struct{ Spec map[string]string }
		if err := json.Unmarshal([]byte(strings.ReplaceAll(m[2], `'\''`, `'`)), &patch); err != nil {
			t.Fatal(err)
		}
		for i := range s.Other {
			if s.Other[i].GetKind() != "BGPPeer" || s.Other[i].GetName() != m[1] {
				continue
			}
			for field, value := range patch.Spec {
				if err := unstructured.SetNestedField(s.Other[i].Object, value, "spec", field); err != nil {
					t.Fatal(err)
				}
			}
			return
		}
	} else if m := labelCommand.FindStringSubmatch(command); m != nil {
		for i := range s.Nodes {
			if strings.Contains(" "+m[1]+" ", " "+s.Nodes[i].Name+" ") {
				s.Nodes[i].Labels[m[2]] = m[3]
			}
		}
		return
	}
	t.Fatalf("cannot do: %s", command)
}
