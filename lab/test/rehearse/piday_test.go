package rehearse

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestPiDay: the change that broke Reddit on Pi-Day, on a copy of such a cluster. A check blocks it. Without the
// checks, the run shows that connections between nodes end and that a pod finds no node, and the result names the
// checks. The labels are as before at the end.
func TestPiDay(t *testing.T) {
	rigtest.Full(t, "the change of Pi-Day, rehearsed")
	rig := rigtest.New(t, bin, "pd", 4, network.CalicoBGP)
	before := marks(t, rig)
	snapshot, err := filepath.Abs("piday.json")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"rehearse", "--from", snapshot, "--remove-label", network.MasterLabel, "--agent-image",
		scenario.AgentImage, "--context", context(rig)}
	rigtest.Run(t, rig, "here", 3, []string{"bgp/peer-selector-empty", "error: on the original: findings block"},
		append(args, "--dry-run")...)
	for _, topic := range []string{"bgp", "cni", "felix", "labels", "node", "workload"} {
		args = append(args, "--accept", topic+"=a rehearsal without checks")
	}
	rigtest.Run(t, rig, "here", 0, []string{"pd-node-1  loses " + network.MasterLabel}, append(args, "--dry-run")...)

	file := filepath.Join(rig.Dir, "rehearsal.json")
	rigtest.Run(t, rig, "here", 1, []string{"the change begins: remove the label " + network.MasterLabel,
		"the change is taken back", "REHEARSAL DID NOT PASS: remove the label", "the run showed a trap (traffic)"},
		append(args, "--yes", "--wait", "4m", "-o", file)...)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Passed  bool
		Labels  string
		Shown   []shown
		Traffic []struct {
			From, To, Unlike string
			Asked, Lost      int
		}
	}
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", result)
	if result.Passed || !strings.HasPrefix(result.Labels, "remove the label") {
		t.Errorf("passed: %v, %q", result.Passed, result.Labels)
	}
	for _, want := range []shown{{"traffic", "Deployment shop/db", []string{"bgp/peer-selector-empty"}},
		{"traffic", "Deployment shop/web", []string{"bgp/peer-selector-empty"}},
		{"node", "Deployment trap/pinned", []string{"labels/removed-in-use"}}} {
		if !slices.ContainsFunc(result.Shown, func(s shown) bool {
			return s.Trap == want.Trap && s.Object == want.Object && slices.Contains(s.Checks, want.Checks[0])
		}) {
			t.Errorf("the run did not show %+v", want)
		}
	}
	if after := marks(t, rig); !maps.Equal(before, after) {
		t.Errorf("nodes were %v, and are %v", before, after)
	}
}
