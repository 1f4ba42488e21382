package loss

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// packedPaths is how many paths start on a node of the lab while two networks are joined.
const packedPaths = 54

// stream is a recorded run of one node's paths, as its probers count them: each path loses probes with a probability of
// its own, and stalls. It returns the node's reports in full.
func stream(random *rand.Rand, lossy, looks int) (paths []v1alpha1.Path, reports []v1alpha1.ProbeReport) {
	return streamEvery(random, lossy, looks, 2*time.Second)
}

func streamEvery(random *rand.Rand, lossy, looks int,
	every time.Duration) (paths []v1alpha1.Path, reports []v1alpha1.ProbeReport) {
	var trackers []*Tracker
	for i := range packedPaths {
		one := v1alpha1.Path{ID: fmt.Sprintf("node-1/%s>node-%d/new/udp-%d", []string{"host", "new", "old"}[i%3],
			i%4+1, i), Source: v1alpha1.Endpoint{Node: "node-1"}, IntervalMillis: 10 + 10*(i%10), Denied: i%9 == 8}
		if one.Denied {
			one.ID += "/denied"
		}
		paths = append(paths, one)
		trackers = append(trackers, New(Config{ID: one.ID, Denied: one.Denied, WarmUp: 3,
			Interval: time.Duration(one.IntervalMillis) * time.Millisecond}))
	}
	end := make([]time.Time, packedPaths)
	for i := range end {
		end[i] = start.Add(time.Duration(random.Int64N(int64(time.Second))))
	}
	for look := range looks {
		status := v1alpha1.ProbeReportStatus{Generation: 3, Seq: int64(look + 1),
			At: start.Add(time.Duration(look+1) * every), Paths: []v1alpha1.PathResult{}}
		for i, tracker := range trackers {
			interval := time.Duration(paths[i].IntervalMillis) * time.Millisecond
			for ; end[i].Before(status.At); end[i] = end[i].Add(interval) {
				sent := end[i].Add(time.Duration(random.Int64N(int64(time.Millisecond))))
				if random.IntN(500) == 0 {
					sent = sent.Add(3 * interval)
				}
				seq := tracker.Send(end[i], sent)
				wrong := i < lossy && random.IntN(20) == 0
				if wrong == paths[i].Denied {
					tracker.Answer(seq, sent.Add(time.Duration(200+random.ExpFloat64()*100)*time.Microsecond))
				} else {
					tracker.Fail(seq, "connection refused")
				}
				end[i] = sent.Add(-time.Duration(random.Int64N(int64(time.Millisecond))))
			}
			status.Paths = append(status.Paths, tracker.Result())
		}
		slices.SortFunc(status.Paths, func(x, y v1alpha1.PathResult) int { return strings.Compare(x.ID, y.ID) })
		report := v1alpha1.ProbeReport{Status: status}
		report.Name = "node-1"
		reports = append(reports, report)
	}
	return paths, reports
}

// written is a report as a reader finds it in the cluster.
func written(t testing.TB, report v1alpha1.ProbeReport, pack bool) (v1alpha1.ProbeReport, int) {
	t.Helper()
	if pack {
		Pack(&report.Status)
	}
	text, err := json.Marshal(report.Status)
	read := v1alpha1.ProbeReport{ObjectMeta: report.ObjectMeta}
	if err == nil {
		err = json.Unmarshal(text, &read.Status)
	}
	if err != nil {
		t.Fatal(err)
	}
	if pack != (read.Status.Packed != "") {
		t.Errorf("packed %v: %.40s", pack, read.Status.Packed)
	}
	if err := Unpack(&read.Status); err != nil {
		t.Fatal(err)
	}
	return read, len(text)
}

