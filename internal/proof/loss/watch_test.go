package loss

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestWatch: looks say what Judge says, whatever happens to reports between two looks.
func TestWatch(t *testing.T) {
	quick, failed, passed := 0, 0, 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 23))
		w := healthy()
		limits := Limits{Bake: time.Duration(random.IntN(3)) * time.Second,
			MaxLost: int64(random.IntN(2) * random.IntN(20)),
			MaxGap:  time.Duration(random.IntN(2)*random.IntN(60)) * time.Millisecond, Whole: random.IntN(2) == 0,
			Timeout: time.Duration(random.IntN(3)) * time.Second}
		if random.IntN(3) == 0 {
			limits.Changed = []string{"a"}
		}
		for i := range w.evidence.Paths {
			w.evidence.Paths[i].Source.Network = "old"
			if random.IntN(3) == 0 {
				w.evidence.Paths[i].Second = "10.9.0.1:1"
			}
		}
		for i := range w.evidence.Asked {
			w.evidence.Asked[i].Status.Parts = []v1alpha1.Part{{Name: "old", Since: start}}
		}
		if random.IntN(2) == 0 {
			w.evidence.Since = older(random, w.evidence.Asked)
		}
		now := make([]v1alpha1.ProbeReport, len(w.evidence.Asked))
		for i, r := range w.evidence.Asked {
			now[i] = r
			now[i].ResourceVersion = "1"
		}
		asked := w.evidence
		asked.Now = nil
		watch := NewWatch(limits, asked)
		for look := range 8 {
			for i := range now {
				if random.IntN(3) == 0 {
					now[i] = grown(random, now[i], look)
				}
			}
			seen := now
			if random.IntN(10) == 0 {
				seen = now[:1]
			}
			if random.IntN(10) == 0 { // as a list without versions
				seen = slices.Clone(seen)
				for i := range seen {
					seen[i].ResourceVersion = ""
				}
			}
			asked.Now = seen
			got, want := watch.Look(seen), Judge(limits, asked)
			if got.Waiting && got.Sent == 0 && want.Lost+want.Leaked == 0 {
				quick++
				got.Counts = want.Counts
			}
			if want.Pass {
				passed++
			} else if !want.Waiting {
				failed++
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, look %d: %+v, but Judge says %+v", seed, look, got, want)
			}
			if all := watch.Judge(seen); !reflect.DeepEqual(all, want) {
				t.Fatalf("seed %d, look %d: Judge of the watch says %+v, not %+v", seed, look, all, want)
			}
		}
	}
	if quick < 150 || failed < 100 || passed < 30 {
		t.Errorf("%d verdicts without counts, %d that failed, %d that passed: too few to compare",
			quick, failed, passed)
	}
}

// older are reports from before the gate was asked: with fewer probes, or losses that the later ones do not have, or
// without a path.
func older(random *rand.Rand, asked []v1alpha1.ProbeReport) []v1alpha1.ProbeReport {
	since := slices.Clone(asked)
	for i := range since {
		since[i].Status.Paths = slices.Clone(since[i].Status.Paths)
		for j := range since[i].Status.Paths {
			r := &since[i].Status.Paths[j]
			fewer := int64(random.IntN(50))
			r.Sent, r.Last = r.Sent-fewer, r.Last.Add(-time.Second)
			if r.Answered > 0 {
				r.Answered -= fewer - int64(random.IntN(20)/19)
			}
			if random.IntN(20) == 0 {
				r.ID = "other"
			}
		}
	}
	return since
}

