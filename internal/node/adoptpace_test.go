package node

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestAdoptPace measures how long eight pods take, and their gaps, with one to eight of them at a time, as far as
// GOMAXPROCS allows it: THESEUS_GAPS is how many rounds there and back. In the second part, the plugin takes about as
// long as Calico's: it waits for 0.1 s, as for an API server, and computes.
func TestAdoptPace(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("THESEUS_GAPS"))
	if err != nil {
		t.Skip("NOT MEASURED: moves side by side; THESEUS_GAPS=20 does so for 20 rounds there and back")
	}
	if !alone(t) {
		return
	}
	w := newSite(t)
	for i := range 8 {
		w.pod(fmt.Sprintf("p%d", i), bridgeList, nil)
	}
	for _, plugin := range []string{"as it is", "as long as Calico's"} {
		if plugin != "as it is" {
			defer w.plugin("ptp", `sleep 0.1; i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; `+
				`exec /opt/cni/bin/ptp.real`)()
		}
		for _, atOnce := range []int{1, 2, 4, 8} {
			if atOnce > runtime.GOMAXPROCS(0) {
				continue
			}
			var longest, atFlip, control []time.Duration
			var took time.Duration
			sent, lost, unmeasured := 0, 0, 0
			for range rounds {
				for _, way := range []step.AdoptArgs{forth, back} {
					way.Parallel = atOnce
					began := time.Now()
					answer := do(t, w.Node, step.VerbAdopt, way)
					if way.To.Strict {
						took += time.Since(began)
					}
					for _, pod := range outcomes(t, answer) {
						gap := pod.Gap
						if gap == nil { // the machine was too busy for an answer
							unmeasured++
							continue
						}
						sent, lost = sent+gap.Sent, lost+gap.Lost
						longest, atFlip, control = append(longest, time.Duration(gap.Longest)),
							append(atFlip, time.Duration(gap.AtFlip)), append(control, time.Duration(gap.Control))
					}
				}
			}
			if len(longest) == 0 {
				t.Fatal("nothing was measured")
			}
			t.Logf("plugin %s, %d at a time: 8 pods in %s; %d moves not measured, %d of %d datagrams lost; median, "+
				"p99 and longest gap of the move %s, at the flip %s, before it %s", plugin, atOnce,
				(took / time.Duration(rounds)).Round(time.Millisecond), unmeasured, lost, sent,
				spread(longest), spread(atFlip), spread(control))
			if lost > 0 {
				t.Error("datagrams are lost")
			}
		}
	}
}