// TestPackedStream: one recorded stream, in full and packed, is the same to every reader: the results, the account and
// the verdict at every look.
func TestPackedStream(t *testing.T) {
	for _, lossy := range []int{0, 5, packedPaths - 1} {
		t.Run(fmt.Sprint(lossy, " lossy"), func(t *testing.T) {
			paths, reports := stream(rand.New(rand.NewPCG(1, uint64(lossy))), lossy, 20)
			limits := Limits{MaxLost: 20, Bake: 10 * time.Second}
			var whole, packed []v1alpha1.ProbeReport
			var judged [2]*Watch
			sizes := [2]int{}
			for i, report := range reports {
				a, inFull := written(t, report, false)
				b, short := written(t, report, true)
				if diff := cmp.Diff(a, b); diff != "" {
					t.Fatalf("report %d (-in full +packed):\n%s", i, diff)
				}
				whole, packed, sizes = append(whole, a), append(packed, b), [2]int{inFull, short}
				if i == 0 {
					for n, asked := range [][]v1alpha1.ProbeReport{whole, packed} {
						judged[n] = NewWatch(limits, Evidence{Generations: map[string]int64{"node-1": 3}, Paths: paths,
							Asked: slices.Clone(asked)})
					}
					continue
				}
				x, y := judged[0].Look(whole[i:]), judged[1].Look(packed[i:])
				if diff := cmp.Diff(x, y); diff != "" {
					t.Errorf("verdict at look %d (-in full +packed):\n%s", i, diff)
				}
			}
			x, y := NewAccount(paths, whole[:1], whole[1:], 0), NewAccount(paths, packed[:1], packed[1:], 0)
			if !reflect.DeepEqual(x, y) {
				t.Error("the accounts differ")
			}
			var lost int64
			for _, path := range y {
				lost += path.Lost + path.Leaked
			}
			if (lost > 0) != (lossy > 0) {
				t.Errorf("%d are lost", lost)
			}
			t.Logf("%d bytes in full, %d packed", sizes[0], sizes[1])
			if lossy == 0 && sizes[1]*5 > sizes[0] {
				t.Errorf("%d bytes of %d", sizes[1], sizes[0])
			}
		})
	}
}

