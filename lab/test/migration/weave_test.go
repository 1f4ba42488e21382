package migration

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// weaveTraces finds what Weave Net and its policy agent leave on a node.
const weaveTraces = `ip -o link show | grep -E 'weave|vethwe|datapath'; ls /etc/cni/net.d | grep -E 'weave|theseus'; ls /opt/cni/bin | grep weave; ls -d /var/lib/weave 2>/dev/null;
	iptables-save | grep -v theseus-system/ | grep -E 'WEAVE|theseus'; ipset list -n | grep weave; ip route | grep weave; true`

// TestWeave: Weave Net without its fast data path is left under traffic. Preflight says what its pods believe of
// their MTU; while both networks are up, packets that fill it cross in both directions; after, nothing is left.
func TestWeave(t *testing.T) {
	rigtest.Full(t, "Weave Net to Calico: four minutes")
	rig := rigtest.New(t, bin, "wv", 2, "weave", "--bake", "1s")
	rig.Network = "weave"
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := rig.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the migration")
	rigtest.NothingOn(t, rig, "Weave Net", weaveTraces)
	mustServeCalico(t, rig, "state")
	mustHaveCrossed(t, rig, regexp.MustCompile(`/old>.*/new/udp/full-size$`))
	mustHaveCrossed(t, rig, regexp.MustCompile(`/new>.*/old/udp/full-size$`))
	rigtest.NothingLeft(t, rig, regexp.MustCompile("weave"))

	change, err := rig.ChangeFlags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, out := theseus(t, rig, "state",
		append([]string{"check", "--from", filepath.Join(rig.Dir, "snapshot.json")}, change...)...)
	mustContain(t, out, "mtu/too-big",
		"the links of pods on weave have an MTU of 65535 bytes, but the network carries only 1438 between nodes")
}

// TestAdoptWeave: the running pods of a flat network are moved to Calico, taken back when Calico carries what leaves a
// node already, and moved permanently. All of them have the addresses that they had.
func TestAdoptWeave(t *testing.T) {
	rigtest.Full(t, "running pods moved from Weave Net to Calico, back, and there again: seven minutes")
	rig := adopted(t, "wvad", 2, "weave", "")
	before := podsOf(t, rig)
	func() {
		defer tellDropped(t, rig) // also where something was lost
		mustComeBack(t, rig)
	}()

	if err := rig.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the adoption")
	mustBeSamePods(t, before, podsOf(t, rig))
	rigtest.NothingOn(t, rig, "Weave Net", weaveTraces)
	mustServeCalico(t, rig, "state")
	mustTellOfMoves(t, rig)
}

// tellDropped logs how many frames Weave Net's routers dropped, as they and the kernel count them. Every frame between
// nodes passes a router's process, and what comes while it does not run for longer than its buffers last is lost,
// whatever is done next to it.
func tellDropped(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	for _, node := range rig.NodeNames() {
		out, err := rig.OnNode(t.Context(), node, "curl", "-s", "-H", "Accept: application/json",
			"http://127.0.0.1:6784/report")
		var report struct {
			Router struct {
				CaptureStats struct{ PacketsReceived, PacketsDropped int }
			}
		}
		if err == nil {
			err = json.Unmarshal([]byte(out), &report)
		}
		// port 6783, from other routers
		dropped, socketErr := rig.OnNode(t.Context(), node, "awk", `$2 ~ /:1A7F$/ {print $NF}`, "/proc/net/udp")
		t.Logf("the router of %s: %+v frames to other nodes; %s datagrams from them dropped (%v)",
			node, report.Router.CaptureStats, strings.TrimSpace(dropped), errors.Join(err, socketErr))
	}
}

// mustHaveCrossed demands of the probes of some paths that there were some, and that all of them were answered.
func mustHaveCrossed(t *testing.T, rig *scenario.Rig, paths *regexp.Regexp) {
	t.Helper()
	var sent, answered int64
	err := filepath.WalkDir(filepath.Join(rig.Dir, "state"), func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(file) != "evidence.json" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var evidence struct {
			Results []struct {
				ID             string
				Sent, Answered int64
			}
		}
		if err := json.Unmarshal(text, &evidence); err != nil {
			return err
		}
		for _, result := range evidence.Results {
			if paths.MatchString(result.ID) {
				sent, answered = sent+result.Sent, answered+result.Answered
			}
		}
		return nil
	})
	t.Logf("%s: %d of %d probes were answered", paths, answered, sent)
	if err != nil || sent == 0 || answered < sent {
		t.Errorf("%s: %d of %d probes were answered (%v)", paths, answered, sent, err)
	}
}