// grown is the next report of a node: usually well, sometimes with a loss, a leak, a count that began anew, a gap that
// is open or was dropped, a stall, or a prober that restarted or was away; or the first one after the report was
// deleted.
func grown(random *rand.Rand, before v1alpha1.ProbeReport, look int) v1alpha1.ProbeReport {
	next := before
	next.Status.Paths = slices.Clone(before.Status.Paths)
	next.ResourceVersion = fmt.Sprint(look + 2)
	next.Status.Seq++
	next.Status.At = next.Status.At.Add(time.Second)
	switch random.IntN(40) {
	case 0, 1:
		next.Status.Generation = 2
	case 2:
		next.Status.Seq = 1
	case 3:
		next.Status.Parts = []v1alpha1.Part{{Name: "old", Since: next.Status.At}}
	case 4:
		next.Status.Parts = []v1alpha1.Part{{Name: "old", Since: start,
			Gone: []v1alpha1.Absence{{From: next.Status.At.Add(-2 * time.Second), To: next.Status.At}}}}
	}
	for i := range next.Status.Paths {
		r := &next.Status.Paths[i]
		sent, lost := int64(random.IntN(200)), int64(0)
		if random.IntN(25) == 0 {
			lost = min(sent, int64(random.IntN(5)))
		}
		r.Last = r.Last.Add(time.Second)
		r.Sent += sent
		if r.ID != "a>b/denied" {
			r.Answered += sent - lost
		} else {
			r.Answered += lost
		}
		if lost > 0 {
			gap := v1alpha1.Gap{From: r.Last.Add(-time.Second / 2), Millis: float64(lost * 10), Probes: lost}
			if random.IntN(2) == 0 {
				gap.Second = v1alpha1.Second{Answered: 3, SilentMillis: 5}
			}
			if r.Open = nil; random.IntN(3) == 0 {
				r.Open = &gap
			} else {
				r.Gaps = append(slices.Clone(r.Gaps), gap)
			}
		}
		switch random.IntN(60) {
		case 0:
			*r = v1alpha1.PathResult{ID: r.ID, Since: r.Last, Last: r.Last, Sent: 5, Answered: r.Answered % 6}
		case 1:
			r.Dropped++
		case 2:
			r.ID = "other"
		case 3:
			r.Stalls = append(slices.Clone(r.Stalls),
				v1alpha1.Gap{From: r.Last.Add(-time.Second), Millis: float64(random.IntN(8000))})
		case 4: // the prober restarted
			*r = v1alpha1.PathResult{ID: r.ID, Since: r.Last}
		}
	}
	return next
}

// BenchmarkWatch: a look of a gate while one in ten nodes has reported since the look before, and one in a hundred has
// not twice.
func BenchmarkWatch(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		asked, now := many(nodes, 1), many(nodes, 3)
		for i := range now {
			if i%100 == 0 {
				now[i].Status.Seq = 2
			}
		}
		evidence := Evidence{Generations: map[string]int64{}, Asked: asked, Since: asked}
		for _, report := range asked {
			evidence.Generations[report.Name] = 0
			for _, r := range report.Status.Paths {
				evidence.Paths = append(evidence.Paths, v1alpha1.Path{ID: r.ID,
					Source: v1alpha1.Endpoint{Node: report.Name, Network: "old"}, IntervalMillis: 200})
			}
		}
		watch := NewWatch(Limits{Bake: 5 * time.Second}, evidence)
		watch.Look(now)
		b.Run(fmt.Sprintf("canary/%d", nodes), func(b *testing.B) {
			var canary Canary
			canary.Look(evidence.Paths, asked, nil, start)
			for i := 1; b.Loop(); i++ {
				canary.Look(evidence.Paths, now, nil, start.Add(time.Duration(i)*slotLength))
			}
		})
		look := func(judge func([]v1alpha1.ProbeReport) Verdict) func(*testing.B) {
			return func(b *testing.B) {
				version := 3
				for b.Loop() {
					version++
					for i := 0; i < len(now); i += 10 {
						now[i].ResourceVersion = fmt.Sprint(version)
					}
					if !judge(now).Waiting {
						b.Fatal("the gate does not wait")
					}
				}
			}
		}
		b.Run(fmt.Sprintf("judge/%d", nodes), look(watch.Judge))
		b.Run(fmt.Sprintf("look/%d", nodes), look(watch.Look))
	}
}

// many are the reports of a cluster after so many publications, with 54 paths of each node.
func many(nodes int, seq int64) []v1alpha1.ProbeReport {
	reports := make([]v1alpha1.ProbeReport, nodes)
	for n := range reports {
		reports[n] = v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", n),
			ResourceVersion: fmt.Sprint(seq)},
			Status: v1alpha1.ProbeReportStatus{Seq: seq, At: start.Add(time.Duration(seq) * 10 * time.Second)}}
		for i := range 54 {
			reports[n].Status.Paths = append(reports[n].Status.Paths,
				v1alpha1.PathResult{ID: fmt.Sprintf("node-%d/old>node-%d/old/udp-%d", n, n+1, i),
					Sent: 50 * seq, Answered: 50 * seq, Since: start,
					Last: start.Add(time.Duration(seq) * 10 * time.Second)})
		}
	}
	return reports
}
