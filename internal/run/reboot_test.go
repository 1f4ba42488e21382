package run

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/step"
)

// reboot is what happens to node b between the start and the stop of a guard: it has no power from second 30 to 45, its
// probers begin new counts at second 50, and its agent goes on with the number of its last report.
type reboot struct {
	paths []string
	agent bool  // only its agent restarts: nothing is lost, and the counts go on
	lost  int64 // before that, by b itself
}

// at is what the cluster holds so many seconds after the beginning.
func (r reboot) at(second int) (l look) {
	begin := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	reports := map[string]*v1alpha1.ProbeReport{}
	plans := map[string]*v1alpha1.ProbePlan{}
	for _, id := range r.paths {
		from, to := id[:1], id[6:7]
		if reports[from] == nil {
			reports[from] = &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: from},
				Status: v1alpha1.ProbeReportStatus{Generation: 1, Seq: int64(second), At: at(second),
					Parts: []v1alpha1.Part{{Name: "old", Since: begin}}}}
			plans[from] = &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: from},
				Spec: v1alpha1.ProbePlanSpec{Generation: 1}}
		}
		plans[from].Spec.Paths = append(plans[from].Spec.Paths, v1alpha1.Path{ID: id, Class: "pod-pod",
			Source: v1alpha1.Endpoint{Node: from, Network: "old"}, Target: v1alpha1.Endpoint{Node: to, Network: "old"},
			Protocol: v1alpha1.UDP, IntervalMillis: 100})
		one := v1alpha1.PathResult{ID: id, Since: begin, Last: at(second), Sent: int64(10 * second)}
		one.Answered = one.Sent
		switch {
		case r.agent:
		case from == "b" && second > 50:
			one.Since, one.Sent = at(50), int64(10*(second-50))
			one.Answered, reports[from].Status.Parts[0].Since = one.Sent, at(50)
		case from == "b" && second >= 10 && r.lost > 0:
			one.Answered -= r.lost
			one.Gaps = []v1alpha1.Gap{{From: at(9), Millis: float64(100 * r.lost), Probes: r.lost}}
		case to == "b" && second > 45:
			one.Answered -= 150
			one.Gaps = []v1alpha1.Gap{{From: at(30), Millis: 15000, Probes: 150}}
		}
		reports[from].Status.Paths = append(reports[from].Status.Paths, one)
	}
	for _, node := range []string{"a", "b"} {
		if reports[node] != nil {
			l.Plans, l.Reports = append(l.Plans, *plans[node]), append(l.Reports, *reports[node])
		}
	}
	return l
}

// TestRebootBetween: a node that reboots between the start and the stop of a guard never leaves a good result: what
// the others lose on their paths to it is a loss, and if no path leads to it, its own counts are known to have a hole.
// What a look in between has seen of its former counts stays in the evidence. If its agent alone restarts, nothing is
// missing.
func TestRebootBetween(t *testing.T) {
	both := []string{"a/old>b/old", "a/old>c/old", "b/old>a/old"}
	for name, test := range map[string]struct {
		reboot reboot
		pass   bool
		lost   int64 // as the result says
		reason string
		seen   int64 // lost, as the evidence has it
	}{
		"measured by others":     {reboot{paths: both}, false, 150, "150 of ", 150},
		"it had lost probes":     {reboot{paths: both, lost: 5}, false, 150, "150 of ", 155},
		"measured by itself":     {reboot{paths: both[1:]}, false, 0, "a prober restarted, so 1 path was not", 0},
		"it alone, and had lost": {reboot{paths: both[1:], lost: 5}, false, 0, "a prober restarted", 5},
		"its agent alone":        {reboot{paths: both, agent: true}, true, 0, "none lost", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, false)
			s.looks = nil
			for _, second := range []int{1, 2, 3, 4, 5, 6} {
				s.looks = append(s.looks, test.reboot.at(second))
			}
			s.next()
			gate := &kube.Gate{Actor: s.actor, Since: []v1alpha1.ProbeReport{}}
			ask := func(what step.Gate) string {
				v, err := gate.Ask(t.Context(), what, func(context.Context) error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf("%t %d %s", v.Pass, v.Lost, v.Reason)
			}
			if said := ask(step.Gate{Baseline: true}); !strings.HasPrefix(said, "true 0 ") {
				t.Fatal(said)
			}
			since := loss.Baseline(gate.Since) // what the journal keeps
			s.looks = nil
			for _, second := range []int{20, 60, 61, 62, 63, 64, 65} {
				s.looks = append(s.looks, test.reboot.at(second))
			}
			s.next() // theseus guard status
			s.next()
			gate = &kube.Gate{Actor: s.actor, Since: since} // theseus guard stop, another process
			want := fmt.Sprintf("%t %d ", test.pass, test.lost)
			said := ask(step.Gate{Result: true})
			if !strings.HasPrefix(said, want) || !strings.Contains(said, test.reason) {
				t.Errorf("%q, want %q", said, want+test.reason)
			}
			if seen := SeenIn(s.evidence.Document()); seen.Lost != test.seen {
				t.Errorf("the evidence has %+v", seen)
			}
		})
	}
}