// TestPackKeepsWhole: what cannot be restored exactly stays as it is, and a loss is readable in full.
func TestPackKeepsWhole(t *testing.T) {
	good := v1alpha1.PathResult{ID: "a/old>b", Sent: 3, Answered: 3, Since: start, Last: start.Add(time.Second)}
	with := func(change func(*v1alpha1.PathResult)) v1alpha1.PathResult {
		changed := good
		change(&changed)
		return changed
	}
	for name, test := range map[string]struct {
		result v1alpha1.PathResult
		packed bool
	}{
		"well":      {good, true},
		"not begun": {v1alpha1.PathResult{ID: "a/old>b"}, true},
		"no id":     {v1alpha1.PathResult{}, true},
		"negative": {with(func(r *v1alpha1.PathResult) {
			r.Sent, r.RTTMicros[2] = math.MinInt64, -1
		}), true},
		"before 1970": {with(func(r *v1alpha1.PathResult) { r.Since = time.Unix(-5, 3) }), true},
		"another zone": {with(func(r *v1alpha1.PathResult) {
			r.Since = start.In(time.FixedZone("x", 3600))
		}), true},
		"an odd stall": {with(func(r *v1alpha1.PathResult) {
			r.Stalls = []v1alpha1.Gap{{From: start, Millis: 1. / 3}}
		}), true},
		"a NaN": {with(func(r *v1alpha1.PathResult) { r.Stalls = []v1alpha1.Gap{{Millis: math.NaN()}} }), false},
		"a year of 5000": {with(func(r *v1alpha1.PathResult) {
			r.Last = time.Date(5000, 1, 1, 0, 0, 0, 0, time.UTC)
		}), false},
		"a gap":         {with(func(r *v1alpha1.PathResult) { r.Gaps = []v1alpha1.Gap{{From: start}} }), false},
		"an open gap":   {with(func(r *v1alpha1.PathResult) { r.Open = &v1alpha1.Gap{From: start} }), false},
		"dropped gaps":  {with(func(r *v1alpha1.PathResult) { r.Dropped = 1 }), false},
		"stall's cause": {with(func(r *v1alpha1.PathResult) { r.Stalls = []v1alpha1.Gap{{Cause: "x"}} }), false},
	} {
		status := v1alpha1.ProbeReportStatus{Seq: 7, Generation: 2, Paths: []v1alpha1.PathResult{test.result}}
		Pack(&status)
		if (status.Packed != "") != test.packed || len(status.Paths) != map[bool]int{true: 0, false: 1}[test.packed] {
			t.Errorf("%s: %+v", name, status)
		}
		if err := Unpack(&status); err != nil || status.Packed != "" || status.Generation != 2 ||
			len(status.Paths) != 1 {
			t.Errorf("%s: %v: %+v", name, err, status)
			continue
		}
		if got, want := fmt.Sprintf("%+v", utc(status.Paths[0])), fmt.Sprintf("%+v", utc(test.result)); got != want &&
			status.Paths[0].Open == nil {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestUnpackBad: what somebody else has packed is an error and no evidence, and losses in full still count.
func TestUnpackBad(t *testing.T) {
	_, reports := stream(rand.New(rand.NewPCG(1, 1)), 2, 3)
	good := reports[2].Status
	Pack(&good)
	lossy := len(good.Paths)
	if lossy == 0 {
		t.Fatal("nothing is lost")
	}
	bomb := append([]byte{}, encodeResults(3, nil)...)
	grown := make([]v1alpha1.PathResult, 20)
	for i := range grown {
		grown[i].ID = strings.Repeat("a", 100*i)
	}
	for name, text := range map[string]string{
		"no base64":  "{}",
		"cut off":    good.Packed[:len(good.Packed)/8*4],
		"empty":      "AQ==",
		"other form": "Ag==",
		"too long":   strings.Repeat("A", MaxPacked+4),
		"a bomb":     deflate(packedForm, append(bomb, make([]byte, maxUnpacked)...)),
		"more":       deflate(packedForm, append(bomb, 0)),
		"many":       deflate(packedForm, []byte{3, 0xff, 0xff, 0xff, 0xff, 0x7f}),
		"nothing":    deflate(packedForm, nil),
		"long ids":   deflate(packedForm, encodeResults(3, grown)),
		"many paths": deflate(packedForm, encodeResults(3, make([]v1alpha1.PathResult, maxResults+1))),
	} {
		status := good
		status.Packed = text
		if err := Unpack(&status); err == nil || status.Generation != 0 || len(status.Paths) != lossy ||
			status.Packed != "" {
			t.Errorf("%s: %v: generation %d, %d paths", name, err, status.Generation, len(status.Paths))
		}
	}
	old := good
	old.Seq++ // an agent of before has written it, and has left what it did not know
	if err := Unpack(&old); err != nil || old.Generation != good.Generation || len(old.Paths) != lossy {
		t.Errorf("the report of an older agent: %v: %+v", err, old)
	}
}

// FuzzUnpack: whatever a node reports, it is read within the bounds, or refused; and what was read is packed again.
func FuzzUnpack(f *testing.F) {
	_, reports := stream(rand.New(rand.NewPCG(1, 1)), 0, 2)
	Pack(&reports[0].Status)
	f.Add(int64(1), reports[0].Status.Packed)
	f.Add(int64(3), deflate(packedForm, []byte{3, 1, 0, 1, 'a'}))
	f.Add(int64(0), "AQ==")
	f.Fuzz(func(t *testing.T, seq int64, text string) {
		status := v1alpha1.ProbeReportStatus{Seq: seq, Generation: 4, Packed: text}
		if err := Unpack(&status); err != nil {
			if status.Generation != 0 || len(status.Paths) > 0 {
				t.Errorf("refused, and evidence: %+v", status)
			}
			return
		}
		before := slices.Clone(status.Paths)
		Pack(&status)
		if err := Unpack(&status); err != nil || len(before) != len(status.Paths) {
			t.Errorf("%d paths, then %d: %v", len(before), len(status.Paths), err)
		}
	})
}

// BenchmarkPack: what packing costs an agent for each report, and unpacking a reader.
func BenchmarkPack(b *testing.B) {
	_, reports := stream(rand.New(rand.NewPCG(1, 1)), 0, 20)
	b.Run("pack", func(b *testing.B) {
		for b.Loop() {
			status := reports[19].Status
			Pack(&status)
		}
	})
	packed := reports[19].Status
	Pack(&packed)
	b.Run("unpack", func(b *testing.B) {
		for b.Loop() {
			status := packed
			if err := Unpack(&status); err != nil {
				b.Fatal(err)
			}
		}
	})
}
